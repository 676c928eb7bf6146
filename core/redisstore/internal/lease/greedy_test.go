package lease_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A client that asks for more than there is gets nothing, and takes nothing from clients that ask for one unit.
func TestCostsThatDoNotFitTakeNothing(t *testing.T) {
	for _, limit := range []core.Limit{
		core.MovingWindow(6000, time.Minute), core.FixedWindow(6000, time.Minute), core.Funnel(6000, core.Per(6000, time.Hour)),
	} {
		limit = limit.Leased(50 * ms)
		for _, used := range []int{600, 5000} { // before
			t.Run(fmt.Sprint(limit, ", ", used, " used"), func(t *testing.T) {
				alone, quiet := greed(t, limit, used, 0)
				beside, commands := greed(t, limit, used, 8)
				t.Logf("%d of 600 pass in %d commands; beside the client that asks for more, %d in %d", alone, quiet, beside, commands)
				if beside < alone*95/100 {
					t.Errorf("%d of 600 pass beside costs that do not fit, and %d alone", beside, alone)
				}
				if commands > 40*6 {
					t.Errorf("%d commands in 6 seconds", commands)
				}
			})
		}
	}
}

// greed is how many of 600 actions of one unit, in 6 seconds, pass beside some workers who ask for more than is left.
func greed(t *testing.T, limit core.Limit, used, workers int) (passed, commands int) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{store: memorystore.New(nil), trip: 250 * time.Microsecond}
		lim := core.Must(core.New(s.process(), limit))
		allow := func(n int) core.Decision {
			d, err := lim.AllowN(t.Context(), "everybody", "call", n)
			if err != nil {
				t.Error(err)
			}
			return d
		}
		allow(used)
		var wg sync.WaitGroup
		start := time.Now()
		for w := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(2, uint64(w)))
				for time.Since(start) < 6*second {
					time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
					if d := allow(limit.Quota() - used + 50 + r.IntN(used-50)); d.Allowed {
						t.Errorf("%+v", d)
					}
				}
			})
		}
		for range 600 {
			time.Sleep(10 * ms)
			if allow(1).Allowed {
				passed++
			}
		}
		wg.Wait()
		commands = s.sent()
		time.Sleep(time.Minute) // leases end
	})
	return passed, commands
}
