package lease_test

import (
	"cmp"
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

func (s *server) take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
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
	if d.Allowed && c.Mode.Asks() {
		s.charges = append(s.charges, time.Now())
	}
	s.mu.Unlock()
	s.travel()
	return d, r, err
}

func (s *server) amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
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

// A process is a store with a table of its own.
type process struct {
	*lease.Table
	server *server
}

func (s *server) process() *process {
	return &process{server: s, Table: lease.New(lease.Server{
		Decide: s.take, Amend: s.amend, Timeout: time.Second, Late: context.DeadlineExceeded,
	}, lease.Room)}
}

func (p *process) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if d := lease.Of(&c); d > 0 {
		return p.Table.Take(ctx, &c, d)
	}
	return p.server.take(ctx, c)
}

func (p *process) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	p.Drop(user, action, limits)
	defer p.Drop(user, action, limits)
	return p.server.store.Reset(ctx, user, action, limits)
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

const second = time.Second

// Whatever the processes ask for, no interval has more actions than the limit as it is declared.
func TestFleetNeverExceedsTheLimit(t *testing.T) {
	lasts := second
	tests := []struct {
		name    string
		limit   core.Limit
		lease   time.Duration
		recount recount
	}{
		{"funnel", core.Funnel(10_000, core.Per(10_000, second)), 50 * time.Millisecond, meter(10_000, 10_000, second)},
		{"small funnel", core.Funnel(100, core.Per(700, second)), 7 * time.Millisecond, meter(100, 700, second)},
		{"bucket", core.TokenBucket(1000, core.Per(3000, second)), 30 * time.Millisecond, meter(1000, 3000, second)},
		{"moving window", core.MovingWindow(3000, second), 100 * time.Millisecond, window(3000, second)},
		{"short lease", core.MovingWindow(2000, second), time.Millisecond, window(2000, second)},
		{"fixed window", core.FixedWindow(3000, second), 100 * time.Millisecond, fixed(3000, second)},
		{"small window", core.MovingWindow(7, 100*time.Millisecond), 10 * time.Millisecond, window(7, 100*time.Millisecond)},
	}
	loads := []struct {
		name  string
		fleet fleet
	}{
		{"few", fleet{processes: 4, workers: 8, pause: uneven(5 * time.Millisecond), trip: 200 * time.Microsecond}},
		{"far", fleet{processes: 4, workers: 16, pause: uneven(5 * time.Millisecond), trip: 20 * time.Millisecond}},
		{"costs and refunds", fleet{processes: 6, workers: 8, pause: uneven(5 * time.Millisecond), trip: 300 * time.Microsecond, costs: 5, refunds: 20}},
		{"gusts", fleet{processes: 6, workers: 4, pause: uneven(second), gusts: 9 * time.Millisecond, trip: 100 * time.Microsecond}},
		{"storms", fleet{processes: 6, workers: 4, pause: uneven(10 * time.Millisecond), storms: 200 * time.Millisecond, trip: 100 * time.Microsecond}},
		{"idle", fleet{processes: 3, workers: 2, pause: uneven(40 * time.Millisecond), trip: 300 * time.Microsecond}},
	}
	for _, test := range tests {
		for _, load := range loads {
			t.Run(test.name+", "+load.name, func(t *testing.T) {
				t.Parallel()
				f := load.fleet
				f.limit, f.recount, f.lasts = test.limit.Leased(test.lease), test.recount, lasts
				r := f.run(t)
				if r.err != nil {
					t.Error(r.err)
				}
				var asked int64
				for _, n := range r.asked {
					asked += n
				}
				t.Logf("%d of %d units passed, in %d commands", r.units(), asked, r.commands)
			})
		}
	}
}

// Units that arrive when their window has ended do not mean that the server is far away: the next ones
// are taken in advance again.
func TestTheEndOfAWindowCostsFewCommands(t *testing.T) {
	f := fleet{
		processes: 1, workers: 8, pause: func(int) time.Duration { return time.Millisecond / 2 }, trip: 200 * time.Microsecond,
		limit: core.FixedWindow(100_000, second).Leased(50 * time.Millisecond), recount: fixed(100_000, second), lasts: 10 * second,
	}
	r := f.run(t)
	if r.err != nil || r.units() < 100_000 || r.commands > 60*10 {
		t.Errorf("%d units passed in %d commands in 10 seconds; %v", r.units(), r.commands, r.err)
	}
}

