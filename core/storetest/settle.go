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

	{"a debt in a window is as many units as were settled", func(s *script) {
		for _, m := range []func(int, time.Duration) core.Limit{core.SlidingWindow, core.MovingWindow, core.FixedWindow, core.ElasticWindow} {
			a := s.of(m(5, time.Hour)).as("counted by "+m(5, time.Hour).String(), "chat")
			a.settle(a.paid(3), 9)
			b := s.of(m(20, time.Hour)).as(a.user, a.action)
			b.peek(pass(20, 11, time.Hour))
			a.allow(1, stop(5, 0, time.Hour, time.Hour)) // which reads it as if cut, and does not cut it
			b.peek(pass(20, 11, time.Hour))
		}
	}},

	{"a moving window's debt is paid when enough has left it", func(s *script) {
		s.f.stands(s)
		for _, l := range []core.Limit{core.SlidingWindow(5, 50*sec), core.MovingWindow(5, 50*sec)} {
			a := s.of(l).as("leaves "+l.String(), "chat")
			begin := s.now
			a.paid(1)
			s.at(begin + 10*sec)
			d := a.paid(2)
			s.at(begin + 20*sec)
			a.settle(d, 6)
			a.peek(stop(5, 0, 40*sec, 50*sec))
			s.at(begin + 60*sec - usec)
			a.peek(stop(5, 0, usec, 10*sec+usec))
			s.at(begin + 60*sec)
			a.peek(pass(5, 1, 10*sec))
			s.at(begin + time.Hour)
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

	{"a debt takes no slot, and leaves those that are taken", func(s *script) {
		a := s.of(core.InFlight(3), core.FixedWindow(5, time.Hour))
		d := a.paid(1)
		a.settle(d, 8)
		s.of(core.InFlight(3)).peek(pass(3, 2, time.Minute))
		a.peek(by(1, stop(5, 0, time.Hour, time.Hour)))
		alone := s.of(core.InFlight(3)).as("alone", "chat")
		alone.settle(alone.paid(1), 8)
		alone.peek(pass(3, 2, time.Minute))
	}},

	{"a debt ignores bans, and the refusals of a debtor count", func(s *script) {
		a := s.of(core.FixedWindow(5, time.Hour)).with(steps)
		d := a.paid(5)
		a.ban(10 * sec)
		a.settle(d, 8)
		a.unban()
		a.standing(core.BanStatus{})
		s.of(core.FixedWindow(20, time.Hour)).peek(pass(20, 12, time.Hour))
	}},

	{"a meter's debt goes back with the clock", func(s *script) {
		s.f.stands(s)
		for i, l := range []core.Limit{core.Funnel(5, core.Every(10*sec)), core.TokenBucket(5, core.Every(10*sec)), core.TokenBucket(5, core.Every(10*sec)).Initial(5)} {
			begin := time.Duration(i+1) * time.Hour
			s.at(begin)
			a := s.of(l).as("back with "+l.String(), "chat")
			a.settle(a.paid(5), 8)
			s.at(begin - 30*sec)
			a.allow(1, stop(5, 0, 40*sec, 80*sec))
			s.at(begin)
			a.peek(stop(5, 0, 10*sec, 50*sec))
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

	{"a surcharge leaves a meter's debt as it is", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(5, core.Every(10*sec)))
		d, e := a.paid(2), a.paid(3)
		a.settle(d, 5)
		a.surcharge(4, pass(5, 0, 80*sec))
		a.settle(e, 1) // which the debt does not keep from being given back
		a.peek(stop(5, 0, 20*sec, 60*sec))
	}},

	{"a turn is behind the debt, and is no debt", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(2, core.Every(10*sec)))
		first, second := a.paid(1), a.paid(1)
		a.settle(first, 2)
		a.ahead(20*sec-usec, stop(2, 0, 20*sec, 30*sec))
		a.ahead(20*sec, pass(2, 0, 40*sec))
		a.refund(second, 1) // or the turn would come too early for the one behind it
		a.peek(stop(2, 0, 30*sec, 40*sec))
	}},

	{"a turn that is reserved stays one after a debt", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(4, core.Every(10*sec)))
		first, second := a.paid(2), a.paid(2)
		a.ahead(10*sec, pass(4, 0, 50*sec))
		a.settle(first, 3)
		a.refund(second, 2)
		a.peek(stop(4, 0, 30*sec, 60*sec))
	}},

	{"a bucket with Initial is not forgotten before its debt is paid", func(s *script) {
		s.f.stands(s)
		a := s.of(core.TokenBucket(5, core.Every(10*sec)).Initial(5).ForgetAfter(51 * sec))
		a.settle(a.paid(5), 10)
		s.at(99 * sec)
		a.peek(pass(5, 4, sec))
	}},

	{"attempts by a debtor restart an ElasticWindow and CountRefused", func(s *script) {
		s.f.stands(s)
		for i, l := range []core.Limit{core.ElasticWindow(5, 50*sec), core.SlidingWindow(5, 50*sec).CountRefused()} {
			begin := time.Duration(i) * time.Hour
			s.at(begin)
			a := s.of(l).as("restarts "+l.String(), "chat")
			a.settle(a.paid(5), 7)
			s.at(begin + 40*sec)
			for range 4 { // with CountRefused each takes the place of a unit
				if d, err := a.l.Allow(s.Context(), a.user, a.action); err != nil || d.Allowed {
					s.Errorf("%s: %s, %v", l, show(d), err)
				}
			}
			a.allow(1, stop(5, 0, 50*sec, 50*sec))
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
