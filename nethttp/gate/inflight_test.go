package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// releaseFails is a memorystore that cannot release while it is down, or panics.
type releaseFails struct {
	*memorystore.Store
	panics bool
	down   atomic.Bool
}

func (s *releaseFails) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}

func (s *releaseFails) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	if s.panics {
		panic("theirs")
	}
	if s.down.Load() {
		return false, errors.New("down")
	}
	return s.Store.Amend(ctx, r, a)
}

// With two leases, a release is tried again until the longer one has ended.
func TestAReleaseIsTriedAgainUntilTheLongestLeaseEnds(t *testing.T) {
	gatetest.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		s := &releaseFails{Store: memorystore.New(nil)}
		limiter := core.Must(core.New(s, core.InFlight(1).Lease(time.Second), core.InFlight(5).Lease(time.Hour).PerUser()))
		h := nethttp.Limit(limiter, xUserID, keyfuncs.Action("x"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			s.down.Store(true)
			time.Sleep(5 * time.Second)
		}))
		gatetest.Do(h, "GET", "/", "X-User-ID", "alice")
		time.Sleep(time.Minute)
		s.down.Store(false)
		time.Sleep(1100 * time.Millisecond)
		if got, err := limiter.Status(t.Context(), "alice", "x"); err != nil || got.Limits[1].Remaining != 5 {
			t.Errorf("%+v, %v", got.Limits[1], err)
		}
	})
}

// What Allow takes in a handler is the handler's to release, and the limit around it releases its own.
func TestASlotOfAllow(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			s := memory()
			outer, inner := core.Must(core.New(s, core.InFlight(1))), core.Must(core.New(s, core.InFlight(2)))
			var taken []core.Decision
			h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{
				Limits: []gatetest.Limit{{Limiter: outer}},
				Inside: []gatetest.Inside{{Limiter: inner, User: "alice", Action: "inner", Cost: 1, Decided: func(d core.Decision) { taken = append(taken, d) }}},
			}}}.Filled())
			remaining := func(l *core.Limiter, action string) int {
				d, err := l.Peek(t.Context(), "alice", action)
				if err != nil {
					t.Error(err)
				}
				return d.Remaining
			}
			for i, want := range []int{200, 200, 429} {
				w := ask(h)
				if w.StatusCode != want {
					t.Errorf("request %d: %d, want %d", i, w.StatusCode, want)
				}
				if want == 429 && (w.Header.Get("Retry-After") != "1" || w.Header.Get("X-RateLimit-Limit") != "2") {
					t.Errorf("a refusal by Allow: %v", w.Header)
				}
				if n := remaining(outer, "reply"); n != 1 {
					t.Errorf("request %d: %d slots of the limit around are free, want 1", i, n)
				}
				if want != 200 {
					continue
				}
				if n := remaining(inner, "inner"); n != 1-i {
					t.Errorf("request %d: %d slots are free, want %d", i, n, 1-i)
				}
			}
			for _, d := range taken {
				if err := inner.Release(t.Context(), d); err != nil {
					t.Error(err)
				}
			}
			if n := remaining(inner, "inner"); n != 2 {
				t.Errorf("%d slots are free in the end, want 2", n)
			}
		})
	}
}

// If the inner one of two limits refuses, the slot of the outer one is free.
func TestASlotOutsideOfARefusal(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			outer := core.Must(core.New(memory(), core.InFlight(1)))
			h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{
				Limits: []gatetest.Limit{{Limiter: outer}, {Limiter: gatetest.One(memory())}},
			}}}.Filled())
			for i, want := range []int{200, 429, 429} {
				if w := ask(h); w.StatusCode != want || i > 0 && w.Header.Get("Retry-After") != "60" {
					t.Errorf("request %d: %s, %v", i, w.Status, w.Header)
				}
			}
			if d, err := outer.Peek(t.Context(), "alice", "reply"); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

// A panic of a store's release does not replace that of the handler, and is not the client's.
func TestAReleaseThatPanics(t *testing.T) {
	log := gatetest.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		s := &releaseFails{Store: memorystore.New(nil), panics: true}
		h := nethttp.Limit(core.Must(core.New(s, core.InFlight(1))), xUserID, keyfuncs.Action("x"))(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == "POST" {
					panic("mine")
				}
			}))
		if w := gatetest.Do(h, "GET", "/", "X-User-ID", "alice"); w.Code != 200 {
			t.Errorf("got %d", w.Code)
		}
		func() {
			defer func() {
				if v := recover(); v != "mine" {
					t.Errorf("the panic is %v", v)
				}
			}()
			gatetest.Do(h, "POST", "/", "X-User-ID", "bob")
		}()
		time.Sleep(time.Hour) // until nothing is tried again
	})
	const want = "ERROR adapter: the slot of a request cannot be renewed or released; it is tried again until the lease has ended | slot-not-freed | panic: theirs"
	if got := log.Take("nethttp"); len(got) == 0 || len(got) > 2 || got[0] != want {
		t.Errorf("log: %q", got)
	}
}

