package gatetest

// Slots of core.InFlight that a request has for longer than its handler runs, or has already.

import (
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const chargedTwice = "WARN adapter: a request was charged twice: it had a slot of InFlight, and entered a limit with the same slots again; it keeps the one slot, and each pass is charged to rate limits; maybe the middleware is mounted twice, or a handler has the framework or the mux serve its request again: mount the limit where a request passes once, or give the other one another action or name | charged-twice"

// A request that enters a limit again neither is refused by its own slot nor waits for it, even if others
// wait for that slot already. Each pass is charged to the rate limit, and the log tells of it once.
func testEnteredTwice(t *testing.T, adapters []Adapter) {
	for _, c := range []struct {
		name   string
		limits int // around one another
		again  int // how often the handler has the request served again
		config nethttp.Config
	}{
		{"mounted twice", 2, 0, nethttp.Config{}},
		{"mounted three times", 3, 0, nethttp.Config{MaxWait: 5 * time.Second}},
		{"served again", 1, 1, nethttp.Config{}},
		{"served again and may wait", 1, 1, nethttp.Config{MaxWait: 5 * time.Second}},
		{"served again twice", 1, 2, nethttp.Config{Keep: true, MaxWait: 5 * time.Second}},
		{"mounted twice and served again", 2, 1, nethttp.Config{MaxWait: 5 * time.Second, Headers: 1}},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				log := Capture(t)
				synctest.Test(t, func(t *testing.T) {
					limiter := core.Must(core.New(memory(), core.InFlight(1).Lease(lease), core.SlidingWindow(10, time.Hour)))
					passes := c.limits * (1 + c.again)
					depth, ran := 0, NewRan(t, 2)
					var h http.Handler
					app := slotted(limiter, &c.config, func(w http.ResponseWriter, r *http.Request) {
						if depth++; depth <= c.again {
							h.ServeHTTP(w, r)
							wantFree(t, "after the inner pass", limiter, 0, 10-passes)
							return
						}
						ran.Now()
						wantFree(t, "in the handler", limiter, 0, 10-passes)
						time.Sleep(3 * lease)
						wantFree(t, "at its end", limiter, 0, 10-passes)
						_, _ = io.WriteString(w, "done")
					})
					app.Routes[0].Limits = slices.Repeat(app.Routes[0].Limits, c.limits)
					h = ad.Mount(app)
					for range 2 {
						depth = 0
						begun := time.Now()
						w := visiting(t.Context(), h)
						if took := time.Since(begun); w.Code != 200 || w.Body.String() != "done" || took != 3*lease {
							t.Errorf("after %s: %d %s", took, w.Code, w.Body)
						}
						synctest.Wait() // a renewal at the same instant releases the slot when it has ended
						wantFree(t, "afterwards", limiter, 1, 10-passes)
						if err := limiter.Reset(t.Context(), "alice", "reply"); err != nil {
							t.Fatal(err)
						}
					}
				})
				if got := log.Take(ad.pkg()); len(got) == 0 || slices.ContainsFunc(got, func(s string) bool { return s != chargedTwice }) || c.limits == 1 && len(got) != 1 {
					t.Errorf("log: %q", got)
				}
			})
		}
	}
	for _, ad := range adapters {
		t.Run("others wait for its slot/"+ad.Name, func(t *testing.T) {
			Capture(t)
			synctest.Test(t, func(t *testing.T) {
				limiter := core.Must(core.New(memory(), core.InFlight(1), core.SlidingWindow(10, time.Hour)))
				var wg sync.WaitGroup
				depth := 0
				var h http.Handler
				h = ad.Mount(slotted(limiter, &nethttp.Config{MaxWait: 5 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
					if depth++; depth == 1 {
						for range 3 {
							wg.Go(func() { visiting(t.Context(), h) })
						}
						time.Sleep(time.Second)
						begun := time.Now()
						h.ServeHTTP(w, r)
						if took := time.Since(begun); took != 0 || depth != 2 {
							t.Errorf("%d passes, after %s", depth, took)
						}
					}
				}))
				visiting(t.Context(), h)
				wg.Wait()
				wantFree(t, "afterwards", limiter, 1, 5)
			})
		})
		// The two share slots, and have other actions and numbers.
		t.Run("another limiter of the same slots/"+ad.Name, func(t *testing.T) {
			Capture(t)
			synctest.Test(t, func(t *testing.T) {
				s := memory()
				large, small := core.Must(core.New(s, core.InFlight(3).PerUser())), core.Must(core.New(s, core.InFlight(1).PerUser(), core.InFlight(2)))
				begun, more := make(chan bool, 2), make(chan bool)
				h := ad.Mount(App{Routes: []Route{{
					Limits: []Limit{{Limiter: large, Action: keyfuncs.Action("any")}, {Limiter: small}},
					Handler: func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) {
						wantFree(t, "in the handler", small, 0, 1)
						begun <- true
						<-more
					},
				}}})
				var wg sync.WaitGroup
				wg.Go(func() { visiting(t.Context(), h) })
				<-begun
				if w := visiting(t.Context(), h); w.Code != 429 { // there are two with slots, and the inner limit is of one
					t.Errorf("a second request: %d", w.Code)
				}
				more <- true
				wg.Wait()
				wantFree(t, "afterwards", small, 1, 2)
			})
		})
		t.Run("another user's request is not its own/"+ad.Name, func(t *testing.T) {
			log := Capture(t)
			s := memory()
			limiter := core.Must(core.New(s, core.InFlight(1)))
			h := ad.Mount(App{Routes: []Route{{Limits: []Limit{
				{Limiter: limiter},
				{Limiter: limiter, User: keyfuncs.Header("X-Org")},
				{Limiter: limiter, Action: keyfuncs.Action("like")},
				{Limiter: core.Must(core.New(memory(), core.InFlight(1)))},
			}, Handler: func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) {
				for _, of := range [][2]string{{"alice", "reply"}, {"acme", "reply"}, {"alice", "like"}} {
					if d, err := limiter.Peek(t.Context(), of[0], of[1]); err != nil || d.Remaining != 0 {
						t.Errorf("%q: %+v, %v", of, d, err)
					}
				}
			}}}})
			if w := Do(h, "POST", "/replies/7", "X-User-ID", "alice", "X-Org", "acme"); w.Code != 200 {
				t.Errorf("%d", w.Code)
			}
			if got := log.Take(ad.pkg()); got != nil {
				t.Errorf("log: %q", got)
			}
		})
	}
}

