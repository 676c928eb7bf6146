package gate_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// hostile are keys that a client might send. No two are one.
func hostile() []string {
	huge := strings.Repeat("x", 1<<20)
	return []string{
		huge, huge + "y", "y" + huge, strings.Repeat("{", 1<<20), strings.Repeat("\xff", 1<<20),
		"{", "}", "{}", "}{", "{a}", "a", "{a}:reply", "a}:reply:{", "{{a}}", "{}a",
		"\x00", "\x00\x00", "\xff", "\xff\xfe", "a\xc3", "a\xc3\x28", "\ufffd", "a\r\nX-RateLimit-Remaining: 9", "a\n",
		"%7B", "%7b", "%", "%00", "~", "~~", "~2:a", ":", "::", "a:", ":a", " ", "a ", "é", "e\u0301", "*", "?", "[a-z]", "' OR 1=1 --", "../..", "$-1\r\n",
	}
}

// Whatever is in a key, as the user or as the action, it has its own quota and no
// other's, and nobody is told of it. storetest holds each store to that.
func TestHostileKeys(t *testing.T) {
	type key struct{}
	keys := hostile()
	fromContext := keyfuncs.ContextValue(key{})
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			limiter := core.Must(core.New(memory(), core.FixedWindow(2, time.Hour)))
			for _, l := range []gatetest.Limit{{Limiter: limiter, User: fromContext}, {Limiter: limiter, Action: fromContext}} {
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{l}}}}.Filled())
				for turn, want := range []int{200, 200, 429} {
					for i, k := range keys {
						r := httptest.NewRequest("POST", "/replies/7", nil)
						r.Header.Set("X-User-ID", "alice")
						r = r.WithContext(context.WithValue(r.Context(), key{}, k))
						w := httptest.NewRecorder()
						h.ServeHTTP(w, r)
						if w.Code != want || w.Header().Get("X-RateLimit-Remaining") != []string{"1", "0", "0"}[turn] {
							t.Fatalf("key %d, %.20q, for the %d. time: %d, not %d, %v", i, k, turn+1, w.Code, want, w.Header())
						}
						if len(w.Body.String()) > 1000 {
							t.Fatalf("key %d is told: %.200q", i, w.Body)
						}
					}
				}
			}
		})
	}
}

// A function of yours that hangs holds up its own request and no other's.
func TestASlowFunctionHoldsUpItsOwnRequest(t *testing.T) {
	for _, ad := range adapters {
		for _, which := range []string{"user", "action", "cost", "picker", "skip", "observer"} {
			t.Run(ad.Name+"/"+which, func(t *testing.T) {
				release, waits := make(chan struct{}), make(chan struct{})
				hang := func(r *http.Request, here string) {
					if here == which && r.Header.Get("X-User-ID") == "slow" {
						close(waits)
						<-release
					}
				}
				var slow *http.Request
				store := core.Observe(memorystore.New(nil), func(ctx context.Context, _ core.Observation) {
					if ctx == slow.Context() {
						hang(slow, "observer")
					}
				})
				l := gatetest.Limit{
					Limiter: five(store),
					User:    func(r *http.Request) (string, error) { hang(r, "user"); return xUserID(r) },
					Action:  func(r *http.Request) (string, error) { hang(r, "action"); return "reply", nil },
					Config: &nethttp.Config{
						Cost:    func(r *http.Request) (int, error) { hang(r, "cost"); return 1, nil },
						Limiter: func(r *http.Request) (*core.Limiter, error) { hang(r, "picker"); return nil, nil },
						Skip:    func(r *http.Request) bool { hang(r, "skip"); return false },
					},
				}
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{l}}}}.Filled())
				serve := func(user string, r *http.Request) int {
					r.Header.Set("X-User-ID", user)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Code
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				slow = httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
				var wg sync.WaitGroup
				wg.Go(func() {
					if code := serve("slow", slow); code != 200 {
						t.Errorf("the slow one: %d", code)
					}
				})
				<-waits
				for range 5 { // or the test never ends
					if code := serve("alice", httptest.NewRequest("POST", "/replies/7", nil)); code != 200 {
						t.Errorf("another: %d", code)
					}
				}
				close(release)
				wg.Wait()
			})
		}
	}
}
