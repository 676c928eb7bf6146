package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// quota is that of most of the limits that many goroutines use at once.
const quota = 100

// Concurrent has many goroutines act on one key, for every kind of limit. Of a thousand charges exactly
// the limit passes, and each that passes sees another Remaining. Charges, surcharges and refunds at once
// add up, and each refusal counts for a ban policy. No more slots of InFlight are taken at a time than
// there are. Run it with -race too. Its limits are so slow that a clock that runs by itself does not
// matter.
func Concurrent(t *testing.T, open func(testing.TB) Fixture) {
	goroutines := 1000
	if testing.Short() {
		goroutines = 300
	}
	exactlyTheLimit(t, open, goroutines)
	t.Run("mixed costs never exceed the limit", func(t *testing.T) { mixedCosts(t, open(t), goroutines) })
	inCommon(t, open, goroutines)
	concurrentAll(t, open, goroutines)
	sums(t, open)
	neverMore(t, open, goroutines)
	settled(t, open)
	t.Run("each refusal counts for a ban policy", func(t *testing.T) { countedRefusals(t, open(t)) })
	t.Run("many keys at once are each held to the limit", func(t *testing.T) { manyKeys(t, open(t)) })
	t.Run("waiters pass in order of arrival, at the rate and no sooner", func(t *testing.T) { waitersInOrder(t, open(t)) })
	t.Run("a Reset among charges forgets at most once", func(t *testing.T) { resetAmongCharges(t, open(t), goroutines) })
}

// exactlyTheLimit races charges of one limiter: the limit passes, and each that passes sees another Remaining.
func exactlyTheLimit(t *testing.T, open func(testing.TB) Fixture, goroutines int) {
	for _, limits := range slow(quota) {
		t.Run(fmt.Sprint(limits), func(t *testing.T) {
			s := &script{T: t, f: open(t)}
			s.f.dated(t, limits...)
			a := s.of(limits...)
			remaining := make([]int, quota)
			refused, reason := 0, core.ReasonLimited
			if limits[0].TakesSlots() {
				reason = core.ReasonInFlight
			}
			var mu sync.Mutex
			together(t, goroutines, func(int) error {
				d, err := a.l.Allow(t.Context(), a.user, a.action)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					return err
				case !d.Allowed:
					refused++
					if d.RetryAfter <= 0 || d.Remaining != 0 || d.Reason != reason {
						return errors.New(show(d))
					}
				case d.Remaining < 0 || d.Remaining >= quota:
					return errors.New(show(d))
				default:
					remaining[d.Remaining]++
				}
				return nil
			})
			if left := slices.IndexFunc(remaining, func(n int) bool { return n != 1 }); left >= 0 {
				t.Errorf("%d passed with %d remaining, not one", remaining[left], left)
			}
			if refused != goroutines-quota {
				t.Errorf("%d were refused, not %d", refused, goroutines-quota)
			}
			for _, l := range limits { // all were charged or none
				d, err := s.of(l).l.Peek(t.Context(), a.user, a.action)
				want := l.Quota() - quota
				if l.Kind() == "bucket" {
					want = 0
				}
				if err != nil || d.Remaining != want {
					t.Errorf("%s afterwards: %s, %v; want %d to remain", l, show(d), err, want)
				}
			}
		})
	}
}

func mixedCosts(t *testing.T, f Fixture, goroutines int) {
	s := &script{T: t, f: f}
	// Two limiters of one state, one of them with room for more.
	large, small := s.of(core.MovingWindow(quota, time.Hour)), s.of(core.MovingWindow(quota-10, time.Hour))
	passed := 0
	var mu sync.Mutex
	together(t, goroutines, func(i int) error {
		l, cost := large.l, i%3+1
		if i%2 == 0 {
			l = small.l
		}
		if i%10 == 0 {
			if _, err := l.Peek(t.Context(), large.user, large.action); err != nil {
				return err
			}
		}
		d, err := l.AllowN(t.Context(), large.user, large.action, cost)
		if d.Allowed {
			mu.Lock()
			passed += cost
			mu.Unlock()
		}
		return err
	})
	// A cost of 3 may be left out when 2 remain, no more.
	d, err := large.l.Peek(t.Context(), large.user, large.action)
	if err != nil || passed > quota || passed < quota-2 || d.Remaining != quota-passed {
		t.Errorf("%d passed and %d remain of %d, %v", passed, d.Remaining, quota, err)
	}
}

