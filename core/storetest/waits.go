package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"pgregory.net/rapid"
)

// Waits checks core.Limiter.Wait over the store, with callers of several processes who
// share limits and cancel. It recounts the actions that pass without the store. The time is that
// of a synctest bubble, so a store whose clock runs by itself cannot be tested.
func Waits(t *testing.T, open func(testing.TB) Fixture) {
	for _, part := range []struct {
		name  string
		check func(*testing.T, Fixture)
	}{
		{"shared limits admit no more than each allows, and a caller that stays passes", sharedLimits},
		{"a turn in several limits is charged when it comes", turnsOfSeveral},
		{"callers that cancel leave no trace", crowdThatLeaves},
		{"a caller that stays moves up when others cancel", stayingCallerMovesUp},
		{"turns that are given back do not let two callers pass together", turnsGivenBack},
		{"a turn at the deadline is refused at once, and one before it comes", turnsAtTheDeadline},
		{"waiting is not an attempt", waitIsNoAttempt},
	} {
		t.Run(part.name, func(t *testing.T) {
			f := open(t)
			f.stands(t)
			part.check(t, f)
		})
	}
}

// bubble runs play in a bubble, with the store on the bubble's clock. The store itself
// stays outside, where its network works.
func (f *Fixture) bubble(t *testing.T, play func(core.Store)) {
	outside := &outside{calls: make(chan func()), done: make(chan struct{})}
	go func() {
		for call := range outside.calls {
			call()
			outside.done <- struct{}{}
		}
	}()
	defer close(outside.calls)
	synctest.Test(t, func(*testing.T) {
		outside.f, outside.start = f, time.Now()
		play(outside)
	})
}

// An outside is a store outside the bubble that is asked from inside. Its callers take
// turns: while one waits for an answer, the bubble's clock stands still.
type outside struct {
	f     *Fixture
	calls chan func()
	done  chan struct{}

	mu     sync.Mutex
	start  time.Time
	passed time.Duration // on the store's clock
}

func (s *outside) do(ctx context.Context, call func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	step := time.Since(s.start).Truncate(usec) - s.passed
	s.passed += step
	s.calls <- func() {
		if step > 0 {
			s.f.Advance(step)
		}
		call()
	}
	<-s.done
	return nil
}

func (s *outside) Take(ctx context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	if gone := s.do(ctx, func() { d, r, err = s.f.Store.Take(context.Background(), c) }); gone != nil {
		return d, r, gone
	}
	if r != nil {
		r.By = s
	}
	return d, r, err
}

func (s *outside) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	amender, ok := s.f.Store.(core.Amender)
	if !ok {
		return false, core.ErrNoReceipt
	}
	if gone := s.do(ctx, func() { done, err = amender.Amend(context.Background(), r, a) }); gone != nil {
		return false, gone
	}
	return done, err
}

func (s *outside) Reset(ctx context.Context, user, action string, limits []core.Limit) (err error) {
	if gone := s.do(ctx, func() { err = s.f.Store.Reset(context.Background(), user, action, limits) }); gone != nil {
		return gone
	}
	return err
}

// A passage is an action that was let pass. Stores count in whole microseconds.
type passage struct {
	at    time.Duration
	units int
}

// passages are those of callers who run at once.
type passages struct {
	mu    sync.Mutex
	start time.Time
	all   []passage
}

func (p *passages) add(units int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, passage{time.Since(p.start).Truncate(usec), units})
}

// debt is what a meter of that rate owes at an instant, recounted.
func debt(all []passage, every, now time.Duration) time.Duration {
	owed, last := time.Duration(0), time.Duration(0)
	for _, p := range append(slices.Clone(all), passage{at: now}) {
		owed = max(0, owed-(p.at-last)) + time.Duration(p.units)*every
		last = p.at
	}
	return owed
}

