package lease_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

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
							d, _, err := s.Take(t.Context(), core.Charge{User: "everybody", Action: "call", Cost: 1, Terms: &core.Terms{Limits: []core.Limit{limit}}})
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