// inCommon races limiters of which some have limits or states in common.
func inCommon(t *testing.T, open func(testing.TB) Fixture, goroutines int) {
	x, y := core.FixedWindow(quota, time.Hour), core.MovingWindow(quota, time.Hour)
	for _, race := range []struct {
		name string
		pick func(i int) (limits []core.Limit, action string)
	}{
		{"all of a user's actions never exceed a PerUser limit", func(i int) ([]core.Limit, string) {
			return []core.Limit{x.PerUser()}, fmt.Sprint("action", i%8)
		}},
		{"limiters with one limit in common never exceed it", func(i int) ([]core.Limit, string) {
			own := core.FixedWindow(10*quota, time.Hour).Named(fmt.Sprint("own", i%8))
			if i%2 == 0 {
				return []core.Limit{own, x}, "reply"
			}
			return []core.Limit{x, own}, "reply"
		}},
		{"limiters with two limits in either order never exceed them, and do not deadlock", func(i int) ([]core.Limit, string) {
			if i%2 == 0 {
				return []core.Limit{x, y}, "reply"
			}
			return []core.Limit{y, x}, "reply"
		}},
	} {
		t.Run(race.name, func(t *testing.T) {
			s := &script{T: t, f: open(t)}
			actors := make([]*actor, 8)
			for i := range actors {
				limits, action := race.pick(i)
				a := s.of(limits...)
				actors[i] = a.as(a.user, action)
			}
			var passed atomic.Int64
			done := make(chan struct{})
			go func() {
				defer close(done)
				together(t, goroutines, func(i int) error {
					a := actors[i%len(actors)]
					d, err := a.l.Allow(t.Context(), a.user, a.action)
					if d.Allowed {
						passed.Add(1)
					}
					return err
				})
			}()
			const most = time.Minute
			select {
			case <-done:
			case <-time.After(most):
				t.Fatalf("%d calls are not through after %s: two of them wait for each other", goroutines, most)
			}
			if passed.Load() != quota {
				t.Errorf("%d passed, not %d", passed.Load(), quota)
			}
		})
	}
}

// sums has charges, surcharges and refunds add up.
func sums(t *testing.T, open func(testing.TB) Fixture) {
	for _, limits := range slow(500) {
		if limits[0].TakesSlots() { // a surcharge takes no slot, and a refund gives none back
			continue
		}
		t.Run("charges, surcharges and refunds add up for "+fmt.Sprint(limits), func(t *testing.T) {
			const each, before = 100, 150
			s := &script{T: t, f: open(t)}
			s.f.dated(t, limits...)
			a := s.of(limits...).with(core.Refundable{})
			_, refunds := s.f.Store.(core.Amender)
			left := func(i int) int {
				d, err := s.of(limits[i]).l.Peek(t.Context(), a.user, a.action)
				if err != nil {
					t.Error(err)
				}
				return d.Remaining
			}
			// This charge stays. It opens the fixed window, and leaves a meter more debt than
			// all refunds take: otherwise some would rightly give back less.
			if d, err := a.l.AllowN(t.Context(), a.user, a.action, before); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			var want []int
			for i := range limits {
				want = append(want, left(i)-2*each)
			}
			together(t, 3*each, func(i int) error {
				var d core.Decision
				var err error
				switch i % 3 {
				case 0:
					d, err = a.l.Surcharge(t.Context(), a.user, a.action, 1)
				case 1:
					d, err = a.l.Allow(t.Context(), a.user, a.action)
				case 2:
					if !refunds {
						return nil
					}
					if d, err = a.l.Allow(t.Context(), a.user, a.action); err == nil {
						err = a.l.Refund(t.Context(), d)
					}
				}
				if err == nil && !d.Allowed {
					err = errors.New(show(d))
				}
				return err
			})
			for i, l := range limits {
				if got := left(i); got != want[i] {
					t.Errorf("%s: %d remain, not %d", l, got, want[i])
				}
			}
		})
	}
}

