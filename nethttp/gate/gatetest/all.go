package gatetest

import (
	"net/http"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// Two subjects of one middleware, the user and their organization, pass together or not at all.
func testAll(t *testing.T, adapters []Adapter) {
	type request struct {
		user, org string // "" is none
		status    int
		limit     string // of the headers
		remaining string
		policy    string // the name in RateLimit
	}
	final := func(cost int) func(*http.Request, int) int { return func(*http.Request, int) int { return cost } }
	for _, c := range []struct {
		name     string
		cfg      *nethttp.Config
		requests []request
		user     int // what remains to alice and to org-7 in the end
		org      int
		asked    int // how often the store was asked
	}{
		{"the one that binds owns the headers", nil, []request{
			{"alice", "org-7", 200, "2", "1", ""},
			{"alice", "org-7", 200, "2", "0", ""},
			{"alice", "org-7", 429, "2", "0", ""},
			{"bob", "org-7", 200, "3", "0", ""},
			{"bob", "org-7", 429, "3", "0", ""},
			{"alice", "org-8", 429, "2", "0", ""},
		}, 0, 0, 6},
		{"each must be known, and else nothing is charged", nil, []request{
			{"alice", "", 400, "", "", ""},
			{"", "org-7", 400, "", "", ""},
		}, 2, 3, 0},
		{"RateLimit-Policy has the limits of both", &nethttp.Config{Headers: gate.XRateLimitAndIETF}, []request{
			{"alice", "org-7", 200, "2", "1", `"fixed:1m";r=1;t=60`},
			{"bob", "org-7", 200, "2", "1", `"fixed:1m";r=1;t=60`},
			{"carol", "org-7", 200, "3", "0", `"fixed:1m-2";r=0;t=60`},
			{"carol", "org-7", 429, "3", "0", `"fixed:1m-2";r=0;t=60`},
		}, 1, 0, 4},
		{"a cost is that of each", costs(2, nil), []request{
			{"alice", "org-7", 200, "2", "0", ""},
			{"bob", "org-7", 429, "3", "1", ""},
		}, 0, 1, 2},
		{"a final cost of 0 is given back to each", &nethttp.Config{FinalCost: final(0)}, []request{
			{"alice", "org-7", 200, "2", "1", ""},
			{"alice", "org-7", 200, "2", "1", ""},
		}, 2, 3, 2},
		{"a final cost of more is charged to each", &nethttp.Config{FinalCost: final(2)}, []request{
			{"alice", "org-7", 200, "2", "1", ""},
		}, 0, 1, 3},
		{"MaxWait", &nethttp.Config{MaxWait: time.Second}, []request{
			{"alice", "org-7", 200, "2", "1", ""},
			{"alice", "org-7", 200, "2", "0", ""},
			{"alice", "org-7", 429, "2", "0", ""},
		}, 0, 1, 3},
		{"two limiters of one state for one user are a mistake", nil, []request{
			{"alice", "alice", 500, "", "", ""},
		}, 2, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, ad := range adapters {
				t.Run(ad.Name, func(t *testing.T) {
					Capture(t) // of the mistake
					store := Memory()
					user, org := core.Must(core.New(store, core.FixedWindow(2, time.Minute))), core.Must(core.New(store, core.FixedWindow(3, time.Minute)))
					of := keyfuncs.Header("X-Org")
					h := ad.Mount(App{Routes: []Route{{Limits: []Limit{{Limiter: user, Config: c.cfg, And: []Limit{{Limiter: org, User: of}}}}}}}.Filled())
					for i, r := range c.requests {
						header := []string{}
						if r.user != "" {
							header = append(header, "X-User-ID", r.user)
						}
						if r.org != "" {
							header = append(header, "X-Org", r.org)
						}
						w := Do(h, "POST", "/replies/7", header...)
						if got := w.Header(); w.Code != r.status || got.Get("X-RateLimit-Limit") != r.limit || got.Get("X-RateLimit-Remaining") != r.remaining || got.Get("RateLimit") != r.policy {
							t.Errorf("request %d: %d, %v; want %+v", i, w.Code, got, r)
						}
						const both = `"fixed:1m";q=2;w=60, "fixed:1m-2";q=3;w=60`
						if got := w.Header().Get("RateLimit-Policy"); r.policy != "" && got != both {
							t.Errorf("request %d: RateLimit-Policy: %s", i, got)
						}
					}
					if n := len(store.Charges()); n != c.asked {
						t.Errorf("the store was asked %d times, not %d", n, c.asked)
					}
					left := func(l *core.Limiter, who string) int {
						d, err := l.Peek(t.Context(), who, "reply")
						if err != nil {
							t.Fatal(err)
						}
						return d.Remaining
					}
					if u, o := left(user, "alice"), left(org, "org-7"); u != c.user || o != c.org {
						t.Errorf("%d and %d remain, not %d and %d", u, o, c.user, c.org)
					}
				})
			}
		})
	}
}

