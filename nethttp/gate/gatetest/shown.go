package gatetest

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// What a function of the limit itself has set, by an Allow of its own for example, counts as shown by a limit
// further out: it stays if it is tighter.
func testShownByAFunction(t *testing.T, adapters []Adapter) {
	type header struct{}
	reached := false // whether the framework's requests have the server's context
	show := func(r *http.Request) {
		var h http.Header // of the response
		if h, reached = r.Context().Value(header{}).(http.Header); !reached {
			return
		}
		h.Set("X-RateLimit-Limit", "9")
		h.Set("X-RateLimit-Remaining", "3")
		h.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+3600, 10))
	}
	key := func(f keyfuncs.Func) keyfuncs.Func {
		return func(r *http.Request) (string, error) { show(r); return f(r) }
	}
	for name, limit := range map[string]Limit{
		"user":    {User: key(xUserID)},
		"action":  {Action: key(keyfuncs.Action("reply"))},
		"Cost":    {Config: &nethttp.Config{Cost: func(r *http.Request) (int, error) { show(r); return 1, nil }}},
		"Limiter": {Config: &nethttp.Config{Limiter: func(r *http.Request) (*core.Limiter, error) { show(r); return nil, nil }}},
		"Skip":    {Config: &nethttp.Config{Skip: func(r *http.Request) bool { show(r); return false }}},
	} {
		for _, ad := range adapters {
			t.Run(name+"/"+ad.Name, func(t *testing.T) {
				for decided, want := range map[int]string{4: "3", 2: "2"} {
					limit.Limiter = Five(Decides(passes(decided, time.Minute))())
					inner := ad.Mount(App{Routes: []Route{{Limits: []Limit{limit}}}})
					h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), header{}, w.Header())))
					})
					w := Do(h, "POST", "/replies/7", "X-User-ID", "alice")
					if !reached {
						t.Skip("the functions of the limit cannot reach the response's header")
					}
					Want(t, w, 200, want)
				}
			})
		}
	}
}
