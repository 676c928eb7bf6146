package echolimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What every adapter answers is tested in package nethttp/gate, for all of them by one
// table: run go test ./nethttp/gate. Here is what only Echo has.

func init() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // package nethttp/gate tests what is logged
}

var memory, five, one, do, want = gatetest.Memory, gatetest.Five, gatetest.One, gatetest.Do, gatetest.Want

func ok(c ctx) error { return c.String(200, "ok") }

// The central error handler sees a refusal and a failure as what they are, and may
// answer in its own way; the headers stay.
func TestTheCentralErrorHandler(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		for _, c := range []struct {
			name   string
			user   key
			status int
			title  string
		}{
			{"a refusal", v.everyone(), 429, "Too many requests"},
			{"a failure", v.value("nobody"), 400, "Bad Request"},
		} {
			t.Run(c.name, func(t *testing.T) {
				limiter := one(memory())
				if _, err := limiter.Allow(t.Context(), "~everyone", "a"); err != nil {
					t.Fatal(err)
				}
				e := v.newEcho()
				var seen error
				e.onError(func(c ctx, err error) {
					seen = err
					_ = c.String(599, "central")
				})
				e.add("GET", "/a", func(ctx) error { t.Error("the handler ran"); return nil },
					v.limit(config{}, limiter, c.user, v.action("a")))
				w := do(e, "GET", "/a")
				if p, ok := v.problem(seen); !ok || p.Status != c.status || p.Title != c.title {
					t.Errorf("the central handler saw %#v", seen)
				}
				if got := w.Header().Get("Content-Type"); w.Code != 599 || w.Body.String() != "central" || got != "text/plain; charset=UTF-8" {
					t.Errorf("got %d %s %q", w.Code, got, w.Body)
				}
				if c.status == 429 && w.Header().Get("Retry-After") != "60" {
					t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
				}
			})
		}
	})
}

// The Content-Type is the problem's only where a problem is written.
func TestTheContentType(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		always := func(f func(ctx, error)) func(server) func(ctx, error) {
			return func(server) func(ctx, error) { return f }
		}
		html := func(c ctx, _ error) { _ = c.HTML(429, "<h1>later</h1>") }
		okay := func(c ctx, _ error) { _ = c.JSON(200, "never mind") }
		empty := func(c ctx, _ error) { _ = c.NoContent(429) }
		own := func(c ctx, _ error) { _ = c.JSON(429, map[string]string{"error": "later"}) }
		part := func(c ctx, err error) {
			p, _ := v.problem(err) // the field Problem
			_ = c.JSON(429, map[string]any{"error": p})
		}
		itself := func(c ctx, err error) { _ = c.JSON(429, v.encoded(err)) }
		typed := func(c ctx, err error) {
			v.header(c).Set("Content-Type", "application/vnd.api+json")
			itself(c, err)
		}
		logged := func(c ctx, err error) {
			_, _ = json.Marshal(v.encoded(err))
			own(c, err)
		}
		for _, c := range []struct {
			name    string
			outside string // what a middleware further out has set
			method  string
			handler func(server) func(ctx, error)
			want    string
		}{
			{"Echo's own handler", "", "GET", nil, "application/problem+json"},
			{"Echo's own handler, of HEAD", "", "HEAD", nil, "application/problem+json"},
			{"a default of the application's", "text/html", "GET", nil, "application/problem+json"},
			{"a handler that answers in HTML", "", "GET", always(html), "text/html; charset=UTF-8"},
			{"a handler that answers in its own JSON", "", "GET", always(own), "application/json"},
			{"a handler that sends the problem", "", "GET", always(itself), "application/problem+json"},
			{"a handler that sends the problem indented", "", "GET?pretty", always(itself), "application/problem+json"},
			{"a handler that sends the problem under its own type", "", "GET", always(typed), "application/vnd.api+json"},
			{"a handler that sends the field Problem in its own JSON", "", "GET", always(part), "application/json"},
			{"a handler that logs the problem and answers in its own JSON", "", "GET", always(logged), "application/json"},
			{"a handler that calls Echo's own", "", "GET", func(e server) func(ctx, error) { return e.ownOnError }, "application/problem+json"},
			{"a handler that answers without a body", "", "GET", always(empty), ""},
			{"a handler that answers 200", "", "GET", always(okay), "application/json"},
		} {
			t.Run(c.name, func(t *testing.T) {
				e := v.newEcho()
				if c.handler != nil {
					e.onError(c.handler(e))
				}
				limit := v.limit(config{cost: func(ctx) (int, error) { return 6, nil }}, five(memory()), v.everyone(), v.action("a"))
				method, query, _ := strings.Cut(c.method, "?")
				e.add(method, "/a", ok, func(next handler) handler {
					return func(ec ctx) error {
						if c.outside != "" {
							v.header(ec).Set("Content-Type", c.outside)
						}
						return next(ec)
					}
				}, limit)
				if got := do(e, method, "/a?"+query).Header()["Content-Type"]; strings.Join(got, " and ") != c.want {
					t.Errorf("got %q, want %s", got, c.want)
				}
			})
		}
	})
}

