package storetest

// Refunds.

import (
	"errors"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
)

// with derives a limiter for the same user and action.
func (a *actor) with(options ...core.Option) *actor {
	a.s.Helper()
	l, err := a.l.With(options...)
	if err != nil {
		a.s.Fatal(err)
	}
	return &actor{a.s, l, a.limits, a.user, a.action}
}

// paid is an action that can be given back.
func (a *actor) paid(n int) core.Decision {
	a.s.Helper()
	a.s.f.refunds(a.s)
	d, err := a.with(core.Refundable{}).l.AllowN(a.s.Context(), a.user, a.action, n)
	if err != nil || !d.Allowed {
		a.s.Fatalf("at %v: AllowN(%d): %s, %v; want it to pass", a.s.now, n, show(d), err)
	}
	return d
}

func (a *actor) refund(d core.Decision, n int) {
	a.s.Helper()
	if err := a.l.RefundN(a.s.Context(), d, n); err != nil {
		a.s.Fatalf("at %v: RefundN(%d): %v", a.s.now, n, err)
	}
}

var refundRules = []promise{
	{"a charge that is refunded at once leaves no trace", func(s *script) {
		for _, limits := range append(single(s.f.exact(rateKinds(5, time.Minute))),
			[]core.Limit{core.TokenBucket(5, core.Per(7, 10*sec))},
			[]core.Limit{core.FixedWindow(5, 50*sec).Named("a"), core.Funnel(5, core.Every(10*sec)).Named("a"), core.MovingWindow(5, 5*sec).Shadow()},
		) {
			a := s.of(limits...).as("refund of "+limits[0].String(), "post")
			d := a.paid(3)
			a.refund(d, 3)
			a.peek(pass(5, 5, 0))
			d = a.paid(3)
			a.refund(d, 3)
			a.refund(d, 3) // once more does nothing
			a.refund(d, 1)
			a.peek(pass(5, 5, 0))
		}
	}},

	{"a part can be refunded, once", each(func(s *script, m maker) {
		a := s.of(m.make(5, 50*sec))
		d := a.paid(3)
		a.refund(d, 2)
		a.refund(d, 1)
		a.peek(pass(5, 4, 50*sec))
	}, fixedWindow, elasticWindow, slidingWindow, movingWindow, refusedWindow)},

	{"more than was charged cannot be refunded", func(s *script) {
		a := s.of(core.FixedWindow(5, time.Hour))
		d := a.paid(2)
		if err := a.l.RefundN(s.Context(), d, -1); !errors.Is(err, core.ErrCost) {
			s.Errorf("RefundN(-1): %v", err)
		}
		if err := a.l.RefundN(s.Context(), d, 3); err == nil || err.Error() != "core: RefundN: 3 units are more than the 2 that were charged" {
			s.Errorf("RefundN(3): %v", err)
		}
		a.refund(d, 2)
		a.peek(pass(5, 5, 0))
	}},

	{"overlapping refunds of a meter give no more than if its actions had never happened", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(10, core.Every(6*sec)))
		var first, held [10]core.Decision
		for i := range first {
			first[i] = a.paid(1)
		}
		for i := range held {
			a.refund(first[i], 1)
			held[i] = a.paid(1)
		}
		s.at(54 * sec)
		a.allow(9, pass(10, 0, 60*sec))
		for _, d := range held {
			a.refund(d, 1)
		}
		a.peek(pass(10, 1, 54*sec))
	}},

	{"a meter that is full again after a refund remembers it until the earlier debt would have drained", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(2, core.Every(10*sec)))
		first, second := a.paid(1), a.paid(1)
		a.refund(first, 1)
		s.at(10 * sec)
		a.peek(pass(2, 2, 0))
		s.at(12 * sec)
		a.allow(1, pass(2, 1, 10*sec))
		a.refund(second, 1) // without both it would be the same
		a.peek(pass(2, 1, 10*sec))
	}},

	{"a meter remembers eight refunds, and refunds less rather than more where they overlap", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(100, core.Per(3, sec)))
		var made []core.Decision
		for i := range 12 {
			s.at(time.Duration(i*i) * 50 * time.Millisecond)
			first := a.paid(20 - i)
			made = append(made, a.paid(i+1), a.paid(2))
			a.refund(first, 20-i)
		}
		s.at(10 * sec)
		for _, d := range slices.Backward(made) {
			a.refund(d, 1)
		}
		a.peek(pass(100, 40, 20*sec)) // with nine it would be 42
	}},

	{"an action of a window that has ended is not refunded to the next window", each(func(s *script, m maker) {
		a := s.of(m.make(3, 10*sec))
		d := a.paid(1)
		s.at(10 * sec)
		a.allow(1, pass(3, 2, 10*sec))
		a.refund(d, 1)
		a.peek(pass(3, 2, 10*sec))
	}, fixedWindow, elasticWindow, slidingWindow, movingWindow, refusedWindow)},

	{"an elastic window keeps its end, and an action older than its period", func(s *script) {
		a := s.of(core.ElasticWindow(3, 10*sec))
		first := a.paid(1)
		s.at(6 * sec)
		second := a.paid(1)
		s.at(9 * sec)
		a.refund(second, 1)
		a.peek(pass(3, 2, 7*sec))
		s.at(10 * sec)
		a.refund(first, 1)
		a.peek(pass(3, 2, 6*sec))
	}},
	{"any action of a long queue can be refunded", func(s *script) {
		s.f.stands(s)
		const quota, cost, steps = 8000, 20, 700
		a := s.of(core.MovingWindow(quota, 300*sec))
		var made [steps]core.Decision
		var left [steps]int
		var spent [steps]bool
		for i := range steps {
			s.at(time.Duration(i) * sec)
			made[i], left[i] = a.paid(cost), cost
			if i%10 == 0 { // of one of the last 250 actions, or of one that no longer counts
				j, n := max(0, i-i*7%310), i%(cost+1)
				a.refund(made[j], n)
				if !spent[j] && i-j < 300 { // else it does not count
					left[j] -= n
				}
				spent[j] = true
			}
			live := 0
			for j := max(0, i-299); j <= i; j++ {
				live += left[j]
			}
			a.peek(pass(quota, quota-live, 300*sec))
		}
		s.at((steps - 1 + 300) * sec)
		a.peek(pass(quota, quota, 0))
	}},

	{"an action of a moving window is refunded whole, or not at all if more than 65,536 were admitted since", func(s *script) {
		a := s.of(core.MovingWindow(100_000, time.Hour))
		for _, since := range []int{65_536, 65_537} {
			d := a.paid(100)
			s.at(s.now + sec)
			a.allow(since, pass(100_000, 100_000-since-100, time.Hour))
			a.refund(d, 100)
			left := 100_000 - since
			if since > 65_536 {
				left -= 100
			}
			a.peek(pass(100_000, left, time.Hour))
			s.at(s.now + time.Hour)
		}
	}},

	{"a Peek has no receipt", func(s *script) {
		a := s.of(core.FixedWindow(2, time.Hour)).with(core.Refundable{})
		asks := core.Must(core.New(&eager{s.f.Store, 1}, a.limits...)) // for a record
		d, err := asks.Peek(s.Context(), a.user, a.action)
		a.check("Peek", d, err, pass(2, 2, 0))
		if err := a.l.Refund(s.Context(), d); err != core.ErrNoReceipt {
			s.Errorf("Refund: %v", err)
		}
	}},

	{"the last turn is free once it is refunded", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(1, core.Every(10*sec)))
		a.paid(1)
		first := a.ahead(time.Minute, pass(1, 0, 20*sec))
		second := a.ahead(time.Minute, pass(1, 0, 30*sec))
		a.refund(second, 1)
		a.peek(stop(1, 0, 20*sec, 20*sec))
		a.refund(first, 1)
		a.peek(stop(1, 0, 10*sec, 10*sec))
		a.ahead(10*sec, pass(1, 0, 20*sec))
	}},
}
