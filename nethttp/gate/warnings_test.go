package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	echov5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// says holds what each adapter logs of the requests to a limit to what is wanted.
func says(t *testing.T, name string, want []string, limit func(core.Store) gatetest.Limit, ask func(h http.Handler)) {
	t.Helper()
	for _, ad := range adapters {
		t.Run(name+"/"+ad.Name, func(t *testing.T) {
			log := gatetest.Capture(t)
			ask(ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{limit(memory())}}}}.Filled()))
			if got := log.Take(pkg(ad.Name)); !slices.Equal(got, want) {
				t.Errorf("said %q, want %q", got, want)
			}
		})
	}
}

// roomy refuses none of a test's requests.
func roomy(s core.Store) *core.Limiter {
	return core.Must(core.New(s, core.FixedWindow(10_000, 24*time.Hour)))
}

func repeated(n int, r *http.Request) []*http.Request { return slices.Repeat([]*http.Request{r}, n) }

func serve(requests []*http.Request) func(http.Handler) {
	return func(h http.Handler) {
		for _, r := range requests {
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
}

// A limit that is mounted before the login never sees a user, and says so.
func TestNeverAUser(t *testing.T) {
	type userKey struct{}
	login := func(user string) *http.Request {
		r := httptest.NewRequest("POST", "/replies/1", nil)
		return r.WithContext(context.WithValue(r.Context(), userKey{}, user))
	}
	visitor, member, bot := login(""), login("alice"), login("bot")
	user := keyfuncs.ContextValue(userKey{})
	orBad := func(r *http.Request) (string, error) {
		if key, err := user(r); key != "bot" {
			return key, err
		}
		return "", keyfuncs.ErrBadKey
	}
	warned := []string{"WARN adapter: the first 100 requests had no user and were answered 400; the error says why; a limit that is mounted before the login never has one" +
		" | never-a-user | reply | keyfuncs: the request has no key: the context value gate_test.userKey{} is missing or empty"}
	for _, tt := range []struct {
		name     string
		requests []*http.Request
		want     []string
	}{
		{"a few visitors do not matter", repeated(99, visitor), nil},
		{"a hundred are logged once", repeated(500, visitor), warned},
		{"one user before them is enough", append(repeated(1, member), repeated(500, visitor)...), nil},
		{"one user among them is enough", slices.Concat(repeated(99, visitor), repeated(1, member), repeated(500, visitor)), nil},
		{"a key that cannot be read is logged too", repeated(500, bot), []string{"WARN adapter: the first 100 requests had no user that can be read and were answered 400; the error says what cannot be read" +
			" | never-a-user | reply | keyfuncs: the request has a bad key"}},
		{"both together are logged in the words of the last", append(repeated(99, bot), repeated(500, visitor)...), warned},
	} {
		says(t, tt.name, tt.want, func(s core.Store) gatetest.Limit { return gatetest.Limit{Limiter: roomy(s), User: orBad} }, serve(tt.requests))
	}
}

// So does an optional subject that never has a user.
func TestNeverAGuestWhoLogsIn(t *testing.T) {
	warned := []string{"WARN adapter: the first 1000 requests had no user of an optional subject, so only the other subjects limited them; the error says why; a limit that is mounted before the login never has one" +
		" | never-a-user | reply | keyfuncs: the request has no key: the header X-User-Id is missing or empty"}
	for _, tt := range []struct {
		name          string
		guests, users int
		want          []string
	}{
		{"a few guests do not matter", 999, 0, nil},
		{"a thousand are logged once", 2500, 0, warned},
		{"one user before them is enough", 2500, 1, nil},
	} {
		says(t, tt.name, tt.want, func(s core.Store) gatetest.Limit {
			return gatetest.Limit{Limiter: roomy(s), Guests: true, And: []gatetest.Limit{{Limiter: roomy(s), User: keyfuncs.Everyone}}}
		}, func(h http.Handler) {
			for range tt.users {
				gatetest.Do(h, "POST", "/replies/1", "X-User-ID", "alice")
			}
			for range tt.guests {
				gatetest.Do(h, "POST", "/replies/1")
			}
		})
	}
}

// The warnings are about each subject: one with right keys does not keep back those about another.
func TestNeverAUserOfOneSubject(t *testing.T) {
	missing := keyfuncs.Header("X-None")
	remote := func(r *http.Request) (string, error) { return r.RemoteAddr, nil }
	for _, c := range []struct {
		name         string
		user, action keyfuncs.Func
		want         string
	}{
		{"no user", missing, keyfuncs.Action("reply"), "never-a-user"},
		{"no action", keyfuncs.Everyone, missing, "never-an-action"},
		{"ports", remote, keyfuncs.Action("reply"), "user-with-port"},
	} {
		for _, wrong := range []int{0, 1} {
			for _, ad := range adapters {
				t.Run(fmt.Sprint(c.name, " of subject ", wrong, "/", ad.Name), func(t *testing.T) {
					store := memory()
					limits := []gatetest.Limit{
						{Limiter: core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))},
						{Limiter: core.Must(core.New(store, core.FixedWindow(1000, time.Hour).Named("x")))},
					}
					limits[wrong].User, limits[wrong].Action = c.user, c.action
					limits[0].And = limits[1:]
					log := gatetest.Capture(t)
					h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: limits[:1]}}}.Filled())
					for range 200 {
						gatetest.Do(h, "POST", "/replies/1", "X-User-ID", "alice")
					}
					if got := log.Take(pkg(ad.Name)); len(got) != 1 || !strings.Contains(got[0], c.want) {
						t.Errorf("said %q, want %s", got, c.want)
					}
				})
			}
		}
	}
}

