package nethttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

var memory, five, one = gatetest.Memory, gatetest.Five, gatetest.One

var xUserID = keyfuncs.Header("X-User-ID")

// ask is a request of alice.
func ask(h http.Handler) *httptest.ResponseRecorder {
	return gatetest.Do(h, "POST", "/replies/7", "X-User-ID", "alice")
}

// A limit around the mux has no pattern to count by. That is a mistake in the
// program: 500 for every request, and one line in the log.
func TestRouteOutsideTheMux(t *testing.T) {
	log := gatetest.Capture(t)
	store := memory()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /replies/{id}", func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
	h := nethttp.Limit(five(store), xUserID, keyfuncs.Route)(mux)
	synctest.Test(t, func(t *testing.T) {
		for range 5 {
			for range 8 {
				go func() {
					w := ask(h)
					if w.Code != 500 || !strings.Contains(w.Body.String(), "could not determine the limit for this action") || w.Header().Get("X-RateLimit-Limit") != "" {
						t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
					}
				}()
			}
			time.Sleep(time.Hour) // by then the log could have another line
		}
	})
	want := []string{"ERROR adapter: a request cannot be limited | not-limited | adapter: action: " + keyfuncs.ErrNoRoute.Error()}
	if got := log.Take("nethttp"); !slices.Equal(got, want) {
		t.Errorf("log:\n got %q\nwant %q", got, want)
	}
	if got := store.Actions(); got != nil {
		t.Errorf("charged: %q", got)
	}
}

// Around the mux an Action limits also what the mux answers itself; on a pattern
// a limit does not see it.
func TestResponsesOfTheMuxItself(t *testing.T) {
	store := memory()
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	limit := nethttp.Limit(core.Must(core.New(store, core.FixedWindow(50, time.Minute))), xUserID, keyfuncs.Action("x"))
	on := http.NewServeMux()
	on.Handle("GET /a", limit(done))
	on.Handle("GET /tree/", limit(done))
	around := http.NewServeMux()
	around.Handle("GET /a", done)
	around.Handle("GET /tree/", done)
	for _, c := range []struct {
		name, method, path string
		status             int
		on, around         int // charges
	}{
		{"a match", "GET", "/a", 200, 1, 1},
		{"404", "GET", "/none", 404, 0, 1},
		{"405", "POST", "/a", 405, 0, 1},
		{"a redirect to the slash", "GET", "/tree", 307, 0, 1},
		{"a redirect to the clean path", "GET", "/b/../a", 307, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range []struct {
				h    http.Handler
				want int
			}{{on, c.on}, {limit(around), c.around}} {
				before := len(store.Actions())
				r := httptest.NewRequest(c.method, c.path, nil)
				r.Header.Set("X-User-ID", "alice")
				w := httptest.NewRecorder()
				m.h.ServeHTTP(w, r)
				if w.Code != c.status && !(c.status == 307 && w.Code == 301) {
					t.Errorf("status %d, want %d", w.Code, c.status)
				}
				if n := len(store.Actions()) - before; n != m.want || len(w.Header()["X-Ratelimit-Limit"]) != m.want {
					t.Errorf("charged %d times, headers %v; want %d", n, w.Header(), m.want)
				}
			}
		})
	}
}

// The handler has the very writer that the server made.
func TestTheWriterIsNotWrapped(t *testing.T) {
	for _, cfg := range []nethttp.Config{{}, {Keep: true, Deny: func(http.ResponseWriter, *http.Request, core.Decision) {}}} {
		var got http.ResponseWriter
		h := cfg.Limit(five(memory()), xUserID, keyfuncs.Action("x"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w }))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User-ID", "alice")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); got != http.ResponseWriter(w) {
			t.Errorf("got a %T", got)
		}
	}
}

// Without Keep the handler has the very request; with it, one that still has the
// mux's match and the context's values and end.
func TestTheRequestIsPassedUnchanged(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	defer cancel()
	for _, keep := range []bool{false, true} {
		mux := http.NewServeMux()
		var got *http.Request
		mux.Handle("GET /a/{id}", nethttp.Config{Keep: keep}.Limit(five(memory()), keyfuncs.Everyone, keyfuncs.Route)(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })))
		r := httptest.NewRequestWithContext(ctx, "GET", "/a/7", nil)
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if (got == r) == keep {
			t.Errorf("keep %t: the request is the same: %t", keep, got == r)
		}
		if got.PathValue("id") != "7" || got.Pattern != "GET /a/{id}" || got.Context().Value(key{}) != "v" {
			t.Errorf("keep %t: %q %q %v", keep, got.PathValue("id"), got.Pattern, got.Context().Value(key{}))
		}
		if _, ok := nethttp.Decision(got); ok != keep {
			t.Errorf("keep %t: there is a decision: %t", keep, ok)
		}
		if keep {
			if cancel(); got.Context().Err() == nil {
				t.Error("the kept context does not end with the request's")
			}
		}
	}
}

