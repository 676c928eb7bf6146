package gatetest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// "If one refuses, neither is charged"
// Two subjects of one middleware, the user with 2 a minute and their organization with 3, pass together or not at
// all. Without a user an optional subject is left out, and the others decide.
func testAll(t *testing.T, adapters []Adapter) {
	type request struct {
		user, org string // "" is none
		status    int
		shown     string // X-RateLimit-Limit and -Remaining
		subject   int    // of the decision that the handler has kept
	}
	const ( // which of them are optional
		none = iota
		user
		both
	)
	const userPolicy, orgPolicy = `"fixed:1m";q=2;w=60`, `"fixed:1m";q=3;w=60`
	const bothPolicies = userPolicy + `, "fixed:1m-2";q=3;w=60`
	final := func(cost int) nethttp.Config {
		return nethttp.Config{FinalCost: func(*http.Request, int) int { return cost }}
	}
	ietf := nethttp.Config{Headers: gate.XRateLimitAndIETF}
	for _, c := range []struct {
		name         string
		optional     int
		userIsSecond bool
		cfg          nethttp.Config
		requests     []request
		policies     []string // RateLimit-Policy and RateLimit of each request, if they are shown
		user, org    int      // what remains to alice and to org-7 in the end
	}{
		{"the one that binds owns the headers", none, false, nethttp.Config{}, []request{
			{"alice", "org-7", 200, "2 1", 0},
			{"alice", "org-7", 200, "2 0", 0},
			{"alice", "org-7", 429, "2 0", 0},
			{"bob", "org-7", 200, "3 0", 1},
			{"bob", "org-7", 429, "3 0", 0},
			{"alice", "org-8", 429, "2 0", 0},
		}, nil, 0, 0},
		{"each must be known, and else nothing is charged", none, false, nethttp.Config{}, []request{
			{"alice", "", 400, "", 0},
			{"", "org-7", 400, "", 0},
		}, nil, 2, 3},
		{"RateLimit-Policy has the limits of both", none, false, ietf, []request{
			{"alice", "org-7", 200, "2 1", 0},
			{"bob", "org-7", 200, "2 1", 0},
			{"carol", "org-7", 200, "3 0", 1},
			{"carol", "org-7", 429, "3 0", 0},
		}, []string{
			bothPolicies + ` "fixed:1m";r=1;t=60`, bothPolicies + ` "fixed:1m";r=1;t=60`,
			bothPolicies + ` "fixed:1m-2";r=0;t=60`, bothPolicies + ` "fixed:1m-2";r=0;t=60`,
		}, 1, 0},
		{"a cost is that of each", none, false, *costs(2, nil), []request{
			{"alice", "org-7", 200, "2 0", 0},
			{"bob", "org-7", 429, "3 1", 0},
		}, nil, 0, 1},
		{"a final cost of 0 is given back to each", none, false, final(0), []request{
			{"alice", "org-7", 200, "2 1", 0},
			{"alice", "org-7", 200, "2 1", 0},
		}, nil, 2, 3},
		{"a final cost of more is charged to each", none, false, final(2), []request{
			{"alice", "org-7", 200, "2 1", 0},
		}, nil, 0, 1},
		{"MaxWait", none, false, nethttp.Config{MaxWait: time.Second}, []request{
			{"alice", "org-7", 200, "2 1", 0},
			{"alice", "org-7", 200, "2 0", 0},
			{"alice", "org-7", 429, "2 0", 0},
		}, nil, 0, 1},
		{"two limiters of one state for one user are a mistake", none, false, nethttp.Config{}, []request{
			{"alice", "alice", 500, "", 0},
		}, nil, 2, 3},
		{"without a user the other decides", user, false, nethttp.Config{}, []request{
			{"", "org-7", 200, "3 2", 1},
			{"alice", "org-7", 200, "2 1", 0},
			{"alice", "org-7", 200, "2 0", 0},
			{"", "org-7", 429, "3 0", 0},
		}, nil, 0, 0},
		{"whichever is first", user, true, nethttp.Config{}, []request{
			{"", "org-7", 200, "3 2", 0},
			{"alice", "org-7", 200, "2 1", 1},
			{"", "org-7", 200, "3 0", 0},
			{"", "org-7", 429, "3 0", 0},
		}, nil, 1, 0},
		{"one that is not optional must be known", user, false, nethttp.Config{}, []request{
			{"alice", "", 400, "", 0},
			{"", "", 400, "", 0},
		}, nil, 2, 3},
		{"one of those that are must be known", both, false, nethttp.Config{}, []request{
			{"alice", "", 200, "2 1", 0},
			{"", "org-7", 200, "3 2", 1},
			{"", "", 400, "", 0},
		}, nil, 1, 2},
		{"a bad key is no guest", both, false, nethttp.Config{}, []request{
			{"alice,bob", "org-7", 400, "", 0},
			{"alice", "org-7,org-8", 400, "", 0},
		}, nil, 2, 3},
		{"RateLimit-Policy has the limits that decide", both, false, ietf, []request{
			{"", "org-7", 200, "3 2", 1},
			{"alice", "", 200, "2 1", 0},
			{"alice", "org-7", 200, "2 0", 0},
		}, []string{orgPolicy + ` "fixed:1m";r=2;t=60`, userPolicy + ` "fixed:1m";r=1;t=60`, bothPolicies + ` "fixed:1m";r=0;t=60`}, 0, 1},
		{"a final cost of more is charged to who decides", user, false, final(2), []request{
			{"", "org-7", 200, "3 2", 1},
		}, nil, 2, 1},
		{"a limiter is picked for the first only if it has a user", user, false, nethttp.Config{
			Limiter: func(r *http.Request) (*core.Limiter, error) {
				if r.Header.Get("X-User-ID") == "" {
					panic("no user to pick for")
				}
				return nil, nil
			},
		}, []request{
			{"", "org-7", 200, "3 2", 1},
			{"alice", "org-7", 200, "2 1", 0},
		}, nil, 1, 1},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				Capture(t) // of the mistake
				store := Memory()
				perUser, perOrg := core.Must(core.New(store, core.FixedWindow(2, time.Minute))), core.Must(core.New(store, core.FixedWindow(3, time.Minute)))
				cfg := c.cfg
				cfg.Keep = true
				limits := []Limit{{Limiter: perUser, Guests: c.optional != none}, {Limiter: perOrg, User: keyfuncs.Header("X-Org"), Guests: c.optional == both}}
				if c.userIsSecond {
					limits[0], limits[1] = limits[1], limits[0]
				}
				limits[0].And, limits[0].Config = limits[1:], &cfg
				subject, decided := 0, 0
				h := ad.Mount(App{Routes: []Route{{Limits: limits[:1], Handler: func(w http.ResponseWriter, r *http.Request, kept func() (core.Decision, bool)) {
					d, _ := kept()
					subject = d.Subject
					done(w, r, kept)
				}}}})
				for i, r := range c.requests {
					var header []string
					for name, value := range map[string]string{"X-User-ID": r.user, "X-Org": r.org} {
						if value != "" {
							header = append(header, name, value)
						}
					}
					subject = 0
					w := Do(h, "POST", "/replies/7", header...)
					shows := func(a, b string) string {
						return strings.TrimSpace(w.Header().Get(a) + " " + w.Header().Get(b))
					}
					policies := ""
					if c.policies != nil {
						policies = c.policies[i]
					}
					if w.Code != r.status || shows("X-RateLimit-Limit", "X-RateLimit-Remaining") != r.shown || shows("RateLimit-Policy", "RateLimit") != policies {
						t.Errorf("request %d: %d, %v; want %+v %s", i, w.Code, w.Header(), r, policies)
					}
					if r.shown != "" || policies != "" {
						decided++
					}
					if subject != r.subject {
						t.Errorf("request %d: the decision is about subject %d, want %d", i, subject, r.subject)
					}
				}
				if n := len(store.Charges()); n != decided && c.cfg.FinalCost == nil {
					t.Errorf("the store was asked %d times for %d decisions", n, decided)
				}
				left := func(l *core.Limiter, who string) int {
					d, err := l.Peek(t.Context(), who, "reply")
					if err != nil {
						t.Fatal(err)
					}
					return d.Remaining
				}
				if u, o := left(perUser, "alice"), left(perOrg, "org-7"); u != c.user || o != c.org {
					t.Errorf("%d and %d remain, not %d and %d", u, o, c.user, c.org)
				}
			})
		}
	}
}
