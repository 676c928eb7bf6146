package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Redis's clock steps an hour back or forth, and nobody is locked out for longer than
// one full period from his first attempt after that, whether he comes back when he is
// told or hammers. ElasticWindow and CountRefused are to keep out who hammers.
func TestClockSteps(t *testing.T) {
	server, clock := redistest.StartAt(t, epoch)
	store, advance := follow(reliable(t, server.Addr), clock.Now, clock.Advance)
	every := core.Every(2 * time.Minute)
	const back, forth, often = -time.Hour, time.Hour, 17 * time.Second
	for _, l := range []core.Limit{
		core.SlidingWindow(5, 10*time.Minute),
		core.SlidingWindow(5, 10*time.Minute).CountRefused(),
		core.MovingWindow(5, 10*time.Minute),
		core.FixedWindow(5, 10*time.Minute),
		core.ElasticWindow(5, 10*time.Minute),
		core.TokenBucket(5, every).Named("full"),
		core.TokenBucket(5, every).Initial(3),
		core.Funnel(5, every),
		core.CalendarWindow(5, core.Minute, nil),
	} {
		lim := core.Must(core.New(store, l))
		for i, steps := range [][]time.Duration{{back}, {forth}, {forth, back}, {back, forth}, {back, back}, {forth, back, back, forth, back}} {
			for _, meanwhile := range []bool{false, true} {
				for _, hammers := range []bool{false, true} {
					if k := l.Rule().Kind; hammers && (k == machine.KindElasticWindow || k == machine.KindSlidingRefused) {
						continue
					}
					what := fmt.Sprintf("%s, clock steps %v, asked in between: %t, hammers: %t", l, steps, meanwhile, hammers)
					ask := func() core.Decision {
						t.Helper()
						d, err := lim.Allow(t.Context(), fmt.Sprint(i, meanwhile, hammers), action)
						if err != nil {
							t.Fatal(err)
						}
						return d
					}
					for ask().Allowed {
					}
					for _, d := range steps {
						advance(d)
						if meanwhile {
							ask()
						}
					}
					out := time.Duration(0)
					for d := ask(); !d.Allowed && out <= l.Period(); d = ask() {
						wait := d.RetryAfter
						if hammers {
							wait = min(wait, often)
						}
						out += wait
						advance(wait)
					}
					if out > l.Period() {
						t.Errorf("%s: locked out for %s or more, the period is %s", what, out, l.Period())
					}
				}
			}
		}
	}
}