// What a mux inside finds out is known to a middleware outside, as it is without Keep.
func TestALoggerOutsideSeesThePattern(t *testing.T) {
	for _, cfg := range []nethttp.Config{{}, {Keep: true}, {Headers: gate.XRateLimitAndIETF}} {
		ran := gatetest.NewRan(t, 2)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /a/{id}", func(_ http.ResponseWriter, r *http.Request) {
			ran.Now()
			if r.Header.Get("X-Panics") != "" {
				panic("mine")
			}
		})
		h := cfg.Limit(five(memory()), xUserID, keyfuncs.Action("x"))(cfg.Limit(five(memory()), xUserID, keyfuncs.Action("x"))(mux))
		for _, panics := range []string{"", "yes"} {
			r := httptest.NewRequest("GET", "/a/7", nil)
			r.Header.Set("X-User-ID", "alice")
			r.Header.Set("X-Panics", panics)
			ctx := r.Context()
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			if r.Context() != ctx {
				t.Errorf("%+v: the request of a middleware outside has another context", cfg) // which it may read meanwhile
			}
			if r.Pattern != "GET /a/{id}" || r.PathValue("id") != "7" {
				t.Errorf("%+v: the pattern is %q, the id %q", cfg, r.Pattern, r.PathValue("id"))
			}
		}
	}
}

// A request that is served again, as by a middleware that retries, has the marks of one
// time only.
func TestARequestServedAgain(t *testing.T) {
	depth := 0
	h := nethttp.Config{Keep: true}.Limit(five(memory()), xUserID, keyfuncs.Action("x"))(
		nethttp.Config{Keep: true}.Limit(five(memory()), xUserID, keyfuncs.Action("x"))(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				depth = 0
				for c := reflect.ValueOf(r.Context()); strings.HasPrefix(c.Type().String(), "*gate.mark["); depth++ {
					c = reflect.ValueOf(c.Elem().FieldByName("Context").Interface())
				}
			})))
	r := httptest.NewRequest("GET", "/a/7", nil)
	r.Header.Set("X-User-ID", "alice")
	for range 3 {
		if h.ServeHTTP(httptest.NewRecorder(), r); depth != 2 {
			t.Errorf("there are %d marks, want 2", depth)
		}
	}
}

// A Failure says what was asked, and unwraps.
func TestFailure(t *testing.T) {
	var got error
	h := nethttp.Config{Fail: func(_ http.ResponseWriter, _ *http.Request, err error) { got = err }}.
		Limit(five(memory()), keyfuncs.Header("X-Missing"), keyfuncs.Action("x"))(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	var f *gate.Failure
	if !errors.As(got, &f) || f.Status != 400 || !errors.Is(got, keyfuncs.ErrNoKey) {
		t.Fatalf("got %#v", got)
	}
	if want := "nethttp: user: keyfuncs: the request has no key: the header X-Missing is missing or empty"; got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The headers that a browser's script may read are those that we write.
func TestExposedHeaders(t *testing.T) {
	exposed := nethttp.ExposedHeaders()
	for i := range exposed {
		exposed[i] = http.CanonicalHeaderKey(exposed[i])
	}
	h := nethttp.Config{Headers: gate.XRateLimitAndIETF}.Limit(one(memory()), keyfuncs.Everyone, keyfuncs.Action("x"))(http.NotFoundHandler())
	ask(h)
	safelisted := []string{"Cache-Control", "Content-Type"}
	got := ask(h).Header()
	if len(got) != 8 {
		t.Errorf("a refusal has %v", got)
	}
	for name := range got {
		if !slices.Contains(append(exposed, safelisted...), name) {
			t.Errorf("%s is not exposed", name)
		}
	}
	exposed[0] = "changed"
	if nethttp.ExposedHeaders()[0] == "changed" {
		t.Error("the caller has our own slice")
	}
}
