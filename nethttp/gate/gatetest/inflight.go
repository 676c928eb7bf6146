package gatetest

// core.InFlight behind a middleware: when a slot is taken, kept and free.

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/nethttp"
)

// However a handler ends, its slot is taken until then and free afterwards. A rate limit beside it
// keeps its charge, or what FinalCost makes of it.
func testSlotIsReleased(t *testing.T, adapters []Adapter) {
	failedIsFree := func() *nethttp.Config {
		return finalCost(1, func(status int) int {
			if status >= 500 {
				return 0
			}
			return 2
		})
	}
	for _, c := range []struct {
		name   string
		config *nethttp.Config
		do     func(w http.ResponseWriter, leave func())
		left   int // of the rate limit
	}{
		{"returns", nil, func(http.ResponseWriter, func()) {}, 4},
		{"fails", nil, func(w http.ResponseWriter, _ func()) { w.WriteHeader(500) }, 4},
		{"panics", nil, func(http.ResponseWriter, func()) { panic("mine") }, 4},
		{"panics after a part of the response", nil, func(w http.ResponseWriter, _ func()) { _, _ = io.WriteString(w, "x"); panic("mine") }, 4},
		{"aborts", nil, func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) }, 4},
		{"the client leaves", nil, func(_ http.ResponseWriter, leave func()) { leave() }, 4},
		{"the client leaves and the handler aborts", nil, func(_ http.ResponseWriter, leave func()) { leave(); panic(http.ErrAbortHandler) }, 4},
		{"FinalCost charges", failedIsFree(), func(http.ResponseWriter, func()) {}, 3},
		{"FinalCost refunds", failedIsFree(), func(w http.ResponseWriter, _ func()) { w.WriteHeader(500) }, 5},
		{"FinalCost refunds after a panic", failedIsFree(), func(http.ResponseWriter, func()) { panic("mine") }, 5},
		{"FinalCost charges a client that left", failedIsFree(), func(w http.ResponseWriter, leave func()) { leave(); w.WriteHeader(500) }, 3},
		{"FinalCost panics", finalCost(1, never), func(http.ResponseWriter, func()) {}, 4},
		{"Keep", &nethttp.Config{Keep: true}, func(http.ResponseWriter, func()) {}, 4},
		{"MaxWait", &nethttp.Config{MaxWait: time.Second}, func(http.ResponseWriter, func()) {}, 4},
	} {
		for _, ad := range adapters {
			for _, by := range []string{"given", "picked"} {
				t.Run(c.name+"/"+by+"/"+ad.Name, func(t *testing.T) {
					Capture(t)
					synctest.Test(t, func(t *testing.T) {
						limiter := core.Must(core.New(memory(), core.InFlight(1).Lease(lease), core.SlidingWindow(5, time.Hour)))
						cfg, mounted := nethttp.Config{}, limiter
						if c.config != nil {
							cfg = *c.config
						}
						if by == "picked" {
							mounted = Five(memory())
							cfg.Limiter = func(*http.Request) (*core.Limiter, error) { return limiter, nil }
						}
						ctx, leave := context.WithCancel(t.Context())
						defer leave()
						ran := NewRan(t, 1)
						var h http.Handler
						h = ad.Mount(slotted(mounted, &cfg, func(w http.ResponseWriter, _ *http.Request) {
							ran.Now()
							wantFree(t, "in the handler", limiter, 0, 4)
							if got := visiting(t.Context(), h); got.Code != 429 {
								t.Errorf("a second request gets %d", got.Code)
							}
							c.do(w, leave)
							wantFree(t, "at its end", limiter, 0, 4)
						}))
						visiting(ctx, h)
						wantFree(t, "afterwards", limiter, 1, c.left)
					})
				})
			}
		}
	}
	for _, ad := range adapters {
		t.Run("the client has left before the store decides/"+ad.Name, func(t *testing.T) {
			Capture(t)
			limiter := core.Must(core.New(memory(), core.InFlight(1), core.SlidingWindow(5, time.Hour)))
			h := ad.Mount(slotted(limiter, nil, func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") }))
			ctx, leave := context.WithCancel(t.Context())
			leave()
			visiting(ctx, h)
			wantFree(t, "afterwards", limiter, 1, 5)
		})
		for _, most := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("the client leaves while the store decides/MaxWait %s/%s", most, ad.Name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newSlotStore()
					store.late = 20 * time.Millisecond
					limiter := core.Must(core.New(store, core.InFlight(1).Lease(lease)))
					h := ad.Mount(slotted(limiter, &nethttp.Config{MaxWait: most}, func(http.ResponseWriter, *http.Request) {}))
					ctx, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
					defer leave()
					visiting(ctx, h)
					wantFree(t, "afterwards", limiter, 1)
				})
			})
		}
	}
}

