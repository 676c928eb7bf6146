package gate_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

var adapters = []gatetest.Adapter{
	{Name: "nethttp", Mount: mountNetHTTP, Forget: gate.ForgetHandlers, KeepsWriter: true},
	{Name: "ginlimit", Mount: mountGin, Forget: gate.ForgetHandlers, KeepsWriter: true, HijackPanics: true},
	{Name: "echolimit", Mount: mountEcho, Forget: gate.ForgetHandlers},
	{Name: "echolimit/echov5", Mount: mountEchoV5, Forget: gate.ForgetHandlers},
}

func TestAdapters(t *testing.T) { gatetest.Run(t, adapters...) }

// The other tests of this package are of what depends on more than one adapter can say of itself.

var (
	xUserID       = keyfuncs.Header("X-User-ID")
	errBoom       = errors.New("boom")
	fivePerMinute = core.FixedWindow(5, time.Minute)
	slidingFive   = core.SlidingWindow(5, time.Minute)
	allowed       = core.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Minute}
	refusal       = core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute, Reason: core.ReasonLimited}
	decides       = gatetest.Decides
	fails         = gatetest.Fails
)

func memory() core.Store { return memorystore.New(nil) }

// reply is the one route POST /replies/{id}.
func reply(cfg *nethttp.Config, limits ...core.Limit) func(core.Store) []gatetest.Route {
	if len(limits) == 0 {
		limits = []core.Limit{fivePerMinute}
	}
	return func(s core.Store) []gatetest.Route {
		return []gatetest.Route{{Limits: []gatetest.Limit{{Limiter: core.Must(core.New(s, limits...)), Config: cfg}}}}
	}
}

func status(code int) gatetest.Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) { w.WriteHeader(code) }
}

func costs(n int, err error) *nethttp.Config {
	return &nethttp.Config{Cost: func(*http.Request) (int, error) { return n, err }}
}

// finalCost costs that much on entry and f of the status in the end.
func finalCost(cost int, f func(status int) int) *nethttp.Config {
	return &nethttp.Config{
		Cost:      func(*http.Request) (int, error) { return cost, nil },
		FinalCost: func(_ *http.Request, status int) int { return f(status) },
	}
}

// asCharged keeps what was charged, and so wraps the ResponseWriter for nothing.
var asCharged = &nethttp.Config{Keep: true, FinalCost: func(*http.Request, int) int { return 1 }}

// catches is a recovery further out than all else.
func catches(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		h.ServeHTTP(w, r)
	})
}

// ask is a request of alice without a network.
func ask(h http.Handler) *http.Response {
	return gatetest.Do(h, "POST", "/replies/7", "X-User-ID", "alice").Result()
}

// post is one over a network.
func post(t *testing.T, s *gatetest.Server) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/replies/7", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User-ID", "alice")
	return s.Client().Do(req)
}

// pkg is the name of an adapter's package, which starts its messages.
func pkg(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}