// exceeded reports whether a limit cannot have let all of that pass, recounted.
func (r rule) exceeded(all []passage) bool {
	opened, counted := time.Duration(-1), 0
	for i, p := range all {
		switch {
		case r.meter():
			if debt(all[:i+1], us(r.d), p.at) > time.Duration(r.max)*us(r.d) {
				return true
			}
		case r.kind == fixed:
			if opened < 0 || p.at >= opened+us(r.period) {
				opened, counted = p.at, 0
			}
			if counted += p.units; counted > r.max {
				return true
			}
		default:
			units := 0
			for _, q := range all[:i+1] {
				if p.at < q.at+us(r.period) {
					units += q.units
				}
			}
			if units > r.max {
				return true
			}
		}
	}
	return false
}

// Several limiters share limits, and callers wait, leave or ask without waiting. No limit
// ever admits more than it allows by itself.
func sharedLimits(t *testing.T, f Fixture) {
	type caller struct {
		Pause, Patience  time.Duration // after the one before; 0 does not wait
		Process, Limiter int
		Units            int
		Leaves           bool // half-way
	}
	kinds := []kind{funnel, bucket, sliding, moving, fixed}
	f.random(t, func(rt *rapid.T, run int) {
		user := fmt.Sprint("u", run)
		var rules [2]rule
		for i := range rules {
			r := rule{kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), max: rapid.IntRange(1, 4).Draw(rt, "max"), n: 1, name: fmt.Sprint(i)}
			r.d = int64(rapid.IntRange(1, 5).Draw(rt, "seconds")) * 1_000_000
			r.period = r.d * int64(r.max)
			rules[i] = r
		}
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller {
			return caller{
				Pause:    rapid.SampledFrom([]time.Duration{0, 0, ms, 700 * ms, 2 * sec}).Draw(rt, "pause"),
				Patience: rapid.SampledFrom([]time.Duration{0, ms, 4 * sec, 5*sec + ms, 30 * sec, time.Hour, time.Hour}).Draw(rt, "patience"),
				Process:  rapid.IntRange(0, 1).Draw(rt, "process"),
				Limiter:  rapid.IntRange(0, 2).Draw(rt, "limiter"),
				Units:    rapid.IntRange(1, 2).Draw(rt, "units"),
				Leaves:   rapid.Bool().Draw(rt, "leaves"),
			}
		}), 1, 25).Draw(rt, "callers")

		var passed [2]passages // through each limit
		var problems []string
		f.bubble(t, func(store core.Store) {
			var limiters [2][3]*core.Limiter // of each process
			for i := range limiters {
				a, b := rules[0].limit(), rules[1].limit()
				limiters[i] = [3]*core.Limiter{core.Must(core.New(store, a)), core.Must(core.New(store, b)), core.Must(core.New(store, a, b))}
			}
			for i := range passed {
				passed[i].start = time.Now()
			}
			var mu sync.Mutex
			var all sync.WaitGroup
			for i, c := range callers {
				time.Sleep(c.Pause)
				l, quota := limiters[c.Process][c.Limiter], rules[c.Limiter%2].max
				if c.Limiter == 2 {
					quota = min(rules[0].max, rules[1].max)
				}
				all.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
					defer cancel()
					if c.Leaves {
						time.AfterFunc(c.Patience/2, cancel)
					}
					var d core.Decision
					var err error
					if c.Patience == 0 {
						d, err = l.AllowN(context.Background(), user, "a", c.Units)
					} else {
						d, err = l.WaitN(ctx, user, "a", c.Units)
					}
					if err == nil && d.Allowed {
						for i := range passed {
							if c.Limiter == i || c.Limiter == 2 {
								passed[i].add(c.Units)
							}
						}
					} else if c.Patience == time.Hour && !c.Leaves && c.Units <= quota {
						mu.Lock()
						problems = append(problems, fmt.Sprintf("caller %d: %s, %v", i, show(d), err))
						mu.Unlock()
					}
				})
			}
			all.Wait()
		})
		for i, r := range rules {
			if r.exceeded(passed[i].all) {
				rt.Fatalf("%s let pass %v", r.limit(), passed[i].all)
			}
		}
		if len(problems) > 0 {
			rt.Fatalf("%v: callers that stayed did not pass: %s", rules, problems)
		}
	})
}