// An action that relies on the user does not turn the answer into another, nor keep the warning
// back.
func TestNeverAUserAndItsActionPanics(t *testing.T) {
	want := []string{"WARN adapter: the first 100 requests had no user and were answered 400; the error says why; a limit that is mounted before the login never has one" +
		" | never-a-user |  | keyfuncs: the request has no key: the header X-User-Id is missing or empty"}
	says(t, "no user", want, func(s core.Store) gatetest.Limit {
		return gatetest.Limit{Limiter: five(s), Action: func(*http.Request) (string, error) { panic("no user") }}
	}, func(h http.Handler) {
		for i := range 100 {
			if w := gatetest.Do(h, "POST", "/replies/7"); w.Code != 400 {
				t.Errorf("request %d: %d", i+1, w.Code)
			}
		}
	})
}

// An action that no request has, and users that are connections, are told of once too.
func TestKeysThatLimitNobody(t *testing.T) {
	type actionKey struct{}
	remote := func(r *http.Request) (string, error) { return r.RemoteAddr, nil }
	request := func(remote, action string) *http.Request {
		r := httptest.NewRequest("POST", "/replies/1", nil)
		r.RemoteAddr = remote
		return r.WithContext(context.WithValue(r.Context(), actionKey{}, action))
	}
	noAction := []string{`WARN adapter: the first 100 requests had no action and were answered 400; use one that every request has, such as Action("reply") or Route` +
		" | never-an-action | keyfuncs: the request has no key: the context value gate_test.actionKey{} is missing or empty"}
	ported := []string{"WARN adapter: the users are addresses with a port, so each connection has a quota of its own; use keyfuncs.RemoteIP, or ForwardedIP behind a proxy | user-with-port"}
	for _, tt := range []struct {
		name     string
		user     keyfuncs.Func
		requests []*http.Request
		want     []string
	}{
		{"some without an action do not matter", keyfuncs.RemoteIP, repeated(99, request("192.0.2.1:1", "")), nil},
		{"a hundred are logged once", keyfuncs.RemoteIP, repeated(500, request("192.0.2.1:1", "")), noAction},
		{"one action before them is enough", keyfuncs.RemoteIP, append(repeated(1, request("192.0.2.1:1", "reply")), repeated(500, request("192.0.2.1:1", ""))...), nil},
		{"ports are logged once", remote, repeated(50, request("192.0.2.1:1", "reply")), ported},
		{"of IPv6 too", remote, repeated(50, request("[2001:db8::1]:1", "reply")), ported},
		{"an address has none", remote, repeated(50, request("2001:db8::1", "reply")), nil},
		{"one without is enough", remote, append(repeated(4, request("192.0.2.1:1", "reply")), append(repeated(1, request("alice", "reply")), repeated(50, request("192.0.2.1:1", "reply"))...)...), nil},
	} {
		says(t, tt.name, tt.want, func(s core.Store) gatetest.Limit {
			return gatetest.Limit{Limiter: roomy(s), User: tt.user, Action: keyfuncs.ContextValue(actionKey{})}
		}, serve(tt.requests))
	}
}

// An action that is a path is told of once.
func TestAnActionThatIsAPath(t *testing.T) {
	path := func(r *http.Request) (string, error) { return r.URL.Path, nil }
	paths := func(n int) (paths []string) {
		for i := range n {
			paths = append(paths, fmt.Sprint("/replies/", i))
		}
		return paths
	}
	warned := []string{`WARN adapter: a limit has met more than 1000 actions, and each user has a quota for each; an action must not have a path or an id in it: use one such as Action("reply"), or Route | many-actions`}
	for _, tt := range []struct {
		name   string
		action keyfuncs.Func
		routed bool
		paths  []string
		want   []string
	}{
		{"a thousand actions are well", path, false, slices.Repeat(paths(1000), 3), nil},
		{"one more is logged once", path, false, slices.Repeat(paths(1001), 3), warned},
		{"one action is well", keyfuncs.Action("reply"), false, paths(3000), nil},
		{"so is a route", nil, true, paths(3000), nil},
	} {
		says(t, tt.name, tt.want, func(s core.Store) gatetest.Limit {
			return gatetest.Limit{Limiter: roomy(s), Action: tt.action, Routed: tt.routed}
		}, func(h http.Handler) {
			for _, path := range tt.paths {
				gatetest.Do(h, "POST", path, "X-User-ID", "alice")
			}
		})
	}
}

