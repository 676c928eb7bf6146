package gatetest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// teapot answers in its own way.
var teapot = nethttp.Config{
	Deny: func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprint(w, "denied ", d.Limit)
	},
	Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprint(w, "failed")
	},
}

// What Allow answers inside a handler, by the limits around it.
func testAllowAnswersAsTheLimitAroundIt(t *testing.T, adapters []Adapter) {
	headers := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	plain, delta, ietf := nethttp.Config{}, nethttp.Config{Headers: gate.XRateLimitDelta}, nethttp.Config{Headers: gate.XRateLimitAndIETF}
	only, none := nethttp.Config{Headers: gate.IETF}, nethttp.Config{Headers: gate.NoHeaders}
	denies := core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute}
	tight, loose := core.Decision{Allowed: true, Remaining: 1, ResetAfter: time.Minute}, core.Decision{Allowed: true, Remaining: 8, ResetAfter: time.Minute}
	outer := func(d core.Decision) func() core.Store {
		return each(core.Decision{Allowed: true, Remaining: 5, ResetAfter: time.Hour}, d)
	}
	skip := func(*http.Request) bool { return true }
	skips := teapot
	skips.Skip = skip
	for _, c := range []struct {
		name   string
		around []nethttp.Config // outermost first
		own    *nethttp.Config  // the handler's, for its method Allow
		store  func() core.Store
		status int
		body   string // "" is not looked at
		want   http.Header
		gone   []string // headers that there are not
	}{
		{"Deny", []nethttp.Config{teapot}, nil, outer(denies), 418, "denied 7", headers("X-RateLimit-Remaining", "0", "Retry-After", "30"), nil},
		{"Fail", []nethttp.Config{teapot}, nil, failsInner, 418, "failed", headers("X-RateLimit-Remaining", "0", "Retry-After", "1"), nil},
		{"XRateLimitDelta", []nethttp.Config{delta}, nil, outer(tight), 200, "done", headers("X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "60"), nil},
		{"XRateLimitDelta of a failure", []nethttp.Config{delta}, nil, failsInner, 503, "", headers("X-RateLimit-Reset", "1"), nil},
		{"IETF", []nethttp.Config{ietf}, nil, outer(tight), 200, "done", headers("RateLimit-Policy", `"fixed:1m";q=7;w=60`, "RateLimit", `"fixed:1m";r=1;t=60`), nil},
		{"IETF, and the limit around is tighter", []nethttp.Config{ietf}, nil, outer(loose), 200, "done", headers("RateLimit-Policy", `"fixed:1m";q=9;w=60`, "RateLimit", `"fixed:1m";r=5;t=3600`), nil},
		{"IETF of a refusal", []nethttp.Config{ietf}, nil, outer(denies), 429, "", headers("RateLimit", `"fixed:1m";r=0;t=30`), nil},
		{"IETF of a failure", []nethttp.Config{ietf}, nil, failsInner, 503, "", headers("RateLimit-Policy", `"fixed:1m";q=7;w=60`, "RateLimit", `"fixed:1m";r=0;t=1`), nil},
		{"the innermost of two", []nethttp.Config{delta, teapot}, nil, outer(denies), 418, "denied 7", nil, nil},
		{"the innermost of two, which is a plain one", []nethttp.Config{teapot, plain}, nil, outer(denies), 429, "", nil, nil},
		{"the innermost of three, which has Keep only", []nethttp.Config{teapot, plain, {Keep: true}}, nil, outer(denies), 429, "", nil, nil},
		{"one that skips", []nethttp.Config{skips}, nil, outer(denies), 418, "denied 7", nil, nil},
		{"one that skips, and a plain one inside", []nethttp.Config{skips, plain}, nil, outer(denies), 429, "", nil, nil},
		{"one that skips inside", []nethttp.Config{teapot, {Skip: skip}}, nil, outer(denies), 429, "", nil, nil},
		{"one that skips and has Keep inside", []nethttp.Config{teapot, {Skip: skip, Keep: true}}, nil, outer(denies), 429, "", nil, nil},
		{"one that skips in the middle", []nethttp.Config{plain, skips, plain}, nil, outer(denies), 429, "", nil, nil},
		{"one with IETF that skips", []nethttp.Config{{Headers: gate.XRateLimitAndIETF, Skip: skip}}, nil, outer(tight), 200, "done", headers("RateLimit", `"fixed:1m";r=1;t=60`), nil},
		{"a plain one", []nethttp.Config{plain}, nil, outer(denies), 429, "", headers("X-RateLimit-Remaining", "0"), []string{"RateLimit"}},
		{"none", nil, nil, outer(denies), 429, "", headers("X-RateLimit-Remaining", "0"), []string{"RateLimit"}},
		{"none, and its own Deny", nil, &teapot, outer(denies), 418, "denied 7", headers("X-RateLimit-Remaining", "0", "Retry-After", "30"), nil},
		{"none, and its own Fail", nil, &teapot, failsInner, 418, "failed", nil, nil},
		{"none, and its own XRateLimitDelta", nil, &delta, outer(tight), 200, "done", headers("X-RateLimit-Reset", "60"), nil},
		{"none, and its own IETF", nil, &ietf, outer(tight), 200, "done", headers("RateLimit", `"fixed:1m";r=1;t=60`), nil},
		{"its own XRateLimitDelta inside a plain one", []nethttp.Config{plain}, &delta, outer(tight), 200, "done", headers("X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "since 1970"), nil},
		{"its own XRateLimitDelta inside a plain one, refused", []nethttp.Config{plain}, &delta, outer(denies), 429, "", headers("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "since 1970"), nil},
		{"its own IETF inside a plain one", []nethttp.Config{plain}, &ietf, outer(tight), 200, "done", headers("X-RateLimit-Remaining", "1"), []string{"RateLimit"}},
		{"its own IETF inside a plain one that skips", []nethttp.Config{{Skip: skip}}, &ietf, outer(tight), 200, "done", headers("X-RateLimit-Remaining", "1"), []string{"RateLimit"}},
		{"its own IETF inside one with Keep", []nethttp.Config{{Keep: true}}, &ietf, outer(denies), 429, "", headers("X-RateLimit-Remaining", "0"), []string{"RateLimit"}},
		{"its own IETF inside a plain one, and the store fails", []nethttp.Config{plain}, &ietf, failsInner, 503, "", headers("X-RateLimit-Remaining", "0"), []string{"RateLimit"}},
		{"its own XRateLimitDelta inside one with IETF", []nethttp.Config{ietf}, &delta, outer(tight), 200, "done", headers("X-RateLimit-Reset", "since 1970", "RateLimit", `"fixed:1m";r=1;t=60`), nil},
		{"its own XRateLimitDelta inside one with Deny, and the store fails", []nethttp.Config{teapot}, &delta, failsInner, 503, "", headers("X-RateLimit-Reset", "since 1970"), nil},
		{"its own plain one inside XRateLimitDelta", []nethttp.Config{delta}, &plain, outer(tight), 200, "done", headers("X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "60"), nil},
		{"its own plain one inside XRateLimitDelta that skips", []nethttp.Config{{Headers: gate.XRateLimitDelta, Skip: skip}}, &plain, outer(tight), 200, "done", headers("X-RateLimit-Reset", "60"), nil},
		{"IETF alone", []nethttp.Config{only}, nil, outer(tight), 200, "done", headers("RateLimit", `"fixed:1m";r=1;t=60`), []string{"X-RateLimit-Limit"}},
		{"IETF alone, and the limit around is tighter", []nethttp.Config{only}, nil, outer(loose), 200, "done", headers("RateLimit", `"fixed:1m";r=5;t=3600`), []string{"X-RateLimit-Limit"}},
		{"NoHeaders", []nethttp.Config{none}, nil, outer(denies), 429, "", headers("Retry-After", "30"), []string{"X-RateLimit-Limit", "RateLimit"}},
		{"NoHeaders that skips", []nethttp.Config{{Headers: gate.NoHeaders, Skip: skip}}, nil, outer(tight), 200, "done", nil, []string{"X-RateLimit-Limit", "RateLimit"}},
		{"none, and its own IETF alone", nil, &only, outer(tight), 200, "done", headers("RateLimit", `"fixed:1m";r=1;t=60`), []string{"X-RateLimit-Limit"}},
		{"its own plain one inside IETF alone", []nethttp.Config{only}, &plain, outer(denies), 429, "", headers("RateLimit", `"fixed:1m";r=0;t=30`), []string{"X-RateLimit-Limit"}},
		{"its own plain one inside NoHeaders", []nethttp.Config{none}, &plain, outer(tight), 200, "done", nil, []string{"X-RateLimit-Limit", "RateLimit"}},
		{"its own NoHeaders inside a plain one", []nethttp.Config{plain}, &none, outer(tight), 200, "done", headers("X-RateLimit-Remaining", "1"), nil},
		{"its own Deny inside another's", []nethttp.Config{ietf}, &teapot, outer(denies), 418, "denied 7", headers("RateLimit", `"fixed:1m";r=0;t=30`), nil},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				store := c.store()
				nine, seven := core.Must(core.New(store, core.FixedWindow(9, time.Minute))), core.Must(core.New(store, core.FixedWindow(7, time.Minute)))
				var decided core.Decision
				rt := Route{Inside: []Inside{{Limiter: seven, User: "alice", Action: "inner", Cost: 1, Config: c.own, Decided: func(d core.Decision) { decided = d }}}}
				for i := range c.around {
					rt.Limits = append(rt.Limits, Limit{Limiter: nine, Action: keyfuncs.Action("outer"), Config: &c.around[i]})
				}
				want, _, _ := store.Take(t.Context(), core.Charge{User: "alice", Action: "inner", Cost: 1, Terms: &core.Terms{Limits: seven.Limits()}})
				ran := false
				rt.Handler = func(w http.ResponseWriter, r *http.Request, kept func() (core.Decision, bool)) {
					ran = true
					done(w, r, kept)
				}
				w := httptest.NewRecorder()
				r := httptest.NewRequest("POST", "/replies/7", nil)
				r.Header.Set("X-User-ID", "alice")
				ad.Mount(App{Routes: []Route{rt}}).ServeHTTP(w, r)
				if w.Code != c.status || c.body != "" && w.Body.String() != c.body || ran != (c.status == 200) {
					t.Errorf("got %d %q, and the handler went on: %t; want %d %q", w.Code, w.Body, ran, c.status, c.body)
				}
				if decided != want {
					t.Errorf("Allow returned %+v, want %+v", decided, want)
				}
				for name := range c.want {
					got := w.Header()[name]
					if len(got) == 1 && name == "X-Ratelimit-Reset" && len(got[0]) > 9 {
						got = []string{"since 1970"}
					}
					if !slices.Equal(got, c.want[name]) {
						t.Errorf("%s: %q, want %q", name, got, c.want[name])
					}
				}
				for _, name := range c.gone {
					if got := w.Header().Get(name); got != "" {
						t.Errorf("%s: %q, want none", name, got)
					}
				}
			})
		}
	}
}

// failsInner is a store that fails for the action inner.
func failsInner() core.Store {
	return Answers(func(c core.Charge) (core.Decision, error) {
		if c.Action == "inner" {
			return core.Decision{}, errBoom
		}
		return core.Decision{Allowed: true, Limit: 9, Remaining: 5, ResetAfter: time.Hour}, nil
	})
}

// A handler that drops the decision of Allow writes nothing to the client, and the log tells of it once.
func testIgnoredRefusal(t *testing.T, adapters []Adapter) {
	servers := Serve(t)
	denies := Decides(core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute, Reason: core.ReasonLimited})
	for _, c := range []struct {
		name   string
		store  func() core.Store
		cfg    *nethttp.Config
		status int
		ends   string
	}{
		{"refused", denies, nil, 429, "}\n"},
		{"refused by Deny", denies, &teapot, 418, "denied 5"},
		{"failed", Fails("boom"), nil, 503, "}\n"},
	} {
		for _, ad := range adapters {
			if ad.KeepsWriter {
				continue
			}
			for _, s := range servers {
				t.Run(c.name+"/"+ad.Name+"/"+s.Proto, func(t *testing.T) {
					log := Capture(t)
					if ad.Forget != nil {
						ad.Forget()
					}
					errs := make(chan error, 2)
					s.Mount(ad.Mount(App{Routes: []Route{{
						Inside: []Inside{{Limiter: Five(c.store()), User: "alice", Action: "upload", Cost: 1, Config: c.cfg, Ignored: true}},
						Handler: func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) {
							_, err := io.WriteString(w, "secret")
							errs <- err
						},
					}}}))
					for range 3 {
						resp, err := s.Client().Post(s.URL+"/replies/7", "", nil)
						if err != nil {
							t.Fatal(err)
						}
						body, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || resp.StatusCode != c.status || strings.Contains(string(body), "secret") || !strings.HasSuffix(string(body), c.ends) {
							t.Errorf("the client got %d %q, %v; want %d and what Allow has answered", resp.StatusCode, body, err, c.status)
						}
						if err := <-errs; err == nil {
							t.Error("the handler is not told that what it writes is not sent")
						}
					}
					if ad.Forget == nil {
						return
					}
					said := log.Take(ad.pkg())
					if c.status == 503 {
						said = said[1:] // the store has no answer
					}
					want := "WARN adapter: a handler has written a response after Allow had answered the request; it is not sent, but what else the handler does is done: return if the decision is not Allowed | refusal-ignored | upload"
					if !slices.Equal(said, []string{want}) {
						t.Errorf("the log says %q, want once %q", said, want)
					}
				})
			}
		}
	}
}