// Wait over several limits charges each of them when the turn comes. To charge all when the
// turn is reserved would let others pass in between, or too soon after.
func turnsOfSeveral(t *testing.T, f Fixture) {
	rare, often := rule{kind: funnel, max: 1, n: 1, d: 5_000_000}, rule{kind: bucket, max: 1, n: 1, d: 1_000_000}
	var passed passages
	f.bubble(t, func(store core.Store) {
		alone, both := core.Must(core.New(store, often.limit())), core.Must(core.New(store, rare.limit(), often.limit()))
		passed.start = time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = alone.Wait(context.Background(), "u", "a") })
		}
		synctest.Wait()
		for range 4 {
			all.Go(func() {
				if d, err := both.Wait(context.Background(), "u", "a"); err == nil && d.Allowed {
					passed.add(1)
				}
			})
			time.Sleep(5 * sec)
		}
		all.Wait()
	})
	if len(passed.all) != 4 || rare.exceeded(passed.all) {
		t.Errorf("%s let pass %v", rare.limit(), passed.all)
	}

	quick := rule{kind: bucket, max: 10, n: 1, d: 10_000}
	passed = passages{}
	f.bubble(t, func(store core.Store) {
		slow := core.Funnel(10, core.Every(sec))
		alone, both := core.Must(core.New(store, quick.limit())), core.Must(core.New(store, slow, quick.limit()))
		passed.start = time.Now()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if d, err := both.WaitN(context.Background(), "v", "a", 10); err == nil && d.Allowed {
					passed.add(10)
				}
			})
			synctest.Wait()
		}
		time.Sleep(10*sec - usec)
		if d, err := alone.AllowN(context.Background(), "v", "a", 10); err == nil && d.Allowed {
			passed.add(10)
		}
		all.Wait()
	})
	if len(passed.all) != 3 || quick.exceeded(passed.all) {
		t.Errorf("%s let pass %v", quick.limit(), passed.all)
	}
}

// handover is how long before its turn core lets the next caller of a process ask.
const handover = 10 * ms

// Many callers of one process or two wait, and all leave at once. Their reserved turns come
// back: the next caller waits only for the actions that have passed. A turn is lost only if
// one of another process, or of a caller who was about to ask, depends on it.
func crowdThatLeaves(t *testing.T, f Fixture) {
	f.refunds(t)
	f.random(t, func(rt *rapid.T, run int) {
		user := fmt.Sprint("u", run)
		r := rule{kind: rapid.SampledFrom([]kind{funnel, bucket}).Draw(rt, "kind"), max: rapid.IntRange(1, 3).Draw(rt, "max"), n: 1}
		r.d = rapid.SampledFrom([]int64{20_000, 100_000, 1_000_000, 7_000_000}).Draw(rt, "d")
		every := us(r.d)
		processes := rapid.IntRange(1, 2).Draw(rt, "processes")
		pauses := rapid.SliceOfN(rapid.Int64Range(0, r.d/2), 1, 40).Draw(rt, "pauses")
		lasts := us(rapid.Int64Range(0, 5*r.d).Draw(rt, "lasts"))
		before := rapid.IntRange(0, r.max).Draw(rt, "before")

		var passed passages
		var waited, own, lost time.Duration
		var err error
		f.bubble(t, func(store core.Store) {
			limiters := []*core.Limiter{core.Must(core.New(store, r.limit())), core.Must(core.New(store, r.limit()))}
			passed.start = time.Now()
			for range before {
				if d, _ := limiters[0].Allow(context.Background(), user, "a"); d.Allowed {
					passed.add(1)
				}
			}
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			var crowd sync.WaitGroup
			for i, pause := range pauses {
				time.Sleep(us(pause))
				crowd.Go(func() {
					if d, err := limiters[i%processes].Wait(ctx, user, "a"); err == nil && d.Allowed {
						passed.add(1)
					}
				})
			}
			time.Sleep(lasts)
			leave()
			crowd.Wait()
			now := time.Since(passed.start)
			own = max(0, debt(passed.all, every, now)+every-time.Duration(r.max)*every)
			lost = time.Duration(processes-1) * every
			if own <= handover {
				lost += time.Duration(processes) * every
			}
			_, err = limiters[0].Wait(context.Background(), user, "a")
			waited = time.Since(passed.start) - now
		})
		if err != nil || waited < own || waited > own+lost {
			rt.Fatalf("%s, after %v passed: the next caller waited %v, not %v, and at most %v of lost turns; %v",
				r.limit(), passed.all, waited, own, lost, err)
		}
	})
}

