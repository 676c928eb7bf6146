package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// amends is a memorystore whose Amend is amend.
type amends struct {
	*memorystore.Store
	amend func(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error)
}

func (s *amends) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}

func (s *amends) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	return s.amend(ctx, r, a)
}

var errLost = errors.New("the answer is lost")

// "A slot is freed once, even if Release is called again."
func TestAReleaseMayBeTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store, lost := t.Context(), &amends{Store: memorystore.New(nil)}, 0
		store.amend = func(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
			done, err := store.Store.Amend(ctx, r, a)
			if lost++; lost <= 2 {
				return false, errLost
			}
			return done, err
		}
		l := core.Must(core.New(store, core.InFlight(1)))
		first, _ := l.Allow(ctx, "alice", "stream")
		if err := l.Renew(ctx, first); err != errLost {
			t.Error(err)
		}
		if err := l.Release(ctx, first); err != errLost {
			t.Error(err)
		}
		time.Sleep(time.Microsecond)
		if second, _ := l.Allow(ctx, "alice", "stream"); !second.Allowed {
			t.Error("the release whose answer was lost freed nothing")
		}
		if err := l.Release(ctx, first); err != nil {
			t.Error(err)
		}
		if third, _ := l.Allow(ctx, "alice", "stream"); third.Allowed {
			t.Error("the second try freed another's slot")
		}
	})
}

// "After an error of the store or of ctx, Release is tried again in the background, about once a
// second, until the lease has ended."
func TestAFailedReleaseIsTriedAgain(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		panics bool
		outage time.Duration
		freed  bool
	}{
		"a short outage":           {t.Context(), false, time.Second / 16, true},
		"a long outage":            {t.Context(), false, 20 * time.Minute, true},
		"longer than the lease":    {t.Context(), false, 2 * time.Hour, false},
		"a store that panics":      {t.Context(), true, time.Minute, true},
		"a context that has ended": {ended, false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				var failed, amended atomic.Int32
				s := &amends{Store: memorystore.New(nil)}
				s.amend = func(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
					if !down.Load() {
						amended.Add(1)
						return s.Store.Amend(ctx, r, a)
					}
					if failed.Add(1); c.panics {
						panic("down")
					}
					return false, errLost
				}
				l := core.Must(core.New(s, core.InFlight(1).Lease(time.Minute), core.InFlight(1).Lease(time.Hour).PerUser()))
				d, err := l.Allow(t.Context(), "alice", "stream")
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				down.Store(c.outage > 0)
				for range 3 { // the tries of a decision are one
					func() {
						defer func() { _ = recover() }()
						if err := l.Release(c.ctx, d); err == nil {
							t.Error("no error")
						}
					}()
				}
				time.Sleep(c.outage)
				synctest.Wait()
				if most := 3 + 10 + int(min(c.outage, time.Hour)/time.Second); int(failed.Load()) > most {
					t.Errorf("%d have failed, more than %d", failed.Load(), most)
				}
				down.Store(false)
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait()
				if freed := amended.Load() > 0; freed != c.freed {
					t.Errorf("it is released after the outage: %t, want %t", freed, c.freed)
				}
				if c.freed && amended.Load() != 1 {
					t.Errorf("it is released %d times", amended.Load())
				}
				if got, _ := l.Allow(t.Context(), "alice", "stream"); !got.Allowed {
					t.Error("the slot is not free")
				}
			})
		})
	}
}

func TestAReleaseWhoseContextEndsDuringARenewalIsMadeAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, renews := &amends{Store: memorystore.New(nil)}, make(chan struct{})
		s.amend = func(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
			if a.Verb == machine.VerbRenew {
				<-renews
			}
			return s.Store.Amend(ctx, r, a)
		}
		l := core.Must(core.New(s, core.InFlight(1)))
		d, _ := l.Allow(t.Context(), "alice", "stream")
		go func() { _ = l.Renew(context.Background(), d) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx, d); err != context.Canceled {
			t.Error(err)
		}
		time.Sleep(time.Second)
		close(renews)
		time.Sleep(time.Second)
		if d, _ := l.Allow(t.Context(), "alice", "stream"); !d.Allowed {
			t.Error("the slot is not free")
		}
	})
}

func TestReleaseAsksWithTheCallersContext(t *testing.T) {
	l, d := slots(t, memorystore.New(nil), core.InFlight(1))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Release(done, d); !errors.Is(err, context.Canceled) {
		t.Errorf("Release with a context that is done: %v", err)
	}
	var none context.Context
	if err := l.Release(none, d); !errors.Is(err, core.ErrConfig) {
		t.Errorf("Release without a context: %v", err)
	}
	if err := l.Release(t.Context(), d); err != nil {
		t.Errorf("Release after that: %v", err)
	}
	if d, _ := l.Peek(t.Context(), "alice", "stream"); !d.Allowed {
		t.Error("the slot is not free")
	}
	var zero core.Limiter
	if err := zero.Release(t.Context(), d); !errors.Is(err, core.ErrConfig) {
		t.Errorf("a zero Limiter: %v", err)
	}
}