// If the server made no allowance for leases, units held by one process and the limit of another
// would exceed it. The recount finds that, and nothing with the allowance.
func TestRecountFindsAnExcess(t *testing.T) {
	tests := []struct {
		limit   core.Limit
		recount recount
	}{
		{core.Funnel(1000, core.Per(10_000, second)), meter(1000, 10_000, second)},
		{core.TokenBucket(1000, core.Per(10_000, second)), meter(1000, 10_000, second)},
		{core.MovingWindow(1000, 100*time.Millisecond), window(1000, 100*time.Millisecond)},
	}
	for _, test := range tests {
		for _, declared := range []core.Limit{{}, test.limit} {
			t.Run(fmt.Sprint(test.limit, " checked as ", declared), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &server{store: memorystore.New(nil), declared: declared}
					limit := test.limit.Leased(10 * time.Millisecond)
					holder := core.Must(core.New(s.process(), limit))
					var actions []action
					held := 0
					ask := func(most int, held bool) (n int) {
						for ; n < most; n++ {
							d, err := holder.Allow(t.Context(), "everybody", "call")
							if err != nil || !d.Allowed || held && d.Source != core.SourceLease {
								return n
							}
							actions = append(actions, action{time.Now(), 1})
						}
						return n
					}
					takeAll := func() {
						for {
							d, _, err := s.take(t.Context(), core.Charge{User: "everybody", Action: "call", Cost: 1, Terms: &core.Terms{Limits: []core.Limit{limit}}})
							if err != nil || !d.Allowed {
								return
							}
							actions = append(actions, action{time.Now(), 1})
						}
					}
					ask(25, false) // the process then holds some more
					time.Sleep(9 * time.Millisecond)
					takeAll()
					held = ask(1000, true)
					time.Sleep(91 * time.Millisecond)
					takeAll()
					err := test.recount(actions, nil)
					if held == 0 || (err != nil) != (declared != core.Limit{}) {
						t.Errorf("%d were held; the recount says: %v", held, err)
					}
				})
			})
		}
	}
}

// A hundred processes and a thousand, of which a tenth ask ten times as often: the limit is kept and
// used, nobody goes empty, and the server gets few commands.
func TestLargeFleet(t *testing.T) {
	limit := core.Funnel(10_000, core.Per(10_000, second)).Leased(50 * time.Millisecond)
	for _, n := range []int{100, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if testing.Short() && n > 100 {
				t.Skip("it takes some seconds")
			}
			t.Parallel()
			f := fleet{
				processes: n, workers: 4, pause: uneven(time.Duration(n) * 300 * time.Microsecond), trip: 250 * time.Microsecond,
				lasts: 4 * second, limit: limit, recount: meter(10_000, 10_000, second),
			}
			r := f.run(t)
			if r.err != nil {
				t.Error(r.err)
			}
			share := func(i int) float64 { return float64(r.served[i]) / float64(max(1, r.asked[i])) }
			var busy, quiet []int
			for i := range n {
				if i%10 == 0 {
					busy = append(busy, i)
				} else {
					quiet = append(quiet, i)
				}
			}
			least := func(of []int) int {
				return slices.MinFunc(of, func(a, b int) int { return cmp.Compare(r.served[a], r.served[b]) })
			}
			most := func(of []int) int {
				return slices.MaxFunc(of, func(a, b int) int { return cmp.Compare(r.served[a], r.served[b]) })
			}
			all := float64(9500 + 40_000)
			used := float64(r.units()) / all
			t.Logf("%d processes: %.1f %% of the limit used, %.0f commands a second", n, 100*used, float64(r.commands)/f.lasts.Seconds())
			for _, group := range []struct {
				name   string
				of     []int
				apart  int64 // the most served has at most so many times what the least served has
				served float64
			}{{"busy", busy, 2, 0.2}, {"quiet", quiet, 5, 0.4}} {
				a, b := least(group.of), most(group.of)
				t.Logf("%s processes: %d (%.0f %% of what it asked for) to %d (%.0f %%) units", group.name, r.served[a], 100*share(a), r.served[b], 100*share(b))
				if r.served[b] > group.apart*r.served[a] || share(a) < group.served || share(b) < group.served {
					t.Errorf("%s processes are served unfairly", group.name)
				}
			}
			if used < 0.97 {
				t.Errorf("%.1f %% of the limit used", 100*used)
			}
			if per := float64(r.commands) / f.lasts.Seconds() / float64(n); per > 40 {
				t.Errorf("%.1f commands a second and process", per)
			}
		})
	}
}