// If the callers before it leave, a caller at the end of a queue passes at the turn of the first
// one who canceled.
func stayingCallerMovesUp(t *testing.T, f Fixture) {
	f.refunds(t)
	f.bubble(t, func(store core.Store) {
		l := core.Must(core.New(store, core.Funnel(1, core.Every(sec))))
		if d, err := l.Allow(context.Background(), "u", "a"); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		ctx, leave := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = l.Wait(ctx, "u", "a") })
			synctest.Wait()
		}
		start := time.Now()
		all.Go(func() {
			if d, err := l.Wait(context.Background(), "u", "a"); err != nil || !d.Allowed || time.Since(start) != sec {
				t.Errorf("the caller that stayed waited %v: %s, %v", time.Since(start), show(d), err)
			}
		})
		synctest.Wait()
		time.Sleep(500 * ms)
		leave()
		all.Wait()
	})
}

// Callers who stay, each behind callers who leave, get turns of their own: two of them never
// pass together.
func turnsGivenBack(t *testing.T, f Fixture) {
	var passed passages
	f.bubble(t, func(store core.Store) {
		processes := []*core.Limiter{core.Must(core.New(store, core.Funnel(1, core.Every(sec)))), core.Must(core.New(store, core.Funnel(1, core.Every(sec))))}
		passed.start = time.Now()
		var all sync.WaitGroup
		wait := func(ctx context.Context, i int) {
			all.Go(func() {
				if d, err := processes[i%2].Wait(ctx, "u", "a"); err == nil && d.Allowed {
					passed.add(1)
				}
			})
			synctest.Wait()
		}
		wait(context.Background(), 0)
		for i := range 5 {
			ctx, leave := context.WithCancel(context.Background())
			for n := range 9 - i {
				wait(ctx, n)
			}
			wait(context.Background(), i)
			leave()
			synctest.Wait()
		}
		all.Wait()
	})
	if len(passed.all) != 6 {
		t.Errorf("%d passed of the 6 that stayed", len(passed.all))
	}
	for i := 1; i < len(passed.all); i++ {
		if passed.all[i].at-passed.all[i-1].at < sec {
			t.Fatalf("they passed at %v", passed.all)
		}
	}
}

