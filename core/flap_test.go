package core_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// flapping is a store that fails for some time, and then answers for some. It decides about nobody together.
// It gives back what All has charged, since that is not tried again.
type flapping struct {
	*memorystore.Store
	r        *rand.Rand
	down     bool
	deciding bool // in All
}

func (*flapping) Joins(string, string) bool { return false }

func (s *flapping) fails() bool {
	if s.r.IntN(4) == 0 {
		s.down = !s.down
	}
	return s.down
}

func (s *flapping) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if c.Mode == machine.ModeCharge && s.fails() {
		return core.Decision{}, nil, errDown
	}
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}

func (s *flapping) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	if a.Verb != machine.VerbRefund && !s.deciding && s.fails() {
		return false, errDown
	}
	return s.Store.Amend(ctx, r, a)
}

// "Release asks the store that made the decision."
// The subjects of a decision are charged in two stores, of which one flaps. Decisions are renewed, settled and
// released, each more than once. In the end the stores together count what was settled, and no slot is taken.
func TestAllIsSettledAndReleasedWhereItWasCharged(t *testing.T) {
	logs(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	mixed := 0
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			first, second := &flapping{Store: memorystore.New(nil), r: r}, memorystore.New(nil)
			limiter := func(s core.Store, max int) *core.Limiter {
				return core.Must(core.New(s, core.MovingWindow(10*max, time.Hour), core.InFlight(max).Lease(time.Hour), core.FixedWindow(10*max, time.Hour).Shadow()))
			}
			store := core.Fallback(first, second)
			user, org := limiter(store, 6), limiter(store, 8)
			var held []core.Decision
			used := 0
			end := func() {
				d, actual := held[0], 1+r.IntN(4) // the one that opened a FixedWindow cannot be given back whole
				held = held[1:]
				if err := user.Settle(t.Context(), d, actual); err != nil {
					t.Fatal(err)
				}
				if err := org.Settle(t.Context(), d, 9); err != nil { // it does nothing
					t.Fatal(err)
				}
				used += actual
				for done := 0; done < 2; {
					if org.Release(t.Context(), d) == nil {
						done++
					}
				}
				if err := user.Renew(t.Context(), d); err != core.ErrLeaseEnded {
					t.Fatal(err)
				}
			}
			for range 60 {
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				switch r.IntN(4) {
				case 0, 1:
					first.deciding = true
					d, err := core.All(t.Context(), user.For("alice", "chat").Cost(2), org.For("org", "chat").Cost(2))
					first.deciding = false
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						held = append(held, d)
					}
				case 2:
					if len(held) > 0 {
						_ = org.Renew(t.Context(), held[r.IntN(len(held))])
					}
				default:
					if len(held) > 0 {
						end()
					}
				}
			}
			for len(held) > 0 {
				end()
			}
			for _, who := range []string{"alice", "org"} {
				counted, shadow, parts := 0, 0, 0
				for _, s := range []core.Store{first.Store, second} {
					l, max := limiter(s, 20), 200 // enough that no debt is cut from the count
					status, err := l.Status(t.Context(), who, "chat")
					if err != nil || status.Limits[1].Remaining != 20 {
						t.Errorf("%s: %+v, %v", who, status, err)
					}
					n := max - status.Limits[0].Remaining
					counted, shadow = counted+n, shadow+max-status.Limits[2].Remaining
					if n > 0 {
						parts++
					}
				}
				if counted != used || shadow != used {
					t.Errorf("%s: %d and %d are counted, and %d were settled", who, counted, shadow, used)
				}
				if parts == 2 {
					mixed++
				}
			}
		})
	}
	if mixed == 0 {
		t.Error("no run was decided by both stores")
	}
}
