package gate_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// failedIsFree is the recipe that a client may try to cheat.
var failedIsFree = finalCost(1, func(status int) int {
	if status >= 500 {
		return 0
	}
	return 1
})

// leavingCosts3 charges 3 for a client that leaves, and 1 for all else.
var leavingCosts3 = finalCost(1, func(status int) int {
	if status == 499 {
		return 3
	}
	return 1
})

// "FinalCost refunds nothing to a client that has left."
// What is left of 5 after one request that costs nothing if it fails.
func TestWhichFailedRequestsAreRefunded(t *testing.T) {
	type ended func(w http.ResponseWriter, r *http.Request, leave func())
	for _, c := range []struct {
		name   string
		do     ended
		config *nethttp.Config // nil is failedIsFree
		left   int
	}{
		{"a failure is refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(500) }, nil, 5},
		{"a failure after a disconnect is not", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(500) }, nil, 4},
		{"a failure that began before the disconnect is not", func(w http.ResponseWriter, _ *http.Request, leave func()) { w.WriteHeader(502); leave() }, nil, 4},
		{"what costs more is charged to a client that has left", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(401) },
			finalCost(1, func(int) int { return 3 }), 2},
		{"a panic before a response is a failure", func(http.ResponseWriter, *http.Request, func()) { panic("mine") }, nil, 5},
		{"a panic after a disconnect is not refunded", func(_ http.ResponseWriter, _ *http.Request, leave func()) { leave(); panic("mine") }, nil, 4},
		{"a panic after a response that is charged is not refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			_, _ = io.WriteString(w, "x")
			panic("mine")
		}, nil, 4},
		{"a panic in the middle of a file is not refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			_, _ = io.Copy(w, struct{ io.Reader }{io.MultiReader(file("some bytes"), panics{})}) // MultiReader would write itself
		}, nil, 4},
		{"a panic after a response that is free is refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			w.WriteHeader(503)
			_, _ = io.WriteString(w, "x")
			panic("mine")
		}, nil, 5},
		{"http.ErrAbortHandler before a response is not refunded", func(http.ResponseWriter, *http.Request, func()) { panic(http.ErrAbortHandler) }, nil, 4},
		{"http.ErrAbortHandler after a response is not refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			_, _ = io.WriteString(w, "x")
			panic(http.ErrAbortHandler)
		}, nil, 4},
		{"http.ErrAbortHandler before a response costs what 499 costs", func(http.ResponseWriter, *http.Request, func()) { panic(http.ErrAbortHandler) }, leavingCosts3, 2},
		{"so does a failure after a disconnect", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(502) }, leavingCosts3, 2},
		{"so does a success that the client was not told", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(200) }, leavingCosts3, 2},
		{"and one in a file", func(w http.ResponseWriter, _ *http.Request, leave func()) {
			leave()
			_, _ = io.Copy(w, struct{ io.Reader }{file("some bytes")})
		}, leavingCosts3, 2},
		{"and a flush", func(w http.ResponseWriter, _ *http.Request, leave func()) {
			leave()
			_ = http.NewResponseController(w).Flush()
		}, leavingCosts3, 2},
		{"and no answer", func(_ http.ResponseWriter, _ *http.Request, leave func()) { leave() }, leavingCosts3, 2},
		{"a success that the client was told does not", func(w http.ResponseWriter, _ *http.Request, leave func()) { w.WriteHeader(200); leave() }, leavingCosts3, 4},
		{"nor a mistake of the client", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(404) }, leavingCosts3, 4},
		{"nothing that costs nothing in the end is well", func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(200) },
			finalCost(0, func(int) int { return 0 }), 5},
		{"a deadline inside is not a disconnect", func(w http.ResponseWriter, r *http.Request, _ func()) {
			ctx, cancel := context.WithTimeout(r.Context(), 0)
			defer cancel()
			<-ctx.Done()
			w.WriteHeader(504)
		}, nil, 5},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				cfg := c.config
				if cfg == nil {
					cfg = failedIsFree
				}
				limiter := core.Must(core.New(memory(), slidingFive))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				ran, log := gatetest.NewRan(t, 1), gatetest.Capture(t)
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{
					Limits: []gatetest.Limit{{Limiter: limiter, Config: cfg}},
					Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
						ran.Now()
						c.do(w, r, leave)
					},
				}}}.Filled())
				r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
				r.Header.Set("X-User-ID", "alice")
				catches(h).ServeHTTP(httptest.NewRecorder(), r)
				if d, err := limiter.Peek(t.Context(), "alice", "reply"); err != nil || d.Remaining != c.left {
					t.Errorf("%d remain, want %d; %v", d.Remaining, c.left, err)
				}
				if said := log.Take(pkg(ad.Name)); said != nil {
					t.Errorf("log: %q", said)
				}
			})
		}
	}
}

// After a deadline that a middleware outside has set, nothing is refunded: a client may send its body slowly.
func TestADeadlineOutsideIsNotRefunded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or a busy machine is at the deadline too early
		limiter := core.Must(core.New(memory(), slidingFive))
		h := failedIsFree.Limit(limiter, keyfuncs.Everyone, keyfuncs.Action("x"))(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(504) }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		if d, err := limiter.Peek(t.Context(), "~everyone", "x"); err != nil || w.Code != 504 || d.Remaining != 4 {
			t.Errorf("%d, %d remain, %v", w.Code, d.Remaining, err)
		}
	})
}

// What panics before anything is sent is answered with 500 by the server.
func TestAStatusThatDoesNotExistCountsAsAPanic(t *testing.T) {
	var got int
	cfg := nethttp.Config{FinalCost: func(_ *http.Request, status int) int { got = status; return 1 }}
	h := cfg.Limit(core.Must(core.New(memory(), slidingFive)), keyfuncs.Everyone, keyfuncs.Action("x"))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}()
	if got != 500 {
		t.Errorf("the final cost is that of %d", got)
	}
}
