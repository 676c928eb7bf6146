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
