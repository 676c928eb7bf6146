package machine

import (
	"slices"
	"testing"
)

// A payer charges a funnel of one user, and refunds.
type payer struct {
	Rule
	ask   Ask
	state State
}

func (p *payer) charge(now, cost int64) Taken {
	e := Entry{State: p.state}
	p.Check(&e, now, cost, &p.ask)
	p.Charge(&e, now, cost, &p.ask)
	p.state = e.State
	return Taken{now, cost, e.Reading}
}

func (p *payer) refund(taken Taken, now int64) {
	e := Entry{State: p.state}
	p.Amend(&e, taken, now, Amendment{Units: taken.Cost})
	p.state = e.State
}

// The example of refunds: what has drained is not given back, though the charge left more.
func TestADrainedChargeIsNotRefunded(t *testing.T) {
	const start = 100 * second
	p := &payer{Rule: NewMeter(KindFunnel, 10, 1, second)}
	a, b := p.charge(start, 5), p.charge(start, 3)
	for _, step := range []struct {
		do   func()
		want int64 // the TAT, in seconds after the start
	}{
		{func() {}, 8},
		{func() { p.refund(a, start) }, 3},
		{func() { p.charge(start+4*second, 5) }, 9},
		{func() { p.refund(b, start+4*second) }, 9},
	} {
		step.do()
		d := p.debtOf(p.state, start)
		if got := d.At.Whole - start; got != step.want*second {
			t.Errorf("the TAT is %d us after the start, want %d s", got, step.want)
		}
	}
}

// What has drained is not given back either if turns were reserved at the instant of an earlier refund.
func TestADrainedChargeBesideReservedTurnsIsNotRefunded(t *testing.T) {
	const start = 100 * second
	p := &payer{Rule: NewMeter(KindFunnel, 10, 1, second), ask: Ask{Ahead: 4 * second}}
	a, b := p.charge(start, 5), p.charge(start, 3)
	p.refund(a, start)
	p.charge(start, 10)
	p.charge(start, 1)
	p.refund(b, start+4*second)
	if got := p.debtOf(p.state, start).At.Whole - start; got != 14*second {
		t.Errorf("the TAT is %d us after the start, want 14 s", got)
	}
}

// The numbers of refunds run ahead of a clock that stands still. A charge that knew of such a refund does not
// take a later one for known.
func TestManyRefundsAtOnce(t *testing.T) {
	const start = 100
	p := &payer{Rule: NewMeter(KindFunnel, 100, 1, 1)}
	for range 20 {
		p.refund(p.charge(start, 1), start)
	}
	a, b := p.charge(start, 3), p.charge(start, 5)
	p.charge(start+1, 1)
	p.refund(a, start+1) // a has 2 us left, so b's end is no later than 7 us after the start
	p.charge(start+1, 10)
	p.refund(b, start+4)
	if got := p.debtOf(p.state, start).At.Whole - start; got != 14 {
		t.Errorf("the TAT is %d us after the start, want 14", got)
	}
}

// The example of merge: a charge between two refunds is given back less, and never more. Of two pairs that are equally
// near, the first becomes one.
func TestMergedRefundsGiveLess(t *testing.T) {
	for _, test := range []struct{ after, want []refund }{
		{[]refund{{1, Span{1, 0}}, {2, Span{2, 0}}, {3, Span{5, 0}}}, []refund{{2, Span{1, 0}}, {3, Span{5, 0}}}},
		{[]refund{{1, Span{1, 0}}, {2, Span{2, 0}}, {3, Span{3, 0}}}, []refund{{2, Span{1, 0}}, {3, Span{3, 0}}}},
		{[]refund{{1, Span{1, 9}}, {2, Span{3, 0}}, {3, Span{4, 9}}}, []refund{{1, Span{1, 9}}, {3, Span{3, 0}}}},
	} {
		f := &refunds{After: test.after}
		f.merge()
		if !slices.Equal(f.After, test.want) {
			t.Errorf("%v, want %v", f.After, test.want)
		}
	}
}
