package gatetest

// http.TimeoutHandler, which returns before its handler.

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/nethttp"
)

// 30 clients that disconnect have no more handlers run at a time than there are slots, if http.TimeoutHandler is
// outside of the limit, or the handler in it holds the slot.
func testSlotsAroundTimeoutHandler(t *testing.T, adapters []Adapter) {
	inFlight := func() *core.Limiter { return core.Must(core.New(memory(), core.InFlight(3))) }
	failures := func() *core.Limiter {
		return core.Must(core.New(memory(), core.SlidingWindow(100, time.Hour), core.InFlight(3)))
	}
	for _, c := range []struct {
		name    string
		outside bool
		limiter func() *core.Limiter
		config  nethttp.Config
	}{
		{"outside", true, inFlight, nethttp.Config{}},
		{"outside of OnlyFailures", true, failures, nethttp.Config{OnlyFailures: wrong}},
		{"inside, with Hold", false, inFlight, nethttp.Config{}},
		{"inside of OnlyFailures, with Hold", false, failures, nethttp.Config{OnlyFailures: wrong}},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var at, most, ran atomic.Int32
					app := held(c.config, func(w http.ResponseWriter, r *http.Request, hold func() (release func())) {
						var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
							if !c.outside {
								defer hold()()
							}
							ran.Add(1)
							most.Store(max(most.Load(), at.Add(1)))
							time.Sleep(time.Minute)
							at.Add(-1)
						})
						if !c.outside {
							h = http.TimeoutHandler(h, time.Hour, "late")
						}
						h.ServeHTTP(w, r)
					}, c.limiter())
					h := ad.Mount(app)
					if c.outside {
						h = http.TimeoutHandler(h, time.Hour, "late")
					}
					for range 30 {
						ctx, leave := context.WithTimeout(t.Context(), time.Second)
						visiting(ctx, h)
						leave()
					}
					time.Sleep(time.Minute)
					if ran.Load() != 3 || most.Load() != 3 {
						t.Errorf("%d handlers ran, %d at a time", ran.Load(), most.Load())
					}
				})
			})
		}
	}
}
