package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore/internal/lease"
)

var wide = core.MovingWindow(10_000, time.Minute).Leased(100 * time.Millisecond)

// ramp lets actions pass until the process holds units.
func ramp(t *testing.T, lim *core.Limiter) {
	t.Helper()
	for range 10 {
		if d, err := lim.Allow(t.Context(), "alice", "call"); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
}

// A caller who leaves while units are taken for it leaves at once, and is charged nothing: the units
// are given back.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil), trip: time.Millisecond}
		lim := core.Must(core.New(s.process(), wide))
		ramp(t, lim)
		time.Sleep(90 * time.Millisecond) // the lease is over soon, and much was used
		s.mu.Lock()
		s.trip = 20 * time.Millisecond
		s.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		used, err := lim.Peek(t.Context(), "alice", "call")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if d, err := lim.Allow(ctx, "alice", "call"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Millisecond {
			t.Errorf("%+v, %v after %s", d, err, time.Since(begun))
		}
		time.Sleep(time.Second)
		if d, err := lim.Peek(t.Context(), "alice", "call"); err != nil || d.Remaining != used.Remaining {
			t.Errorf("%d remain, and %d before; %v", d.Remaining, used.Remaining, err)
		}
	})
}

// If the server is further away than a lease is long, it decides, and no caller waits for much longer
// than its answer.
func TestFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil), trip: 60 * time.Millisecond}
		p := s.process()
		lim := core.Must(core.New(p, wide))
		var longer, passed atomic.Int64
		for range 100 {
			for range 5 {
				go func() {
					begun := time.Now()
					d, err := lim.Allow(t.Context(), "alice", "call")
					if err != nil || !d.Allowed || d.Source != core.SourceStore {
						t.Errorf("%+v, %v", d, err)
					}
					passed.Add(1)
					if time.Since(begun) > 2*s.trip {
						longer.Add(1)
					}
				}()
				synctest.Wait()
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if taken, returned, lost := p.Counts(); longer.Load() > 200 || taken != returned || lost != 0 {
			t.Errorf("%d waited longer; %d units were taken, %d returned, %d lost", longer.Load(), taken, returned, lost)
		}
		d, err := lim.Peek(t.Context(), "alice", "other")
		if err != nil || d.Remaining != 10_000 || passed.Load() != 500 {
			t.Errorf("%+v, %v; %d passed", d, err, passed.Load())
		}
	})
}

// The timeout holds for a caller who waits for a fetch and then asks the server.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil), trip: time.Millisecond}
		p := s.process()
		lim := core.Must(core.New(p, wide))
		ramp(t, lim)
		time.Sleep(time.Minute / 2)
		late := errors.New("late")
		calls := 0
		slow := lease.New(slowly{s, func(ctx context.Context) error {
			if calls++; calls > 5 {
				select {
				case <-time.After(700 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		}}, time.Second, late, lease.Room)
		c := core.Charge{User: "bob", Action: "call", Terms: &core.Terms{Limits: []core.Limit{wide}}}
		c.Cost = 1
		for range 50 {
			begun := time.Now()
			_, _, err := slow.Take(t.Context(), c)
			if took := time.Since(begun); took > time.Second || err != nil && !errors.Is(err, late) {
				t.Errorf("%v after %s", err, took)
			}
		}
		time.Sleep(time.Minute)
	})
}

// A slowly deciding server does something before each decision.
type slowly struct {
	*server
	before func(context.Context) error
}

func (s slowly) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if err := s.before(ctx); err != nil {
		return core.Decision{}, nil, err
	}
	return s.store.Take(ctx, c)
}

// The server decides a cost that never passes: the process would say that it may come again.
func TestNever(t *testing.T) {
	c := core.Charge{User: "alice", Action: "call", Terms: &core.Terms{Limits: []core.Limit{wide}}}
	for cost, want := range map[int64]time.Duration{10_000: 100 * time.Millisecond, 10_001: 0} {
		c.Cost = cost
		if d := lease.Of(&c); d != want {
			t.Errorf("units for a cost of %d are held for %s", cost, d)
		}
	}
}