// A stream keeps its slot until it has ended. Then the next request passes at once, although the
// client has only seen the end of the response. A hijacked connection keeps the slot until the handler
// returns.
func testSlotOfAStream(t *testing.T, adapters []Adapter) {
	onEach(t, adapters, func(t *testing.T, ad Adapter, s *Server) {
		t.Run("stream", func(t *testing.T) {
			if ad.NoStreams {
				t.Skip("not on this fixture: the framework cannot")
			}
			limiter := core.Must(core.New(memory(), core.InFlight(1)))
			more := make(chan struct{})
			s.Mount(ad.Mount(slotted(limiter, nil, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "one\n")
				_ = http.NewResponseController(w).Flush()
				<-more
				_, _ = io.WriteString(w, "two\n")
			})))
			for range 3 {
				stream, err := post(t, s)
				if err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewReader(stream.Body)
				if _, err := lines.ReadString('\n'); err != nil || stream.StatusCode != 200 {
					t.Errorf("%s, %v", stream.Status, err)
				}
				second, err := post(t, s)
				if err != nil {
					t.Fatal(err)
				}
				if second.Body.Close(); second.StatusCode != 429 {
					t.Errorf("during the stream: %s", second.Status)
				}
				more <- struct{}{}
				if rest, err := io.ReadAll(lines); string(rest) != "two\n" || err != nil {
					t.Errorf("%q, %v", rest, err)
				}
				stream.Body.Close()
			}
			wantFree(t, "afterwards", limiter, 1)
		})
		if s.Proto == "HTTP/2.0" {
			return // nobody can take over its connection
		}
		t.Run("hijack", func(t *testing.T) {
			if ad.NoHijack {
				t.Skip("not on this fixture: the framework cannot")
			}
			limiter := core.Must(core.New(memory(), core.InFlight(1)))
			more := make(chan struct{})
			s.Mount(ad.Mount(slotted(limiter, nil, func(w http.ResponseWriter, _ *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntaken")
				_ = rw.Flush()
				_ = conn.Close()
				<-more
			})))
			resp, err := post(t, s)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
			wantFree(t, "when the connection is closed", limiter, 0)
			close(more)
			until(t, "the slot is free", func() bool { return free(t, limiter)[0] == 1 })
		})
	})
}

// A handler that runs for longer than the lease keeps its slot. When it has returned, nothing asks the
// store any more.
func testSlotIsRenewed(t *testing.T, adapters []Adapter) {
	for _, c := range []struct {
		name     string
		takes    time.Duration
		slow     time.Duration
		renewals int
	}{
		{"shorter than a third of the lease", lease/3 - 1, 0, 0},
		{"longer than the lease", lease + time.Second, 0, 3},
		{"ten leases", 10*lease + time.Second, 0, 30},
		{"until a renewal is under way", 2*lease/3 + time.Millisecond + 10*time.Millisecond, 10 * time.Millisecond, 2},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				log := Capture(t)
				synctest.Test(t, func(t *testing.T) {
					store := newSlotStore()
					store.slow = c.slow
					limiter := core.Must(core.New(store, core.InFlight(2).Lease(lease), core.SlidingWindow(5, time.Hour)))
					h := ad.Mount(slotted(limiter, nil, func(_ http.ResponseWriter, r *http.Request) {
						for end := time.Now().Add(c.takes); time.Now().Before(end); {
							time.Sleep(min(time.Second, time.Until(end)))
							wantFree(t, "in the handler", limiter, 1, 4)
						}
					}))
					begun := time.Now()
					visiting(t.Context(), h)
					if took := time.Since(begun) - c.takes; took > c.slow {
						t.Errorf("the response is %s late", took)
					}
					time.Sleep(2 * c.slow)
					wantFree(t, "afterwards", limiter, 2, 4)
					if got, want := store.asked(), [2]int{c.renewals, 1}; got != want {
						t.Errorf("%d renewals and releases, want %d", got, want)
					}
					time.Sleep(10 * lease)
					if got := store.asked(); got != [2]int{} {
						t.Errorf("later there are %d renewals and releases", got)
					}
				})
				if got := log.Take(ad.pkg()); got != nil {
					t.Errorf("log: %q", got)
				}
			})
		}
	}
}

// What other requests do neither frees a slot nor keeps it.
func testSlotOfAnother(t *testing.T, adapters []Adapter) {
	for _, ad := range adapters {
		t.Run("requests that are refused free no slot/"+ad.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := core.Must(core.New(memory(), core.InFlight(1), core.SlidingWindow(5, time.Hour)))
				var h http.Handler
				h = ad.Mount(slotted(limiter, nil, func(http.ResponseWriter, *http.Request) {
					for range 100 {
						ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
						if w := visiting(ctx, h); w.Code != 429 {
							t.Errorf("a request beside it gets %d", w.Code)
						}
						leave()
					}
				}))
				visiting(t.Context(), h)
				wantFree(t, "afterwards", limiter, 1, 4)
			})
		})
		t.Run("the rate limit refuses and takes no slot/"+ad.Name, func(t *testing.T) {
			limiter := core.Must(core.New(memory(), core.InFlight(3), core.SlidingWindow(1, time.Hour)))
			h := ad.Mount(slotted(limiter, nil, func(http.ResponseWriter, *http.Request) {}))
			for _, want := range []int{200, 429, 429, 429, 429} {
				if w := visiting(t.Context(), h); w.Code != want {
					t.Errorf("got %d, want %d", w.Code, want)
				}
			}
			wantFree(t, "afterwards", limiter, 3, 0)
		})
		// A process that was killed has left a slot. Requests that come all the time do not keep it.
		t.Run("other requests do not renew a slot/"+ad.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := core.Must(core.New(memory(), core.InFlight(2).Lease(lease)))
				if _, err := limiter.Allow(t.Context(), "alice", "reply"); err != nil {
					t.Fatal(err)
				}
				killed := time.Now()
				h := ad.Mount(slotted(limiter, nil, func(http.ResponseWriter, *http.Request) { time.Sleep(lease / 2) }))
				for time.Since(killed) < 2*lease {
					time.Sleep(time.Second)
					if w := visiting(t.Context(), h); w.Code != 200 {
						t.Errorf("got %d", w.Code)
					}
					want := 1
					if time.Since(killed) >= lease {
						want = 2
					}
					wantFree(t, time.Since(killed).String()+" after", limiter, want)
				}
			})
		})
	}
}
