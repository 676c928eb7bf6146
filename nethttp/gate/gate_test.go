package gate_test

import (
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	echov5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What is forgotten at start-up is said there, by the adapter's name, with what to
// change.
func TestStartUp(t *testing.T) {
	ok := five(memory())
	store := memory()
	action := keyfuncs.Action("reply")
	wrong := func(*http.Request, int) bool { return false }
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"net/http: no limiter", func() { nethttp.Limit(nil, xUserID, action) }, "nethttp: Limit: the limiter is nil; make one with core.New"},
		{"net/http: a limiter not from New", func() { nethttp.Limit(&core.Limiter{}, xUserID, action) }, "nethttp: Limit: the limiter is empty; make one with core.New"},
		{"Gin: a limiter not from New", func() { ginlimit.Limit(&core.Limiter{}, ginlimit.Value("user"), ginlimit.Route) }, "ginlimit: Limit: the limiter is empty"},
		{"Echo: a limiter not from New", func() { echolimit.Limit(&core.Limiter{}, echolimit.Value("user"), echolimit.Route) }, "echolimit: Limit: the limiter is empty"},
		{"Gin: net/http's Route", func() { ginlimit.From(keyfuncs.Route) }, "ginlimit: keyfuncs.Route knows only the routes of net/http; use ginlimit.Route"},
		{"Echo: net/http's Route", func() { echolimit.From(keyfuncs.Route) }, "echolimit: keyfuncs.Route knows only the routes of net/http; use echolimit.Route"},
		{"net/http: Route as the user", func() { nethttp.Limit(ok, keyfuncs.Route, keyfuncs.Route) }, "nethttp: keyfuncs.Route is given as the user; give Limit first the user and then the action"},
		{"net/http: RemoteIP as the action", func() { nethttp.Limit(ok, xUserID, keyfuncs.RemoteIP) }, "nethttp: keyfuncs.RemoteIP is given as the action;"},
		{"net/http: Everyone as the action", func() { nethttp.Config{}.Limit(ok, xUserID, keyfuncs.Everyone) }, "nethttp: keyfuncs.Everyone is given as the action;"},
		{"Gin: Route as the user", func() { ginlimit.Limit(ok, ginlimit.Route, ginlimit.Route) }, "ginlimit: ginlimit.Route is given as the user;"},
		{"Echo: Route as the user", func() { echolimit.Limit(ok, echolimit.Route, echolimit.Route) }, "echolimit: echolimit.Route is given as the user;"},
		{"Echo v5: Route as the user", func() { echov5.Limit(ok, echov5.Route, echov5.Route) }, "echolimit: echov5.Route is given as the user;"},
		{"net/http: Headers that there are not", func() { nethttp.Config{Headers: 5}.Limit(ok, xUserID, action) }, "nethttp: Limit: Headers is 5; use a constant of package gate, such as gate.IETF"},
		{"net/http: limiters of two stores", func() { nethttp.LimitAll(nethttp.By(ok, xUserID, action), nethttp.By(five(memory()), xUserID, action)) }, "nethttp: LimitAll: the limiters of subjects 0 and 1 have different stores; make them with one"},
		{"Gin: the third limiter of another store", func() {
			by := func(l *core.Limiter) gate.Subject[*gin.Context] {
				return ginlimit.By(l, ginlimit.Value("user"), ginlimit.Route)
			}
			ginlimit.Config{FinalCost: func(*gin.Context, int) int { return 1 }}.LimitAll(by(ok), by(ok), by(five(memory())))
		}, "ginlimit: LimitAll: the limiters of subjects 0 and 2 have different stores; make them with one"},
		{"Gin: no subjects", func() { ginlimit.LimitAll() }, "ginlimit: LimitAll: no subjects; give at least one"},
		{"net/http: one subject twice", func() { nethttp.LimitAll(nethttp.By(ok, xUserID, action), nethttp.By(ok, xUserID, action)) }, "nethttp: LimitAll: subjects 0 and 1 are equal: they have one user and share a state; leave one out"},
		{"net/http: by another limiter of one state", func() {
			nethttp.LimitAll(nethttp.By(ok, xUserID, action), nethttp.By(core.Must(ok.With(core.Refundable{})), xUserID, keyfuncs.Action("reply")).Optional())
		}, "nethttp: LimitAll: subjects 0 and 1 are equal"},
		{"net/http: everyone twice", func() {
			nethttp.LimitAll(nethttp.By(ok, xUserID, action), nethttp.By(ok, keyfuncs.Everyone, action), nethttp.By(ok, keyfuncs.Everyone, action))
		}, "nethttp: LimitAll: subjects 1 and 2 are equal"},
		{"net/http: a limit of all actions twice", func() {
			perUser := core.Must(core.New(store, core.FixedWindow(5, time.Minute).PerUser()))
			nethttp.LimitAll(nethttp.By(perUser, xUserID, action), nethttp.By(perUser, xUserID, keyfuncs.Action("another")))
		}, "nethttp: LimitAll: subjects 0 and 1 are equal"},
		{"net/http: a ban from all actions twice", func() {
			ban := core.BanPolicy{PerUser: true}
			one, other := core.Must(core.Must(core.New(store, core.FixedWindow(5, time.Minute))).With(ban)), core.Must(core.Must(core.New(store, core.FixedWindow(5, time.Hour))).With(ban))
			nethttp.LimitAll(nethttp.By(one, xUserID, action), nethttp.By(other, xUserID, action))
		}, "nethttp: LimitAll: subjects 0 and 1 are equal"},
		{"Gin: one action by two functions", func() {
			user := ginlimit.Value("user")
			ginlimit.LimitAll(ginlimit.By(ok, user, ginlimit.Action("reply")), ginlimit.By(ok, user, ginlimit.Action("reply")))
		}, "ginlimit: LimitAll: subjects 0 and 1 are equal"},
		{"Echo: one action by two functions", func() {
			user := echolimit.Value("user")
			echolimit.LimitAll(echolimit.By(ok, user, echolimit.Action("reply")), echolimit.By(ok, user, echolimit.Action("reply")))
		}, "echolimit: LimitAll: subjects 0 and 1 are equal"},
		{"Echo v5: one action by two functions", func() {
			user := echov5.Value("user")
			echov5.LimitAll(echov5.By(ok, user, echov5.Action("reply")), echov5.By(ok, user, echov5.Action("reply")))
		}, "echolimit: LimitAll: subjects 0 and 1 are equal"},
		{"net/http: OnlyFailures and Settle", func() { nethttp.Config{OnlyFailures: wrong, Settle: true}.Limit(ok, xUserID, action) }, "nethttp: Limit: OnlyFailures is set beside FinalCost or Settle"},
		{"Gin: OnlyFailures and FinalCost", func() {
			ginlimit.Config{OnlyFailures: func(*gin.Context, int) bool { return false }, FinalCost: func(*gin.Context, int) int { return 1 }}.Limit(ok, ginlimit.Value("user"), ginlimit.Route)
		}, "ginlimit: Limit: OnlyFailures is set beside FinalCost or Settle"},
		{"net/http: no user", func() { nethttp.Limit(ok, nil, action) }, "nethttp: Limit: the user's key function is nil; say whom to limit"},
		{"net/http: no action", func() { nethttp.Limit(ok, xUserID, nil) }, "nethttp: Limit: the action's key function is nil; say what to limit"},
		{"net/http: no handler", func() { nethttp.Limit(ok, xUserID, action)(nil) }, "nethttp: the handler to limit is nil"},
		{"net/http: no handler for LimitAll", func() { nethttp.LimitAll(nethttp.By(ok, xUserID, action))(nil) }, "nethttp: the handler to limit is nil"},
		{"net/http: the long form", func() { nethttp.Config{Keep: true}.Limit(nil, xUserID, action) }, "nethttp: Limit: the limiter is nil"},
		{"net/http: a negative MaxWait", func() { nethttp.Config{MaxWait: -1}.Limit(ok, xUserID, action) }, "nethttp: Limit: MaxWait -1ns is negative; 0 refuses at once"},
		{"net/http: a negative MaxWaiting", func() { nethttp.Config{MaxWaiting: -1}.Limit(ok, xUserID, action) }, "nethttp: Limit: MaxWaiting -1 is negative; 0 is 1000"},
		{"Gin: no limiter", func() { ginlimit.Limit(nil, ginlimit.Value("user"), ginlimit.Route) }, "ginlimit: Limit: the limiter is nil; make one with core.New"},
		{"Gin: nothing to make a key function from", func() { ginlimit.From(nil) }, "ginlimit: From: the key function is nil"},
		{"Echo: no limiter", func() { echolimit.Limit(nil, echolimit.Value("user"), echolimit.Route) }, "echolimit: Limit: the limiter is nil; make one with core.New"},
		{"Echo: nothing to make a key function from", func() { echolimit.From(nil) }, "echolimit: From: the key function is nil"},
		{"Echo v5: a limiter not from New", func() { echov5.Limit(&core.Limiter{}, echov5.Value("user"), echov5.Route) }, "echolimit: Limit: the limiter is empty"},
		{"Echo v5: net/http's Route", func() { echov5.From(keyfuncs.Route) }, "echolimit: keyfuncs.Route knows only the routes of net/http; use echolimit.Route"},
		{"Echo v5: no limiter", func() { echov5.Limit(nil, echov5.Value("user"), echov5.Route) }, "echolimit: Limit: the limiter is nil; make one with core.New"},
		{"Echo v5: nothing to make a key function from", func() { echov5.From(nil) }, "echolimit: From: the key function is nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, c.want) {
					t.Errorf("panicked with %q, want %q", got, c.want)
				}
			}()
			c.do()
		})
	}
}