// held is the one route POST /replies/{id} behind the limiters, whose handler may hold its slots.
func held(cfg nethttp.Config, h Holds, limiters ...*core.Limiter) App {
	rt := Route{Holds: h}
	for _, l := range limiters {
		rt.Limits = append(rt.Limits, Limit{Limiter: l, Config: &cfg})
	}
	return App{Routes: []Route{rt}}
}

// A slot that a handler holds is renewed until it is released, once.
func testHeldSlot(t *testing.T, adapters []Adapter) {
	for _, c := range []struct {
		name   string
		config nethttp.Config
		holds  int
		do     func(http.ResponseWriter)
	}{
		{"returns", nethttp.Config{}, 1, func(http.ResponseWriter) {}},
		{"panics", nethttp.Config{}, 1, func(http.ResponseWriter) { panic("mine") }},
		{"answers with FinalCost", *finalCost(1, func(int) int { return 1 }), 1, func(w http.ResponseWriter) { w.WriteHeader(202) }},
		{"holds it twice", nethttp.Config{MaxWait: time.Second}, 2, func(http.ResponseWriter) {}},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				log := Capture(t)
				synctest.Test(t, func(t *testing.T) {
					store := newSlotStore()
					limiter := core.Must(core.New(store, core.InFlight(1).Lease(lease), core.SlidingWindow(9, time.Hour)))
					var release []func()
					h := ad.Mount(held(c.config, func(w http.ResponseWriter, _ *http.Request, hold func() func()) {
						for range c.holds {
							release = append(release, hold())
						}
						c.do(w)
					}, limiter))
					visiting(t.Context(), h)
					if got := store.asked(); got != [2]int{} {
						t.Errorf("after the handler there are %d renewals and releases", got)
					}
					for range 10 {
						time.Sleep(lease / 3)
						synctest.Wait()
						wantFree(t, "while it is held", limiter, 0, 8)
					}
					if got := store.asked(); got != [2]int{10, 0} {
						t.Errorf("%d renewals and releases", got)
					}
					for _, f := range release {
						wantFree(t, "before the release", limiter, 0, 8)
						f()
						f()
					}
					wantFree(t, "afterwards", limiter, 1, 8)
					time.Sleep(10 * lease)
					if got := store.asked(); got != [2]int{0, 1} {
						t.Errorf("later there are %d renewals and releases", got)
					}
				})
				if got := log.Take(ad.pkg()); got != nil {
					t.Errorf("log: %q", got)
				}
			})
		}
	}
	for _, ad := range adapters {
		t.Run("of all limits around/"+ad.Name, func(t *testing.T) {
			Capture(t)
			synctest.Test(t, func(t *testing.T) {
				outer, rate, inner := core.Must(core.New(memory(), core.InFlight(3))), Five(memory()), core.Must(core.New(memory(), core.InFlight(2)))
				var release []func()
				h := ad.Mount(held(nethttp.Config{}, func(_ http.ResponseWriter, _ *http.Request, hold func() func()) {
					release = append(release, hold())
				}, outer, rate, inner, inner)) // the last one has no slot of its own
				for i, want := range []int{200, 200, 429} {
					if w := visiting(t.Context(), h); w.Code != want {
						t.Errorf("request %d: %d", i, w.Code)
					}
				}
				wantFree(t, "held, of the outer one", outer, 1)
				wantFree(t, "held, of the inner one", inner, 0)
				for _, f := range release {
					f()
				}
				wantFree(t, "afterwards", outer, 3)
				wantFree(t, "afterwards", inner, 2)
			})
		})
		t.Run("without a slot/"+ad.Name, func(t *testing.T) {
			log := Capture(t)
			skips := nethttp.Config{Skip: func(*http.Request) bool { return true }}
			for _, app := range []App{
				held(nethttp.Config{}, func(_ http.ResponseWriter, _ *http.Request, hold func() func()) { hold()() }, Five(memory())),
				held(skips, func(_ http.ResponseWriter, _ *http.Request, hold func() func()) { hold()() }, core.Must(core.New(memory(), core.InFlight(1)))),
			} {
				if w := visiting(t.Context(), ad.Mount(app)); w.Code != 200 {
					t.Errorf("%d", w.Code)
				}
			}
			if got := log.Take(ad.pkg()); got != nil {
				t.Errorf("log: %q", got)
			}
		})
		t.Run("forgotten/"+ad.Name, func(t *testing.T) {
			log := Capture(t)
			limiter := core.Must(core.New(memory(), core.InFlight(1)))
			h := ad.Mount(held(nethttp.Config{}, func(_ http.ResponseWriter, _ *http.Request, hold func() func()) { hold() }, limiter))
			visiting(t.Context(), h)
			until(t, "the slot is free", func() bool { runtime.GC(); return free(t, limiter)[0] == 1 })
			want := []string{"ERROR adapter: a handler has dropped what Hold returned without calling it, and the slot is released now; call release in every case | hold-dropped"}
			if got := log.Take(ad.pkg()); !slices.Equal(got, want) {
				t.Errorf("log: %q", got)
			}
		})
		t.Run("too late/"+ad.Name, func(t *testing.T) {
			log := Capture(t)
			limiter := core.Must(core.New(memory(), core.InFlight(1)))
			var late func() func()
			h := ad.Mount(held(nethttp.Config{}, func(_ http.ResponseWriter, _ *http.Request, hold func() func()) { late = hold }, limiter))
			for range 3 {
				visiting(t.Context(), h)
				release := late()
				wantFree(t, "not held", limiter, 1)
				release()
				wantFree(t, "afterwards", limiter, 1)
			}
			want := []string{"ERROR adapter: Hold was called after the handler had returned, and the slot is free already; call it before | hold-too-late"}
			if got := log.Take(ad.pkg()); !slices.Equal(got, want) {
				t.Errorf("log: %q", got)
			}
		})
	}
}