// Without a user an optional subject is left out, and the others decide.
func testOptional(t *testing.T, adapters []Adapter) {
	type request struct {
		user, org string // "" is none
		status    int
		limit     string // of the headers
		remaining string
		policy    string // RateLimit-Policy
		subject   int    // of the decision that the handler has kept
	}
	const userPolicy, orgPolicy = `"fixed:1m";q=2;w=60`, `"fixed:1m";q=3;w=60`
	for _, c := range []struct {
		name         string
		both         bool // optional, and not the user alone
		userIsSecond bool
		cfg          nethttp.Config
		requests     []request
		user, org    int // what remains to alice and to org-7 in the end
	}{
		{"without a user the other decides", false, false, nethttp.Config{}, []request{
			{"", "org-7", 200, "3", "2", "", 1},
			{"alice", "org-7", 200, "2", "1", "", 0},
			{"alice", "org-7", 200, "2", "0", "", 0},
			{"", "org-7", 429, "3", "0", "", 0},
		}, 0, 0},
		{"whichever is first", false, true, nethttp.Config{}, []request{
			{"", "org-7", 200, "3", "2", "", 0},
			{"alice", "org-7", 200, "2", "1", "", 1},
			{"", "org-7", 200, "3", "0", "", 0},
			{"", "org-7", 429, "3", "0", "", 0},
		}, 1, 0},
		{"one that is not optional must be known", false, false, nethttp.Config{}, []request{
			{"alice", "", 400, "", "", "", 0},
			{"", "", 400, "", "", "", 0},
		}, 2, 3},
		{"one of those that are must be known", true, false, nethttp.Config{}, []request{
			{"alice", "", 200, "2", "1", "", 0},
			{"", "org-7", 200, "3", "2", "", 1},
			{"", "", 400, "", "", "", 0},
		}, 1, 2},
		{"a bad key is no guest", true, false, nethttp.Config{}, []request{
			{"alice,bob", "org-7", 400, "", "", "", 0},
			{"alice", "org-7,org-8", 400, "", "", "", 0},
		}, 2, 3},
		{"RateLimit-Policy has the limits that decide", true, false, nethttp.Config{Headers: gate.XRateLimitAndIETF}, []request{
			{"", "org-7", 200, "3", "2", orgPolicy, 1},
			{"alice", "", 200, "2", "1", userPolicy, 0},
			{"alice", "org-7", 200, "2", "0", userPolicy + `, "fixed:1m-2";q=3;w=60`, 0},
		}, 0, 1},
		{"a cost is that of each that decides", false, false, *costs(2, nil), []request{
			{"", "org-7", 200, "3", "1", "", 1},
			{"alice", "org-7", 429, "3", "1", "", 0},
		}, 2, 1},
		{"a final cost is given back", false, false, nethttp.Config{FinalCost: func(*http.Request, int) int { return 0 }}, []request{
			{"", "org-7", 200, "3", "2", "", 1},
			{"alice", "org-7", 200, "2", "1", "", 0},
		}, 2, 3},
		{"a final cost is charged", false, false, nethttp.Config{FinalCost: func(*http.Request, int) int { return 2 }}, []request{
			{"", "org-7", 200, "3", "2", "", 1},
		}, 2, 1},
		{"a limiter is picked for the first only if it has a user", false, false, nethttp.Config{
			Limiter: func(r *http.Request) (*core.Limiter, error) {
				if r.Header.Get("X-User-ID") == "" {
					panic("no user to pick for")
				}
				return nil, nil
			},
		}, []request{
			{"", "org-7", 200, "3", "2", "", 1},
			{"alice", "org-7", 200, "2", "1", "", 0},
		}, 1, 1},
		{"MaxWait", false, false, nethttp.Config{MaxWait: time.Second}, []request{
			{"", "org-7", 200, "3", "2", "", 1},
		}, 2, 2},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				store := Memory()
				perUser, perOrg := core.Must(core.New(store, core.FixedWindow(2, time.Minute))), core.Must(core.New(store, core.FixedWindow(3, time.Minute)))
				c.cfg.Keep = true
				limits := []Limit{{Limiter: perUser, Guests: true}, {Limiter: perOrg, User: keyfuncs.Header("X-Org"), Guests: c.both}}
				if c.userIsSecond {
					limits[0], limits[1] = limits[1], limits[0]
				}
				limits[0].And, limits[0].Config = limits[1:], &c.cfg
				subject := 0
				h := ad.Mount(App{Routes: []Route{{Limits: limits[:1], Handler: func(w http.ResponseWriter, r *http.Request, kept func() (core.Decision, bool)) {
					d, _ := kept()
					subject = d.Subject
					done(w, r, kept)
				}}}})
				for i, r := range c.requests {
					header := []string{}
					if r.user != "" {
						header = append(header, "X-User-ID", r.user)
					}
					if r.org != "" {
						header = append(header, "X-Org", r.org)
					}
					subject = 0
					w := Do(h, "POST", "/replies/7", header...)
					if got := w.Header(); w.Code != r.status || got.Get("X-RateLimit-Limit") != r.limit || got.Get("X-RateLimit-Remaining") != r.remaining || got.Get("RateLimit-Policy") != r.policy {
						t.Errorf("request %d: %d, %v; want %+v", i, w.Code, got, r)
					}
					if subject != r.subject {
						t.Errorf("request %d: the decision is about subject %d, want %d", i, subject, r.subject)
					}
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
