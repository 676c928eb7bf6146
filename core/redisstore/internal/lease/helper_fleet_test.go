package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore/internal/lease"
)

// A server is a store that all processes share, some time away. A memorystore decides as Redis does.
type server struct {
	store    *memorystore.Store
	trip     time.Duration // to the server, and as long back
	declared core.Limit    // if not zero, the server checks this instead of the leased limit

	mu       sync.Mutex
	commands int
	at       []time.Time // of the commands
	charges  []time.Time
}

type instantKey struct{}

func (s *server) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.sends()
	s.travel()
	if s.declared != (core.Limit{}) {
		t := *c.Terms
		t.Limits = []core.Limit{s.declared}
		c.Terms = &t
	}
	d, r, err := s.store.Take(context.WithoutCancel(ctx), c)
	if at, ok := ctx.Value(instantKey{}).(*time.Time); ok {
		*at = time.Now()
	}
	s.mu.Lock()
	if d.Allowed && c.Mode.NeedsRoom() {
		s.charges = append(s.charges, time.Now())
	}
	s.mu.Unlock()
	s.travel()
	return d, r, err
}

func (s *server) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	s.sends()
	s.travel()
	defer s.travel()
	return s.store.Amend(ctx, r, a)
}

// sends notes a command.
func (s *server) sends() {
	s.mu.Lock()
	s.commands++
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
}

// travel takes as long as the way to the server.
func (s *server) travel() {
	s.mu.Lock()
	trip := s.trip
	s.mu.Unlock()
	time.Sleep(trip)
}

// sent is how many commands the server has got.
func (s *server) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands
}

func (s *server) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return s.store.Reset(ctx, user, action, limits)
}

// A process is a store with a table of its own.
type process struct {
	*lease.Table
	server *server
}

func (s *server) process() *process {
	return &process{lease.New(s, time.Second, context.DeadlineExceeded, lease.Room), s}
}

func (p *process) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	return p.server.Amend(ctx, r, a)
}

// An action is what passed, and when: for a decision of the server at the server's instant, and
// otherwise when the process decided.
type action struct {
	at   time.Time
	cost int64
}

// A recount says in which interval actions exceed a limit as it is declared.
type recount func(actions []action, charges []time.Time) error

func window(n int64, period time.Duration) recount {
	return func(actions []action, _ []time.Time) error {
		first, sum := 0, int64(0)
		for _, a := range actions {
			sum += a.cost
			for ; !actions[first].at.After(a.at.Add(-period)); first++ {
				sum -= actions[first].cost
			}
			if sum > n {
				return fmt.Errorf("%d units in %s, to %s", sum, a.at.Sub(actions[first].at), a.at)
			}
		}
		return nil
	}
}

// meter counts in units times nanoseconds of the rate's period.
func meter(capacity, n int64, period time.Duration) recount {
	return func(actions []action, _ []time.Time) error {
		sum, least := int64(0), int64(0)
		for _, a := range actions {
			drained := n * a.at.Sub(actions[0].at).Nanoseconds()
			least = min(least, sum*int64(period)-drained)
			sum += a.cost
			if over := sum*int64(period) - drained - least - capacity*int64(period); over > 0 {
				return fmt.Errorf("%d more units than the capacity and the rate, at %s", over/int64(period), a.at)
			}
		}
		return nil
	}
}

func fixed(n int64, period time.Duration) recount {
	return func(actions []action, charges []time.Time) error {
		slices.SortFunc(charges, time.Time.Compare)
		var end time.Time
		sum := int64(0)
		for _, at := range charges {
			if at.Before(end) {
				continue
			}
			opened := at
			end, sum = opened.Add(period), 0
			for _, a := range actions {
				if !a.at.Before(opened) && a.at.Before(end) {
					sum += a.cost
				}
			}
			if sum > n {
				return fmt.Errorf("%d units in the window that opened at %s", sum, opened)
			}
		}
		return nil
	}
}

// A fleet is processes that ask for one key.
type fleet struct {
	processes int
	workers   int
	pause     func(process int) time.Duration // of a worker, between two actions, on the average
	limit     core.Limit
	declared  core.Limit // if not zero, see server
	recount   recount
	lasts     time.Duration
	trip      time.Duration
	costs     int           // of an action, 1 to this
	refunds   int           // of a hundred actions
	gusts     time.Duration // if not 0, all workers act at once, so often
	storms    time.Duration // if not 0, all workers act without a pause for the last tenth of such a time
}

type result struct {
	actions  []action
	served   []int64 // by process
	asked    []int64
	commands int
	err      error // of the recount
}

func (f *fleet) run(t *testing.T) (res result) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil), trip: f.trip, declared: f.declared}
		var mu sync.Mutex
		res.served, res.asked = make([]int64, f.processes), make([]int64, f.processes)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range f.processes {
			p := s.process()
			lim := core.Must(core.Must(core.New(p, f.limit)).With(core.Refundable{}))
			for w := range f.workers {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), uint64(w)))
					pause := f.pause(i)
					for {
						switch {
						case f.gusts > 0 && r.IntN(20) == 0:
							time.Sleep(f.gusts - time.Since(start)%f.gusts)
						case f.gusts > 0, f.storms > 0 && time.Since(start)%f.storms > f.storms*9/10:
							time.Sleep(20 * time.Microsecond)
						default:
							time.Sleep(time.Duration(r.ExpFloat64() * float64(pause)))
						}
						if time.Since(start) > f.lasts {
							return
						}
						var at time.Time
						cost := 1 + r.IntN(max(f.costs, 1))
						d, err := lim.AllowN(context.WithValue(t.Context(), instantKey{}, &at), "everybody", "call", cost)
						if err != nil {
							t.Error(err)
							return
						}
						if d.Source == core.SourceLease {
							at = time.Now()
						}
						if d.Allowed && r.IntN(100) < f.refunds {
							time.Sleep(time.Duration(r.ExpFloat64() * float64(20*time.Millisecond)))
							if err := lim.Refund(t.Context(), d); err != nil {
								t.Error(err)
							}
							d.Allowed = false
						}
						mu.Lock()
						res.asked[i] += int64(cost)
						if d.Allowed {
							res.actions = append(res.actions, action{at, int64(cost)})
							res.served[i] += int64(cost)
						}
						mu.Unlock()
						if !d.Allowed && d.RetryAfter > f.lasts {
							return
						}
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(time.Minute) // leases end
		res.commands = s.sent()
		slices.SortStableFunc(res.actions, func(a, b action) int { return a.at.Compare(b.at) })
		res.err = f.recount(res.actions, s.charges)
	})
	return res
}

func (r *result) units() (n int64) {
	for _, a := range r.actions {
		n += a.cost
	}
	return n
}

// uneven lets a tenth of the processes ask ten times as often as the others.
func uneven(pause time.Duration) func(int) time.Duration {
	return func(process int) time.Duration {
		if process%10 == 0 {
			return pause / 10
		}
		return pause
	}
}
