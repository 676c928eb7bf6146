package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A load says how long a worker pauses before its next action, some time after the start.
type load struct {
	name    string
	workers int
	pause   func(r *rand.Rand, at time.Duration) time.Duration
	costs   int // of an action, 1 to this
}

const ms = time.Millisecond

// regular acts every so often, and random so often on the average.
func regular(every time.Duration) load {
	return load{fmt.Sprint("every ", every), 1, func(*rand.Rand, time.Duration) time.Duration { return every }, 1}
}

func random(every time.Duration) load {
	return load{fmt.Sprint("about every ", every), 1, func(r *rand.Rand, _ time.Duration) time.Duration {
		return time.Duration(r.ExpFloat64() * float64(every))
	}, 1}
}

// bursts acts so often at once, about as often as that.
func bursts(n int, every time.Duration) load {
	left := n
	return load{fmt.Sprintf("%d every %s", n, every), 1, func(r *rand.Rand, at time.Duration) time.Duration {
		if left--; left > 0 {
			return 0
		}
		left = n - n/10 + r.IntN(n/5+1)
		return every - at%every
	}, 1}
}

// onOff acts at a rate that changes all the time.
func onOff(on, off, every time.Duration) load {
	return load{fmt.Sprintf("every %s for %s, then %s without", every, on, off), 1, func(r *rand.Rand, at time.Duration) time.Duration {
		if in := at % (on + off); in > on {
			return on + off - in
		}
		return every
	}, 1}
}

// growing acts twice as often after each such time, until it begins anew.
func growing(double time.Duration) load {
	return load{fmt.Sprint("twice as often every ", double), 1, func(_ *rand.Rand, at time.Duration) time.Duration {
		return 40 * ms >> (at / double % 12)
	}, 1}
}

func many(l load, workers, costs int) load {
	l.name, l.workers, l.costs = fmt.Sprintf("%s, %d workers, costs to %d", l.name, workers, costs), workers, costs
	return l
}

// loads are many shapes of a load.
func loads() (all []load) {
	for _, every := range []time.Duration{ms / 100, ms / 20, ms / 3, 1 * ms, 3 * ms, 7 * ms, 12 * ms, 17 * ms, 24 * ms, 26 * ms, 33 * ms, 40 * ms, 49 * ms, 51 * ms} {
		all = append(all, regular(every), random(every))
	}
	for _, every := range []time.Duration{5, 13, 24, 26, 37, 49, 51, 55, 60, 75, 99, 101, 150, 300, 1000} {
		for _, n := range []int{2, 3, 10, 100, 450} {
			all = append(all, bursts(n, every*ms))
		}
	}
	for _, on := range []time.Duration{1, 5, 20, 49, 51, 100, 300} {
		for _, off := range []time.Duration{5, 26, 51, 80, 120, 300} {
			for _, every := range []time.Duration{ms / 20, ms, 9 * ms} {
				all = append(all, onOff(on*ms, off*ms, every))
			}
		}
	}
	for _, double := range []time.Duration{5, 20, 60, 200} {
		all = append(all, growing(double*ms))
	}
	all = append(all, many(random(5*ms), 64, 1), many(random(5*ms), 8, 9), many(random(50*ms), 64, 40), many(regular(10*ms), 64, 1), many(onOff(20*ms, 60*ms, ms), 64, 5))
	return all
}

// A usage is what came of a load.
type usage struct {
	asked, passed, refused int
	longest                time.Duration // a decision
	commands               []time.Time
	err                    error // of the recount
}

// most returns how many commands were sent in some interval of that length.
func (u *usage) most(length time.Duration) (most int) {
	first := 0
	for i, at := range u.commands {
		for ; at.Sub(u.commands[first]) >= length; first++ {
		}
		most = max(most, i-first+1)
	}
	return most
}

// try puts a load for some seconds on a process that leases, or directly on the server.
func try(t *testing.T, limit core.Limit, recount recount, l load, leases bool) (u usage) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil), trip: 250 * time.Microsecond}
		lim := core.Must(core.New(s.store, limit))
		if leases {
			lim = core.Must(core.New(s.process(), limit))
		}
		var mu sync.Mutex
		var actions []action
		var wg sync.WaitGroup
		start := time.Now()
		for w := range l.workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(w)))
				for time.Since(start) < 2*second {
					time.Sleep(l.pause(r, time.Since(start)))
					begun, at, cost := time.Now(), time.Now(), 1+r.IntN(l.costs)
					d, err := lim.AllowN(context.WithValue(t.Context(), instantKey{}, &at), "everybody", "call", cost)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					u.asked += cost
					u.longest = max(u.longest, time.Since(begun))
					switch {
					case !d.Allowed:
						u.refused += cost
					case d.Source == core.SourceLease:
						at = time.Now()
						fallthrough
					default:
						u.passed += cost
						actions = append(actions, action{at, int64(cost)})
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute) // leases end
		s.mu.Lock()
		defer s.mu.Unlock()
		slices.SortFunc(s.at, time.Time.Compare)
		slices.SortStableFunc(actions, func(a, b action) int { return a.at.Compare(b.at) })
		u.commands, u.err = s.at, recount(actions, s.charges)
	})
	return u
}

// Whatever the load, a process sends at most 40 commands in any second, or with a shorter lease than 50 ms
// in any 20 leases. Far from the limit it refuses nothing, and nobody waits for longer than a lease. Near the
// limit it refuses little of what the server would let pass.
func TestCommandsOfAnyLoad(t *testing.T) {
	tests := []struct {
		limit   core.Limit
		lease   time.Duration
		recount recount
		far     bool // from the limit, always
	}{
		{core.Funnel(1e6, core.Per(1e6, second)), 50 * ms, meter(1e6, 1e6, second), true},
		{core.Funnel(1e6, core.Per(1e6, second)), 5 * ms, meter(1e6, 1e6, second), true},
		{core.FixedWindow(1e7, time.Hour), 300 * ms, fixed(1e7, time.Hour), true},
		{core.Funnel(10_000, core.Per(10_000, second)), 50 * ms, meter(10_000, 10_000, second), false},
		{core.FixedWindow(5_000, second), 50 * ms, fixed(5_000, second), false},
		{core.MovingWindow(200, second), 50 * ms, window(200, second), false},
	}
	for _, test := range tests {
		limit := test.limit.Leased(test.lease)
		t.Run(limit.String(), func(t *testing.T) {
			t.Parallel()
			every := 4
			switch {
			case os.Getenv("TAILCUT_LONG") != "":
				every = 1
			case testing.Short():
				every = 8
			}
			for i, l := range loads() {
				if i%every > 0 {
					continue
				}
				t.Run(l.name, func(t *testing.T) {
					u := try(t, limit, test.recount, l, true)
					if u.err != nil {
						t.Error(u.err)
					}
					if n := u.most(20 * min(test.lease, 50*ms)); n > 40 {
						t.Errorf("%d commands", n)
					}
					if test.far {
						if u.refused > 0 || u.longest > test.lease {
							t.Errorf("%d of %d refused; a decision took %s", u.refused, u.asked, u.longest)
						}
						return
					}
					v := try(t, limit, test.recount, l, false)
					if could := min(u.asked, v.passed); u.passed < could*7/10 {
						t.Errorf("%d passed, not %d", u.passed, could)
					}
				})
			}
		})
	}
}