// A limit of failures that has seen none may take failures for successes, as those of GraphQL are. It is told of
// once. A limit that has seen one is right, and so may one be whose clients send the right Authorization each time.
func TestNeverAFailure(t *testing.T) {
	warned := []string{"WARN adapter: the first 1000 requests that OnlyFailures was asked about were successes by their status, so the limit has never counted anything; if the handler answers failures so too, as GraphQL does with 200, have OnlyFailures report them by something else, or call Allow and Surcharge where the failure is known" +
		" | never-a-failure | reply | SlidingWindow(5, 15m)"}
	type many struct {
		n      int
		header []string
		status int
	}
	for _, tt := range []struct {
		name     string
		requests []many
		want     []string
	}{
		{"a few right ones do not matter", []many{{999, nil, 200}}, nil},
		{"a thousand are logged once", []many{{2500, nil, 200}}, warned},
		{"redirects too", []many{{1000, nil, 303}}, warned},
		{"one failure before them is enough", []many{{1, nil, 401}, {2500, nil, 200}}, nil},
		{"one failure among them is enough", []many{{999, nil, 200}, {1, nil, 401}, {2500, nil, 200}}, nil},
		{"errors show nothing", []many{{2500, nil, 500}, {999, nil, 200}}, nil},
		{"nor do they take it back", []many{{900, nil, 200}, {100, nil, 500}, {100, nil, 200}}, warned},
		{"a client that sends the right Authorization each time is well", []many{{2500, []string{"Authorization", "Basic YWxpY2U6c2VjcmV0"}, 200}}, nil},
	} {
		for _, ad := range adapters {
			t.Run(tt.name+"/"+ad.Name, func(t *testing.T) {
				limiter := core.Must(core.New(memory(), core.SlidingWindow(5, 15*time.Minute)))
				log, code := gatetest.Capture(t), 0
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{
					Limits:  []gatetest.Limit{{Limiter: limiter, Config: &nethttp.Config{OnlyFailures: func(_ *http.Request, status int) bool { return status == 401 }}}},
					Handler: func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) { w.WriteHeader(code) },
				}}}.Filled())
				for _, m := range tt.requests {
					code = m.status
					for range m.n {
						if w := gatetest.Do(h, "POST", "/replies/1", append(m.header, "X-User-ID", "alice")...); w.Code != m.status {
							t.Fatalf("%d", w.Code)
						}
					}
				}
				if got := log.Take(pkg(ad.Name)); !slices.Equal(got, tt.want) {
					t.Errorf("said %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// The error of a framework's Value names the value that is missing.
func TestValueNamesItsKey(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	_, err := ginlimit.Value("user")(&gin.Context{Request: r})
	if want := `keyfuncs: the request has no key: the Gin value "user" is missing or empty`; !errors.Is(err, keyfuncs.ErrNoKey) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	want := `keyfuncs: the request has no key: the Echo value "user" is missing or empty`
	_, err = echolimit.Value("user")(echo.New().NewContext(r, nil))
	if !errors.Is(err, keyfuncs.ErrNoKey) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = echov5.Value("user")(newEchoV5().NewContext(r, nil))
	if !errors.Is(err, keyfuncs.ErrNoKey) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// The first request of a limit that has no user is told of at once, so that nobody has to wait for the hundredth. If
// one before it had a user, it is a visitor.
func TestTheFirstRequestWithoutAUser(t *testing.T) {
	const said = "INFO adapter: the first request had no user and was answered 400, as each such request is; the error says why; a limit that is mounted before the login never has one" +
		" | keyless-request | reply | keyfuncs: the request has no key: the header X-User-Id is missing or empty"
	for _, tt := range []struct {
		name   string
		users  []string
		guests bool
		want   []string
	}{
		{"the first", []string{""}, false, []string{said}},
		{"is said once", []string{"", "", ""}, false, []string{said}},
		{"also if a user comes later", []string{"", "alice", ""}, false, []string{said}},
		{"a visitor after a user is none", []string{"alice", "", ""}, false, nil},
		{"a guest of an optional subject is none", []string{"", ""}, true, nil},
	} {
		for _, ad := range adapters {
			t.Run(tt.name+"/"+ad.Name, func(t *testing.T) {
				log, store := gatetest.Capture(t), memory()
				l := gatetest.Limit{Limiter: five(store), Guests: tt.guests}
				if tt.guests {
					l.And = []gatetest.Limit{{Limiter: five(store), User: keyfuncs.Everyone}}
				}
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{l}}}}.Filled())
				for _, user := range tt.users {
					gatetest.Do(h, "POST", "/replies/1", "X-User-ID", user)
				}
				if got := log.First(pkg(ad.Name)); !slices.Equal(got, tt.want) {
					t.Errorf("said %q, want %q", got, tt.want)
				}
			})
		}
	}
}
