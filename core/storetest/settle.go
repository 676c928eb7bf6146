package storetest

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

func (a *actor) settle(d core.Decision, actual int) {
	a.s.Helper()
	if err := a.l.Settle(a.s.Context(), d, actual); err != nil {
		a.s.Fatalf("at %v: Settle(%d): %v", a.s.now, actual, err)
	}
}

// owed is the refusal of a limit of 5 in a minute that has just been charged so many units, more than 4.
func (a *actor) owed(units int) core.Decision {
	retry := time.Minute
	if k := a.l.Limits()[0].Kind(); k == "bucket" || k == "funnel" {
		retry = time.Duration(units-4) * 12 * sec
	}
	return stop(5, 0, retry, a.whole(units))
}

var settleRules = []promise{
	{"a cost below the estimate gives back the difference", func(s *script) {
		s.f.stands(s)
		for _, l := range s.f.exact(rateKinds(5, time.Minute)) {
			a := s.of(l).as("less than "+l.String(), "chat")
			a.settle(a.paid(4), 1)
			a.peek(pass(5, 4, a.whole(1)))
		}
	}},

	{"a cost above the estimate is charged in full, and the user waits for the debt", func(s *script) {
		s.f.stands(s)
		for i, l := range s.f.exact(rateKinds(5, time.Minute)) {
			begin := time.Duration(i) * time.Hour
			s.at(begin)
			a := s.of(l).as("more than "+l.String(), "chat")
			a.settle(a.paid(3), 8)
			want := a.owed(8)
			a.peek(want)
			s.at(begin + want.RetryAfter - usec)
			a.peek(stop(5, 0, usec, want.ResetAfter-want.RetryAfter+usec))
			s.at(begin + want.RetryAfter)
			got, err := a.l.Peek(s.Context(), a.user, a.action)
			if err != nil || !got.Allowed {
				s.Errorf("%s: at RetryAfter: %s, %v", l, show(got), err)
			}
		}
	}},

	{"a debt is at most one quota, whatever the cost", func(s *script) {
		s.f.stands(s)
		for _, n := range []int{11, 1e9, math.MaxInt} {
			for _, l := range s.f.exact(rateKinds(5, time.Minute)) {
				a := s.of(l).as(fmt.Sprint(n, " of ", l), "chat")
				first, second := a.paid(1), a.paid(1)
				a.settle(first, n)
				a.peek(a.owed(10))
				a.settle(second, n)
				a.peek(a.owed(10))
			}
		}
	}},

	{"a decision is settled or refunded once", func(s *script) {
		a := s.of(core.FixedWindow(9, time.Hour))
		d := a.paid(3)
		a.settle(d, 3)
		a.settle(d, 9)
		a.refund(d, 3)
		a.peek(pass(9, 6, time.Hour))
		d = a.paid(1)
		a.refund(d, 1)
		a.settle(d, 9)
		a.peek(pass(9, 6, time.Hour))
	}},

	{"what cannot be settled says so", func(s *script) {
		a := s.of(core.FixedWindow(2, time.Hour))
		plain, err := a.l.Allow(s.Context(), a.user, a.action)
		if err != nil {
			s.Fatal(err)
		}
		d := a.paid(1)
		refused, err := a.l.Allow(s.Context(), a.user, a.action)
		if err != nil || refused.Allowed {
			s.Fatalf("%s, %v", show(refused), err)
		}
		for _, c := range []struct {
			name   string
			d      core.Decision
			actual int
			want   error
		}{
			{"a decision without a receipt", plain, 2, core.ErrNoReceipt},
			{"a decision without a receipt that cost nothing", plain, 0, core.ErrNoReceipt},
			{"a refusal", refused, 2, nil},
			{"a negative cost", d, -1, core.ErrCost},
		} {
			if err := a.l.Settle(s.Context(), c.d, c.actual); !errors.Is(err, c.want) {
				s.Errorf("%s: %v", c.name, err)
			}
		}
		a.settle(d, 2) // no error has spent it
		s.of(core.FixedWindow(9, time.Hour)).peek(pass(9, 6, time.Hour))
	}},

	{"a debt is charged to each limit as far as that one owes", func(s *script) {
		s.f.stands(s)
		a := s.of(core.FixedWindow(2, time.Minute), core.Funnel(3, core.Every(10*sec)), core.MovingWindow(100, time.Hour), core.FixedWindow(3, time.Hour).Shadow())
		a.settle(a.paid(2), 7)
		a.peek(stop(2, 0, time.Minute, time.Minute))
		s.of(core.FixedWindow(9, time.Minute)).peek(pass(9, 5, time.Minute))      // two of 2
		s.of(core.Funnel(3, core.Every(10*sec))).peek(stop(3, 0, 40*sec, 60*sec)) // two of 3
		s.of(core.MovingWindow(100, time.Hour)).peek(pass(100, 93, time.Hour))    // all
		status, err := s.of(core.FixedWindow(1, time.Second), core.FixedWindow(9, time.Hour).Shadow()).l.Status(s.Context(), a.user, a.action)
		if err != nil || status.Limits[1].Remaining != 3 { // three of the shadow's 3
			s.Errorf("the shadow limit: %+v, %v", status.Limits, err)
		}
	}},

	{"a debt is at most 2^52-1 microseconds, if two quotas take longer", func(s *script) {
		s.f.stands(s)
		const most = (1<<52 - 1) * usec
		for _, l := range []core.Limit{core.Funnel(100, core.Every(year)), core.TokenBucket(700, core.Per(7, year))} {
			a := s.of(l).as("for a century by "+l.String(), "chat")
			quota := l.Quota()
			a.settle(a.paid(quota), 2*quota)
			d, err := a.l.Peek(s.Context(), a.user, a.action)
			if err != nil || d.Allowed || d.Remaining != 0 || d.ResetAfter != most {
				s.Errorf("%s: %s, %v; want it whole in %s", l, show(d), err, most)
			}
		}
	}},
}