// Subjects that differ are mounted, though they may share a state for some users.
func TestSubjectsThatAreNotEqual(t *testing.T) {
	store := memory()
	l := five(store)
	reply, other := keyfuncs.Action("reply"), keyfuncs.Action("other")
	a, b := keyfuncs.Header("A"), keyfuncs.Header("B")
	nethttp.LimitAll(nethttp.By(l, a, reply), nethttp.By(l, b, reply))
	nethttp.LimitAll(nethttp.By(l, a, reply), nethttp.By(l, a, other))
	nethttp.LimitAll(nethttp.By(l, a, reply), nethttp.By(l, a, keyfuncs.Route))
	nethttp.LimitAll(nethttp.By(l, a, reply), nethttp.By(core.Must(core.New(store, fivePerMinute.Named("x"))), a, reply))
	nethttp.LimitAll(nethttp.By(l, keyfuncs.RemoteIP, reply), nethttp.By(l, keyfuncs.Everyone, reply))
	nethttp.LimitAll(nethttp.By(l, keyfuncs.Join(a, b), reply), nethttp.By(l, keyfuncs.Join(b, a), reply))
}

// A panic of a hook is the server's to deal with; the handler does not run.
func TestAHookPanics(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			h := ad.Mount(gatetest.App{Routes: func() []gatetest.Route {
				rt := reply(&nethttp.Config{Deny: func(http.ResponseWriter, *http.Request, core.Decision) { panic("mine") }})(decides(refusal)())
				rt[0].Handler = func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) { t.Error("the handler ran") }
				return rt
			}()}.Filled())
			defer func() {
				if v := recover(); v != "mine" {
					t.Errorf("recovered %v", v)
				}
			}()
			ask(h)
		})
	}
}

