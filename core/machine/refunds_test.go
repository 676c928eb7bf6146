package machine

import (
	"slices"
	"testing"
)

// The example of refunds: what has drained is not given back, though the charge left more.
func TestADrainedChargeIsNotRefunded(t *testing.T) {
	r, s := NewMeter(KindFunnel, 10, 1, second), State{}
	charge := func(now, cost int64) Taken {
		e := Entry{State: s}
		r.Check(&e, now, cost, &Ask{})
		r.Charge(&e, now, cost, &Ask{})
		s = e.State
		return Taken{now, cost, e.Reading}
	}
	refund := func(taken Taken, now int64) {
		e := Entry{State: s}
		r.Amend(&e, taken, now, Amendment{Units: taken.Cost})
		s = e.State
	}
	const start = 100 * second
	a, b := charge(start, 5), charge(start, 3)
	for _, step := range []struct {
		do   func()
		want int64 // the TAT, in seconds after the start
	}{
		{func() {}, 8},
		{func() { refund(a, start) }, 3},
		{func() { charge(start+4*second, 5) }, 9},
		{func() { refund(b, start+4*second) }, 9},
	} {
		step.do()
		d := r.debt(s, start)
		if got := d.At.Whole - start; got != step.want*second {
			t.Errorf("the TAT is %d us after the start, want %d s", got, step.want)
		}
	}
}

// The example of merge: a charge between two refunds is given back less, and never more.
func TestMergedRefundsGiveLess(t *testing.T) {
	f := &refunds{After: []refund{{1, Span{1, 0}}, {2, Span{2, 0}}, {3, Span{5, 0}}}}
	f.merge()
	if want := []refund{{2, Span{1, 0}}, {3, Span{5, 0}}}; !slices.Equal(f.After, want) {
		t.Errorf("%v, want %v", f.After, want)
	}
}
