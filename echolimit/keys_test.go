package echolimit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/core"
)

// Requests that no route matched are one action, and are charged and refused as any
// other: neither a path nor a method that a client makes up is a fresh quota.
func TestUnmatched(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		limit := func(store core.Store) middleware {
			return v.limit(config{}, five(store), v.everyone(), v.route)
		}
		for _, c := range []struct {
			name  string
			mount func(server, middleware)
			none  string // no route, and nothing is registered there
		}{
			{"by Echo.Use", func(e server, m middleware) {
				e.use(m)
				e.add("GET", "/v1/a", ok)
			}, "/none"},
			{"with another method's route there", func(e server, m middleware) {
				e.use(m)
				e.add("GET", "/v1/a", ok)
				e.add("PUT", "/v1/*", ok)
			}, "/v1/none"},
		} {
			t.Run(c.name, func(t *testing.T) {
				store := memory()
				e := v.newEcho()
				c.mount(e, limit(store))
				if w := do(e, "GET", "/v1/a"); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "4" {
					t.Fatalf("the route: %d %v", w.Code, w.Header())
				}
				for i, r := range [][2]string{{"GET", "/1"}, {"GET", "/2?x"}, {"MINTED1", "/3"}, {"MINTED2", "/4"}, {"OPTIONS", "/5"}} {
					w := do(e, r[0], c.none+r[1])
					if got := w.Header().Get("X-RateLimit-Remaining"); got != fmt.Sprint(4-i) {
						t.Errorf("%s %s: %d, remaining %q", r[0], r[1], w.Code, got)
					}
				}
				want(t, do(e, "GET", c.none+"/6"), 429, "0")
				want(t, do(e, "DELETE", "/v1/a"), 429, "0")
				if w := do(e, "HEAD", c.none+"/7"); w.Code != 429 || w.Body.Len() > 0 {
					t.Errorf("HEAD: %d %q", w.Code, w.Body)
				}
				if w := do(e, "GET", "/v1/a"); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "3" {
					t.Errorf("the route: %d %v", w.Code, w.Header())
				}
				distinct := slices.Compact(slices.Sorted(slices.Values(store.Actions())))
				if len(distinct) != 2 || !strings.HasPrefix(distinct[0], "~everyone GET /") || distinct[1] != "~everyone unmatched" {
					t.Errorf("the actions are %q", distinct)
				}
			})
		}
	})
}

// A route of one's own that ends in a star is a route.
func TestWildcards(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		for _, c := range []struct {
			name  string
			mount func(server, middleware)
			path  string
			want  string
		}{
			{"of Echo's", func(e server, m middleware) { e.use(m); e.add("GET", "/files/*", ok) }, "/files/x/y", "GET /files/*"},
			{"of a group's", func(e server, m middleware) { e.group("/v1", m)("GET", "/*", ok) }, "/v1/x", "GET /v1/*"},
			{"of files", func(e server, m middleware) { e.use(m); e.static("/static", ".") }, "/static/echolimit.go", "GET /static*"},
		} {
			t.Run(c.name, func(t *testing.T) {
				store := memory()
				e := v.newEcho()
				c.mount(e, v.limit(config{}, five(store), v.everyone(), v.route))
				want(t, do(e, "GET", c.path), 200, "4")
				if !slices.Equal(store.Actions(), []string{"~everyone " + c.want}) {
					t.Errorf("charged %q", store.Actions())
				}
			})
		}
	})
}

// A route for any method is one action in v5. In v4 it is a route for each method.
func TestAnyMethod(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		store := memory()
		e := v.newEcho()
		e.use(v.limit(config{}, five(store), v.everyone(), v.route))
		e.all("/*", ok)
		want := []string{"~everyone GET /*", "~everyone POST /*"}
		if strings.HasSuffix(t.Name(), "v5") {
			want = []string{"~everyone /*", "~everyone /*"}
		}
		do(e, "GET", "/x")
		do(e, "POST", "/x")
		if !slices.Equal(store.Actions(), want) {
			t.Errorf("charged %q", store.Actions())
		}
	})
}

// A method that is not allowed is no match, even where the path has a route.
func TestMethodNotAllowed(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		store := memory()
		e := v.newEcho()
		e.use(v.limit(config{}, five(store), v.everyone(), v.route))
		e.add("GET", "/a/:id", ok)
		want(t, do(e, "POST", "/a/7"), 405, "4")
		want(t, do(e, "HEAD", "/a/7"), 405, "3")
		want(t, do(e, "OPTIONS", "/a/7"), 204, "2") // Echo's own answer, with Allow
		want(t, do(e, "OPTIONS", "/a/7", "Origin", "https://a.example", "Access-Control-Request-Method", "GET"), 204, "")
		if got := slices.Compact(store.Actions()); !slices.Equal(got, []string{"~everyone unmatched"}) {
			t.Errorf("charged %q", got)
		}
	})
}

// Value reads what c.Set has stored; what cannot be a key is the program's mistake.
func TestValue(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		for _, c := range []struct {
			stored any
			status int
			user   string
		}{
			{"alice", 200, "alice"}, {7, 200, "7"}, {uint32(8), 200, "8"}, {0, 200, "0"},
			{nil, 400, ""}, {"", 400, ""}, {1.5, 500, ""}, {[]byte("x"), 500, ""},
		} {
			t.Run(fmt.Sprintf("%T %v", c.stored, c.stored), func(t *testing.T) {
				store := memory()
				e := v.newEcho()
				e.use(func(next handler) handler {
					return func(ec ctx) error { ec.Set("user", c.stored); return next(ec) }
				})
				e.add("GET", "/a", ok, v.limit(config{}, five(store), v.value("user"), v.action("a")))
				if w := do(e, "GET", "/a"); w.Code != c.status {
					t.Errorf("got %d, want %d", w.Code, c.status)
				}
				if got := strings.Join(store.Actions(), ""); c.status == 200 && got != c.user+" a" || c.status != 200 && got != "" {
					t.Errorf("charged %q", got)
				}
			})
		}
	})
}