// The handler's own errors keep the headers, whatever they are.
func TestErrorsOfTheHandler(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		for _, c := range append([]wrapped{
			{"an HTTPError", v.httpError(404, "no such post"), 404},
			{"any other", errors.New("boom"), 500},
		}, v.wrapped...) {
			t.Run(c.name, func(t *testing.T) {
				e := v.newEcho()
				e.add("GET", "/a", func(ctx) error { return c.err }, v.limit(config{}, five(memory()), v.everyone(), v.action("a")))
				w := do(e, "GET", "/a")
				want(t, w, c.status, "4")
				if got := w.Header().Get("Content-Type"); got != "application/json" {
					t.Errorf("Content-Type: %q", got)
				}
			})
		}
	})
}

// An error of a hook goes to the central handler; no error and nothing written is
// the default answer.
func TestHooks(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		nobody := v.value("nobody")
		for _, c := range []struct {
			name   string
			cfg    config
			user   key
			status int
			body   string
			fails  bool // what middleware further out sees
		}{
			{"a Deny that answers", config{deny: func(c ctx, _ core.Decision) error { return c.String(420, "no") }}, v.everyone(), 420, "no", false},
			{"a Deny with a status", config{deny: func(c ctx, _ core.Decision) error { return c.NoContent(403) }}, v.everyone(), 403, "", false},
			{"a Deny that switches protocols", config{deny: func(c ctx, _ core.Decision) error { return c.NoContent(101) }}, v.everyone(), 101, "", false},
			{"a Deny with an HTTPError", config{deny: func(ctx, core.Decision) error { return v.httpError(420, "no") }}, v.everyone(), 420, `{"message":"no"}` + "\n", true},
			{"a Deny with another error", config{deny: func(ctx, core.Decision) error { return errors.New("boom") }}, v.everyone(), 500, `{"message":"Internal Server Error"}` + "\n", true},
			{"a Deny that answers and returns an error", config{deny: func(c ctx, _ core.Decision) error {
				return errors.Join(c.String(420, "no"), errors.New("boom"))
			}}, v.everyone(), 420, "no", true},
			{"a Deny that does nothing", config{deny: func(ctx, core.Decision) error { return nil }}, v.everyone(), 429, "", true},
			{"a Fail that answers", config{fail: func(c ctx, _ error) error { return c.String(401, "who?") }}, nobody, 401, "who?", false},
			{"a Fail with an HTTPError", config{fail: func(_ ctx, err error) error {
				return v.httpError(401, fmt.Sprint(errors.Is(err, keyfuncs.ErrNoKey)))
			}}, nobody, 401, `{"message":"true"}` + "\n", true},
			{"a Fail that does nothing", config{fail: func(ctx, error) error { return nil }}, nobody, 400, "", true},
		} {
			t.Run(c.name, func(t *testing.T) {
				limiter := one(memory())
				if _, err := limiter.Allow(t.Context(), "~everyone", "a"); err != nil {
					t.Fatal(err)
				}
				e := v.newEcho()
				var seen error
				outer := func(next handler) handler {
					return func(c ctx) error { seen = next(c); return seen }
				}
				e.add("GET", "/a", func(ctx) error { t.Error("the handler ran"); return nil }, outer, v.limit(c.cfg, limiter, c.user, v.action("a")))
				w := do(e, "GET", "/a")
				if (seen != nil) != c.fails {
					t.Errorf("middleware further out sees %v", seen)
				}
				if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
					t.Errorf("got %d %q, want %d %q", w.Code, w.Body, c.status, c.body)
				}
				if c.body == "" && c.fails && w.Header().Get("Content-Type") != "application/problem+json" {
					t.Errorf("got %v %q, want a problem", w.Header(), w.Body)
				}
			})
		}
	})
}

// Echo takes early hints for the response. A hook that has sent nothing else has not answered.
func TestHooksWithEarlyHints(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		for _, c := range []struct {
			name   string
			then   handler
			status int
			body   string // "": a problem
		}{
			{"and nothing", func(ctx) error { return nil }, 429, ""},
			{"and an error", func(ctx) error { return v.httpError(420, "no") }, 420, `{"message":"no"}` + "\n"},
			{"and a body, which is sent with 200", func(c ctx) error { return c.String(420, "no") }, 200, "no"},
		} {
			t.Run(c.name, func(t *testing.T) {
				limiter := one(memory())
				if _, err := limiter.Allow(t.Context(), "~everyone", "a"); err != nil {
					t.Fatal(err)
				}
				e := v.newEcho()
				deny := func(ctx ctx, _ core.Decision) error {
					_ = ctx.NoContent(103)
					return c.then(ctx)
				}
				e.add("GET", "/a", ok, v.limit(config{deny: deny}, limiter, v.everyone(), v.action("a")))
				s := httptest.NewServer(e)
				defer s.Close()
				resp, err := s.Client().Get(s.URL + "/a")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != c.status || c.body != "" && string(body) != c.body || c.body == "" && resp.Header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("got %d %v %q", resp.StatusCode, resp.Header, body)
				}
			})
		}
	})
}

// The central error handler sees what Allow refuses inside a handler, and the client does, even if the
// handler drops the decision.
func TestAllowAnswersWithTheProblem(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		limiter := one(memory())
		e := v.newEcho()
		var seen error
		e.onError(func(c ctx, err error) { seen = err; e.ownOnError(c, err) })
		e.add("GET", "/a", func(c ctx) error {
			v.allow(c, limiter, "alice", "a", 1)
			return nil
		})
		want(t, do(e, "GET", "/a"), 200, "0")
		want(t, do(e, "GET", "/a"), 429, "0")
		if p, ok := v.problem(seen); !ok || p.Status != 429 {
			t.Errorf("the central handler saw %#v", seen)
		}
	})
}