// A table has room for so many users; further ones are decided by the server, until others are idle.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil)}
		table := lease.New(s, time.Second, nil, 128)
		shared := core.Charge{Action: "call", Cost: 1, Terms: &core.Terms{Limits: []core.Limit{wide}}}
		ask := func(user int) core.Decision {
			c := shared
			c.User = fmt.Sprint(user)
			d, _, err := table.Take(t.Context(), c)
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			return d
		}
		byLease := func(from int) (users int) {
			for user := from; user < from+1000; user++ {
				for n := range 20 {
					if d := ask(user); d.Source == core.SourceLease {
						users++
						break
					} else if d.Remaining != 10_000-n-1 {
						t.Fatalf("%+v", d)
					}
				}
			}
			return users
		}
		if n := byLease(0); n < 64 || n > 128 {
			t.Errorf("%d users had leases, with room for 128", n)
		}
		time.Sleep(time.Hour)
		if n := byLease(1000); n < 64 || n > 128 {
			t.Errorf("%d other users had leases later", n)
		}
		time.Sleep(time.Minute)
	})
}

// A suspended machine stops the monotonic clock, and not the time of day: see grant.ended. In a bubble
// both agree, so a lease lasts as long as it says, and not longer.
func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil), trip: time.Millisecond}
		lim := core.Must(core.New(s.process(), wide))
		ramp(t, lim)
		var last time.Time
		for range 1000 {
			before := s.sent()
			d, err := lim.Allow(t.Context(), "alice", "call")
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			if s.sent() != before {
				last = time.Now()
			} else if since := time.Since(last); !last.IsZero() && since > 100*time.Millisecond {
				t.Fatalf("an action passed %s after the last charge", since)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
	})
}

// A decision by a lease allocates nothing.
func TestAllocations(t *testing.T) {
	s := &server{store: memorystore.New(nil)}
	limit := core.MovingWindow(50_000_000, time.Hour).Leased(time.Minute)
	table := lease.New(s, time.Second, nil, lease.Room)
	c := core.Charge{User: "alice", Action: "call", Terms: &core.Terms{Limits: []core.Limit{limit}}}
	c.Cost = 1
	ask := func() {
		if d, _, err := table.Take(t.Context(), c); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	for range 10_000 {
		ask()
	}
	if n := testing.AllocsPerRun(1000, ask); n >= 1 {
		t.Errorf("%v allocations a decision", n)
	}
}

// Far from the limit a process sends two commands in a lease, however long the lease and high the load.
func TestCommandsOfALease(t *testing.T) {
	for _, length := range []time.Duration{5, 20, 50, 200} {
		length *= time.Millisecond
		for _, every := range []time.Duration{length / 4, length / 40, length / 4000} {
			t.Run(fmt.Sprint(length, " ", every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &server{store: memorystore.New(nil), trip: 250 * time.Microsecond}
					lim := core.Must(core.New(s.process(), core.Funnel(1e8, core.Per(1e8, 10*time.Second)).Leased(length)))
					const leases = 20
					var before int
					for begun := time.Now(); time.Since(begun) < 2*leases*length; time.Sleep(every) {
						if d, err := lim.Allow(t.Context(), "alice", "call"); err != nil || !d.Allowed {
							t.Fatalf("%+v, %v", d, err)
						}
						if time.Since(begun) <= leases*length {
							before = s.sent()
						}
					}
					if sent := s.sent() - before; sent > 2*leases+1 {
						t.Errorf("%d commands in %d leases", sent, leases)
					}
				})
			})
		}
	}
}

// A leftover that waits for its return is dropped with the rest: after a Reset there is nothing to give back.
func TestDropWhileAReturnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil)}
		p := s.process()
		lim := core.Must(core.New(p, wide))
		ramp(t, lim)
		time.Sleep(99 * time.Millisecond)
		for range 4 { // as many commands as may be sent at once
			if d, err := lim.AllowN(t.Context(), "alice", "call", 1500); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		time.Sleep(2 * time.Millisecond) // the lease is over
		before := s.sent()
		if err := lim.Reset(t.Context(), "alice", "call"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if taken, returned, lost := p.Counts(); returned != 0 || lost == 0 || lost > taken || s.sent() != before {
			t.Errorf("%d units were taken, %d returned and %d lost in %d commands", taken, returned, lost, s.sent()-before)
		}
	})
}