// Of several subjects, any may have InFlight. Its slot is renewed and released, and a refusal by it is to be
// tried again soon.
func TestASlotOfAFurtherSubject(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			gatetest.Capture(t)
			synctest.Test(t, func(t *testing.T) {
				s := &releaseFails{Store: memorystore.New(nil)}
				user := core.Must(core.New(s, core.SlidingWindow(10, time.Hour)))
				org := core.Must(core.New(s, core.InFlight(1).Lease(3*time.Second)))
				everyone := func(*http.Request) (string, error) { return "org-7", nil }
				var h http.Handler
				h = ad.Mount(gatetest.App{Routes: []gatetest.Route{{
					Limits: []gatetest.Limit{{Limiter: user, And: []gatetest.Limit{{Limiter: org, User: everyone}}}},
					Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
						time.Sleep(10 * time.Second)
						if w := gatetest.Do(h, "POST", "/replies/7", "X-User-ID", "bob"); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
							t.Errorf("while the slot is taken: %d, %v", w.Code, w.Header())
						}
						s.down.Store(true)
					},
				}}}.Filled())
				w := gatetest.Do(h, "POST", "/replies/7", "X-User-ID", "alice")
				if got := w.Header().Get("X-RateLimit-Reset"); w.Code != 200 || got != fmt.Sprint(time.Now().Unix()-9) {
					t.Errorf("%d, %v at %d", w.Code, w.Header(), time.Now().Unix())
				}
				s.down.Store(false)
				time.Sleep(1100 * time.Millisecond)
				if d, err := org.Peek(t.Context(), "org-7", "reply"); err != nil || !d.Allowed {
					t.Errorf("afterwards: %+v, %v", d, err)
				}
			})
		})
	}
}

// If the shorter of two leases has ended during an outage, the slot with the longer one is still renewed.
func TestTheLongerLeaseIsRenewedAfterTheShorterOneHasEnded(t *testing.T) {
	gatetest.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		s := &releaseFails{Store: memorystore.New(nil)}
		limiter := core.Must(core.New(s, core.InFlight(1).Lease(time.Second), core.InFlight(5).Lease(time.Minute).PerUser()))
		h := nethttp.Limit(limiter, xUserID, keyfuncs.Action("x"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			s.down.Store(true)
			time.Sleep(10 * time.Second)
			s.down.Store(false)
			time.Sleep(10 * time.Minute)
			if got, err := limiter.Status(t.Context(), "alice", "x"); err != nil || got.Limits[0].Remaining != 1 || got.Limits[1].Remaining != 4 {
				t.Errorf("%+v, %v", got.Limits, err)
			}
		}))
		gatetest.Do(h, "GET", "/", "X-User-ID", "alice")
	})
}

// Of several subjects any may have the slots. They are renewed and released as those of one are, and the
// headers tell of the slot if it binds.
func TestSlotsOfAnySubject(t *testing.T) {
	const lease = time.Minute
	slots, rate := core.InFlight(2).Lease(lease), core.FixedWindow(9, time.Hour)
	for _, c := range []struct {
		name        string
		first, last []core.Limit
		reset       string
	}{
		{"the first", []core.Limit{slots}, []core.Limit{rate}, "1"},
		{"the last", []core.Limit{rate}, []core.Limit{slots}, "1"},
		{"the last, whose rate limit binds", []core.Limit{core.InFlight(7)}, []core.Limit{core.FixedWindow(2, 2*time.Minute), slots}, "120"},
		{"both, the last for a shorter time", []core.Limit{core.InFlight(3).Lease(time.Hour)}, []core.Limit{slots}, "1"},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memorystore.New(nil)
					first, last := core.Must(core.New(s, c.first...)), core.Must(core.New(s, c.last...))
					free := func(when string, want int) {
						for _, of := range []struct {
							limiter *core.Limiter
							user    string
						}{{first, "alice"}, {last, "org-7"}} {
							got, err := of.limiter.Status(t.Context(), of.user, "reply")
							if err != nil {
								t.Fatal(err)
							}
							for i, l := range of.limiter.Limits() {
								if n := l.Quota() - got.Limits[i].Remaining; l.Kind() == "inflight" && n != want {
									t.Errorf("%s: %d slots of %s are taken, want %d", when, n, of.user, want)
								}
							}
						}
					}
					var takes time.Duration
					h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{
						Limits: []gatetest.Limit{{Limiter: first, Config: &nethttp.Config{Headers: gate.XRateLimitDelta}, And: []gatetest.Limit{{Limiter: last, User: keyfuncs.Header("X-Org")}}}},
						Handler: func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) {
							time.Sleep(takes)
							free("in the handler", 1)
						},
					}}}.Filled())
					for _, takes = range []time.Duration{time.Millisecond, 3 * lease} {
						w := gatetest.Do(h, "POST", "/replies/7", "X-User-ID", "alice", "X-Org", "org-7")
						if got := w.Header().Get("X-RateLimit-Reset"); w.Code != 200 || got != c.reset {
							t.Errorf("%d, reset %s, want %s", w.Code, got, c.reset)
						}
						synctest.Wait() // a renewal at the same instant releases the slot when it has ended
						free("afterwards", 0)
					}
				})
			})
		}
	}
}

// If the slot of one subject is gone, that of another is renewed all the same.
func TestASlotIsRenewedWithoutTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memorystore.New(nil)
		user, org := core.Must(core.New(s, core.InFlight(2))), core.Must(core.New(s, core.InFlight(3)))
		h := nethttp.LimitAll(nethttp.By(user, xUserID, keyfuncs.Action("x")), nethttp.By(org, keyfuncs.Everyone, keyfuncs.Action("x")))(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := user.Reset(r.Context(), "alice", "x"); err != nil {
					t.Error(err)
				}
				time.Sleep(3 * time.Minute)
				all, _ := keyfuncs.Everyone(r)
				if d, err := org.Peek(r.Context(), all, "x"); err != nil || d.Remaining != 2 {
					t.Errorf("%+v, %v", d, err)
				}
			}))
		if w := gatetest.Do(h, "GET", "/", "X-User-ID", "alice"); w.Code != 200 {
			t.Errorf("got %d", w.Code)
		}
	})
}