// settled has goroutines settle while others are decided. What is charged in the end is what was
// used, and not more than two quotas.
func settled(t *testing.T, open func(testing.TB) Fixture) {
	const quota, before, goroutines = 500, 150, 400
	for _, l := range rateKinds(quota, quota*time.Hour) {
		t.Run("settled costs add up for "+l.String(), func(t *testing.T) {
			s := &script{T: t, f: open(t)}
			s.f.refunds(t)
			a := s.of(l).with(core.Refundable{})
			// Nothing of it is given back, so that each refund finds its debt.
			first := a.paid(before)
			costs := make([]int, goroutines)
			together(t, goroutines, func(i int) error {
				d, err := a.l.AllowN(t.Context(), a.user, a.action, 2)
				if err != nil || !d.Allowed {
					return err
				}
				if costs[i] = 4; i%4 == 0 {
					costs[i] = 1
				}
				return a.l.Settle(t.Context(), d, costs[i])
			})
			used := before + 100
			a.settle(first, used)
			for _, n := range costs {
				used += n
			}
			if used <= quota || used > 2*quota {
				t.Errorf("%d were used, with a quota of %d and as much debt", used, quota)
			}
			want := stop(quota, 0, quota*time.Hour, quota*time.Hour)
			if l.Rule().Parts > 0 { // a meter
				want.RetryAfter, want.ResetAfter = time.Duration(used-quota+1)*time.Hour, time.Duration(used)*time.Hour
			}
			if l.Kind() != "calendar" { // whose period may end sooner
				a.peek(want)
			}
			if l.Kind() == "refused" { // its refusals count too
				return
			}
			for _, larger := range rateKinds(3*quota, quota*time.Hour) {
				if larger.Kind() != l.Kind() || l.Rule().Parts > 0 {
					continue
				}
				if d, err := s.of(larger).l.Peek(t.Context(), a.user, a.action); err != nil || d.Remaining != 3*quota-used {
					t.Errorf("%s, %v; want %d of %d to be counted", show(d), err, used, 3*quota)
				}
			}
		})
	}
}