func five(s core.Store) *core.Limiter { return core.Must(core.New(s, fivePerMinute)) }

// A program that gives an action as the user, or a user as the action, does not compile. A function of
// one's own can be either, also if From made it one of Gin or Echo.
func TestUserAndActionHaveTypes(t *testing.T) {
	prefix := netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct {
		name           string
		limit          any
		users, actions []any
		own            any
	}{
		{
			"net/http", nethttp.Limit,
			[]any{
				keyfuncs.Header("X-User-ID"), keyfuncs.Cookie("session"), keyfuncs.BasicAuthUser(), keyfuncs.ContextValue("user"),
				keyfuncs.ForwardedIP(prefix), keyfuncs.TrustedHeaderIP("X-Real-IP", prefix), keyfuncs.Subnet{}.Of(keyfuncs.RemoteAddr),
			},
			[]any{keyfuncs.Action("x")},
			keyfuncs.Join(keyfuncs.RemoteIP),
		},
		{"Gin", ginlimit.Limit, []any{ginlimit.Value("user")}, []any{ginlimit.Action("x")}, ginlimit.From(xUserID)},
		{"Echo", echolimit.Limit, []any{echolimit.Value("user")}, []any{echolimit.Action("x")}, echolimit.From(xUserID)},
		{"Echo v5", echov5.Limit, []any{echov5.Value("user")}, []any{echov5.Action("x")}, echov5.From(xUserID)},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := reflect.TypeOf(c.limit)
			takes := func(f any, user, action bool) {
				if got := reflect.TypeOf(f); got.AssignableTo(limit.In(1)) != user || got.AssignableTo(limit.In(2)) != action {
					t.Errorf("%v is for a user: %t, for an action: %t; want %t, %t", got, !user, !action, user, action)
				}
			}
			for _, f := range c.users {
				takes(f, true, false)
			}
			for _, f := range c.actions {
				takes(f, false, true)
			}
			takes(c.own, true, true)
		})
	}
}