func countedRefusals(t *testing.T, f Fixture) {
	const users, refusals = 10, 99
	s := &script{T: t, f: f}
	a := s.of(core.FixedWindow(1, time.Hour)).with(core.BanPolicy{Refusals: refusals + 1, Within: time.Hour, Bans: []time.Duration{time.Hour}})
	together(t, users*(1+refusals), func(i int) error {
		_, err := a.l.Allow(t.Context(), fmt.Sprint("user ", i%users), a.action)
		return err
	})
	for i := range users {
		status, err := a.l.Status(t.Context(), fmt.Sprint("user ", i), a.action)
		if err != nil || status.Ban.Refusals != refusals || status.Ban.Banned {
			t.Errorf("user %d: %+v, %v; want %d refusals", i, status.Ban, err, refusals)
		}
	}
}

func manyKeys(t *testing.T, f Fixture) {
	const users, each, quota = 100, 10, 3
	s := &script{T: t, f: f}
	a := s.of(core.SlidingWindow(quota, time.Hour), core.Funnel(quota, core.Every(time.Hour)))
	var passed [users]int
	var mu sync.Mutex
	together(t, users*each, func(i int) error {
		d, err := a.l.Allow(t.Context(), fmt.Sprint("user ", i%users), a.action)
		if d.Allowed {
			mu.Lock()
			passed[i%users]++
			mu.Unlock()
		}
		return err
	})
	for i, n := range passed {
		if n != quota {
			t.Errorf("user %d: %d passed, not %d", i, n, quota)
		}
	}
}

func waitersInOrder(t *testing.T, f Fixture) {
	if f.Advance != nil {
		t.Skip(notHere + "its clock does not run by itself")
	}
	const waiters, step = 4, 200 * time.Millisecond
	asked := make(chan struct{}, 100)
	l := core.Must(core.New(&telling{f.Store, asked}, core.Funnel(1, core.Every(step))))
	var wg sync.WaitGroup
	start := time.Now()
	for i := range waiters {
		wg.Go(func() {
			d, err := l.Wait(t.Context(), "u", "a")
			if after := time.Since(start); err != nil || !d.Allowed || after < time.Duration(i)*step {
				t.Errorf("waiter %d after %v: %s, %v", i, after, show(d), err)
			}
		})
		<-asked
	}
	wg.Wait()
	if n := len(asked); n > 0 {
		t.Errorf("those who waited asked %d times more", n)
	}
}

func resetAmongCharges(t *testing.T, f Fixture, goroutines int) {
	s := &script{T: t, f: f}
	a := s.of(core.SlidingWindow(quota, time.Hour), core.FixedWindow(quota, time.Hour))
	passed := 0
	var mu sync.Mutex
	together(t, goroutines, func(i int) error {
		if i == goroutines/2 {
			return a.l.Reset(t.Context(), a.user, a.action)
		}
		d, err := a.l.Allow(t.Context(), a.user, a.action)
		if d.Allowed {
			mu.Lock()
			passed++
			mu.Unlock()
		}
		return err
	})
	if passed < quota || passed > 2*quota {
		t.Errorf("%d passed, not %d to %d", passed, quota, 2*quota)
	}
}

// slow are limits, of each kind and some together, of which quota units pass at once and the
// next one much later.
func slow(quota int) [][]core.Limit {
	hourly := core.Every(time.Hour)
	return append(single(everyKind(quota, time.Duration(quota)*time.Hour)),
		[]core.Limit{core.TokenBucket(2*quota, hourly).Initial(quota)},
		[]core.Limit{core.TokenBucket(2*quota, hourly).Initial(quota).ForgetAfter(1000 * time.Hour)},
		[]core.Limit{core.SlidingWindow(quota+50, time.Hour).Named("first"), core.Funnel(quota, hourly), core.FixedWindow(quota+30, time.Hour)},
		[]core.Limit{core.MovingWindow(quota, time.Hour), core.Funnel(quota, hourly).PerUser()},
	)
}

// telling is a store that signals each call.
type telling struct {
	core.Store
	asked chan<- struct{}
}

func (s *telling) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	defer func() { s.asked <- struct{}{} }()
	return s.Store.Take(ctx, c)
}

// together runs n goroutines that all start at once, and waits for them. It reports the first
// of their errors, and how many there are.
func together(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			if err := do(i); err != nil {
				errs <- err
			}
		})
	}
	close(start)
	wg.Wait()
	if failed := len(errs); failed > 0 {
		t.Errorf("%d of %d goroutines failed; the first: %v", failed, n, <-errs)
	}
}
