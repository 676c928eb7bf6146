package core_test

// Mistakes that cause no error, and what the log says of them.

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// said checks how many lines the log has, and that each has the code.
func said(t *testing.T, log interface{ String() string }, code string, times int) {
	t.Helper()
	if text := log.String(); strings.Count(text, "\n") != times || strings.Count(text, "code="+code) != times {
		t.Errorf("said, and not %d times %s:\n%s", times, code, text)
	}
}

func TestAFallbackThatIsNeverAsked(t *testing.T) {
	shared, see := scriptedStore(answers), func(context.Context, core.Observation) {}
	memory := func() core.Store { return memorystore.New(nil) }
	for name, c := range map[string]struct {
		store core.Store
		times int
	}{
		"a shared store":                   {shared, 0},
		"one that is observed and divided": {core.Observe(core.Divide(shared, 2), see), 0},
		"a fallback of shared stores":      {core.Fallback(shared, scriptedStore(answers)), 0},
		"in process":                       {memory(), 1},
		"in process and observed":          {core.Observe(memory(), see), 1},
		"in process and divided":           {core.Divide(memory(), 2), 1},
		"FailOpen":                         {core.FailOpen(shared), 1},
		"Shadow":                           {core.Shadow(shared), 1},
		"a fallback in process":            {core.Fallback(shared, memory()), 1},
	} {
		t.Run(name, func(t *testing.T) {
			log := logs(t)
			core.Fallback(c.store, memory())
			said(t, log, "fallback-unused", c.times)
		})
	}
}

// A slot whose lease ends before it is released is told of, once.
func TestASlotThatOutlivesItsLease(t *testing.T) {
	ctx := context.Background()
	take := func(l *core.Limiter) core.Decision {
		d, err := l.Allow(ctx, "alice", "stream")
		if err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		return d
	}
	for name, c := range map[string]struct {
		do    func(l *core.Limiter)
		times int
	}{
		"released": {func(l *core.Limiter) {
			for range 2000 {
				_ = l.Release(ctx, take(l))
			}
		}, 0},
		"released late": {func(l *core.Limiter) {
			d := take(l)
			time.Sleep(11 * time.Second)
			_ = l.Release(ctx, d)
		}, 1},
		"never released": {func(l *core.Limiter) { take(l); take(l) }, 1},
		"never released after many that were": {func(l *core.Limiter) {
			for range 3000 {
				_ = l.Release(ctx, take(l))
			}
			for range 100 {
				d := take(l)
				time.Sleep(time.Minute)
				_ = d
			}
		}, 1},
		"renewed": {func(l *core.Limiter) {
			d := take(l)
			for range 5 {
				time.Sleep(9 * time.Second)
				_ = l.Renew(ctx, d)
			}
			_ = l.Release(ctx, d)
		}, 0},
		"renewed and then dropped": {func(l *core.Limiter) {
			d := take(l)
			time.Sleep(9 * time.Second)
			_ = l.Renew(ctx, d)
		}, 1},
		"released by several subjects": {func(l *core.Limiter) {
			d, err := core.All(ctx, l.For("alice", "stream"), l.For("bob", "stream"))
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			_ = l.Release(ctx, d)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := logs(t)
				core.ForgetWarning()
				c.do(core.Must(core.New(memorystore.New(nil), core.InFlight(5).Lease(10*time.Second))))
				time.Sleep(time.Minute)
				synctest.Wait()
				said(t, log, "slot-outlived", c.times)
			})
		})
	}
}

// A swapper decides each charge twice, as a store does whose compare-and-swap has failed.
type swapper struct{ core.Store }

func (s swapper) Unwrap() core.Store { return s.Store }

func (s swapper) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	entries, now := make([]machine.Entry, len(c.Limits)), time.Now().UnixMicro()
	c.Commit(new(core.Decision), entries, now, c.Check(entries, now))
	return s.Store.Take(ctx, c)
}

// What a store has decided and not kept takes no slot.
func TestASlotThatTheStoreHasNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logs(t)
		core.ForgetWarning()
		l := core.Must(core.New(swapper{memorystore.New(nil)}, core.InFlight(5)))
		d, err := l.Allow(t.Context(), "alice", "stream")
		if err != nil || !d.Allowed || l.Release(t.Context(), d) != nil {
			t.Errorf("%+v, %v", d, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		said(t, log, "slot-outlived", 0)
	})
}

// A caller of Wait who has set no deadline, and whose turn is far away, is told of once for a limiter.
func TestAWaitWithoutADeadline(t *testing.T) {
	for name, c := range map[string]struct {
		limits   []core.Limit
		deadline time.Duration // 0 is none
		wait     func(ctx context.Context, l *core.Limiter) (core.Decision, error)
		times    int
	}{
		"a funnel's turn":     {[]core.Limit{core.Funnel(1, core.Every(2*time.Hour))}, 0, nil, 1},
		"a window's":          {[]core.Limit{core.FixedWindow(1, 2*time.Hour)}, 0, nil, 1},
		"a turn that is near": {[]core.Limit{core.FixedWindow(1, 59*time.Minute)}, 0, nil, 0},
		"with a deadline":     {[]core.Limit{core.FixedWindow(1, 2*time.Hour)}, 7 * time.Hour, nil, 0},
		"with a wait that is set": {[]core.Limit{core.FixedWindow(1, 2*time.Hour)}, 0, func(ctx context.Context, l *core.Limiter) (core.Decision, error) {
			return core.WaitAll(ctx, 5*time.Hour, l.For("alice", "export"))
		}, 0},
		"an action within another": {[]core.Limit{core.FixedWindow(1, 2*time.Hour), core.InFlight(5).Lease(24 * time.Hour)}, 0, func(ctx context.Context, l *core.Limiter) (core.Decision, error) {
			d, _ := l.Allow(ctx, "alice", "export")
			return core.WaitAll(ctx, 2*365*24*time.Hour, l.For("alice", "export").Within(l, d))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := logs(t)
				l := core.Must(core.New(memorystore.New(nil), c.limits...))
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				for range 4 {
					var err error
					if c.wait != nil {
						_, err = c.wait(ctx, l)
					} else {
						_, err = l.Wait(ctx, "alice", "export")
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				said(t, log, "long-wait", c.times)
			})
		})
	}
}