func turnsAtTheDeadline(t *testing.T, f Fixture) {
	f.bubble(t, func(store core.Store) {
		for _, l := range []core.Limit{core.Funnel(1, core.Every(time.Minute)), core.TokenBucket(1, core.Every(time.Minute)), core.SlidingWindow(1, time.Minute)} {
			for after, comes := range map[time.Duration]bool{-usec: false, 0: false, usec: true} {
				user := fmt.Sprint(l, after)
				limiter := core.Must(core.New(store, l))
				if d, err := limiter.Allow(context.Background(), user, "a"); err != nil || !d.Allowed {
					t.Error(d, err)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute+after)
				start := time.Now()
				d, err := limiter.Wait(ctx, user, "a")
				cancel()
				waited := time.Since(start)
				if d.Allowed != comes || errors.Is(err, core.ErrRefused) == comes || comes && (waited != time.Minute || d.ResetAfter != time.Minute) || !comes && waited != 0 {
					t.Errorf("%s, with a deadline %v after the turn: after %v %s, %v", l, after, waited, show(d), err)
				}
			}
		}
	})
	// The turn of a caller in a queue: of a window it is known only that it is not before the first one's.
	for _, tt := range []struct {
		l    core.Limit
		turn time.Duration
	}{{core.Funnel(1, core.Every(time.Minute)), 3 * time.Minute}, {core.SlidingWindow(1, time.Minute), time.Minute}} {
		f.bubble(t, func(store core.Store) {
			limiter := core.Must(core.New(store, tt.l))
			user := "queue of " + tt.l.Identity()
			if d, err := limiter.Allow(context.Background(), user, "a"); err != nil || !d.Allowed {
				t.Error(d, err)
			}
			var all sync.WaitGroup
			defer all.Wait()
			for i := range 2 {
				all.Go(func() {
					if d, err := limiter.Wait(context.Background(), user, "a"); err != nil || !d.Allowed {
						t.Errorf("%s: caller %d: %s, %v", tt.l, i, show(d), err)
					}
				})
				synctest.Wait()
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), tt.turn)
			defer cancel()
			d, err := limiter.Wait(ctx, user, "a")
			if !errors.Is(err, core.ErrRefused) || d.RetryAfter != tt.turn || time.Since(start) != 0 {
				t.Errorf("%s: the third, with its turn at the deadline: after %v %s, %v", tt.l, time.Since(start), show(d), err)
			}
		})
	}
}

// A limit that records refusals records one that Wait returns, and none that it waits for.
func waitIsNoAttempt(t *testing.T, f Fixture) {
	policy := core.BanPolicy{Refusals: 2, Within: time.Hour, Bans: []time.Duration{time.Hour}}
	for _, l := range []core.Limit{
		core.SlidingWindow(1, time.Second), core.FixedWindow(1, time.Second), core.Funnel(1, core.Every(time.Second)),
		core.ElasticWindow(1, time.Second), core.SlidingWindow(1, time.Second).CountRefused(),
	} {
		f.bubble(t, func(store core.Store) {
			user := "waits for " + l.Identity()
			limiter := core.Must(core.Must(core.New(store, l)).With(policy))
			start := time.Now()
			for i := range 4 {
				if d, err := limiter.Wait(context.Background(), user, "a"); err != nil || !d.Allowed {
					t.Errorf("%s: action %d: %s, %v", l, i, show(d), err)
				}
				time.Sleep(300 * time.Millisecond)
			}
			if took := time.Since(start); took != 3300*time.Millisecond {
				t.Errorf("%s: four actions took %v", l, took)
			}
			for i := range 2 {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				d, err := limiter.Wait(ctx, user, "a")
				cancel()
				if !errors.Is(err, core.ErrRefused) || (d.Reason == core.ReasonBanned) != (i == 1) {
					t.Errorf("%s: refusal %d: %s, %v", l, i, show(d), err)
				}
			}
		})
	}
	// A shadow limit refuses nobody who could wait for it.
	for _, l := range []core.Limit{core.ElasticWindow(1, 10*sec), core.SlidingWindow(1, 10*sec).CountRefused()} {
		f.bubble(t, func(store core.Store) {
			limiter := core.Must(core.New(store, core.FixedWindow(100, time.Hour), l.Shadow()))
			for i, pause := range []time.Duration{0, 6 * sec, 6 * sec, 10 * sec} {
				time.Sleep(pause)
				d, err := limiter.Wait(context.Background(), "waits beside "+l.Identity(), "a")
				if shadowed := i == 1 || i == 2; err != nil || !d.Allowed || (d.Reason == core.ReasonShadowed) != shadowed {
					t.Errorf("beside the shadow of %s: action %d: %s, %v", l, i, show(d), err)
				}
			}
		})
	}
	f.bubble(t, func(store core.Store) {
		limiter := core.Must(core.Must(core.New(store, core.TokenBucket(10, core.Every(time.Second)).Initial(2), core.FixedWindow(1000, time.Hour))).With(policy))
		start := time.Now()
		if d, err := limiter.WaitN(context.Background(), "starts a bucket", "a", 5); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("a bucket that the first ask starts: after %v %s, %v", time.Since(start), show(d), err)
		}
	})
}
