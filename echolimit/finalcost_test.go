package echolimit_test

import (
	"errors"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// The handler has Echo's own response around the server's own writer.
func TestTheWriterIsNotWrapped(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		ran := gatetest.NewRan(t, 1)
		e := v.newEcho()
		w := httptest.NewRecorder()
		var before any
		e.use(func(next handler) handler {
			return func(c ctx) error { before, _ = v.response(c); return next(c) }
		})
		e.add("GET", "/a", func(c ctx) error {
			ran.Now()
			if own, servers := v.response(c); own != before || servers != w {
				t.Errorf("got a %T around a %T", own, servers)
			}
			return nil
		}, v.limit(config{keep: true}, five(memory()), v.everyone(), v.route))
		e.ServeHTTP(w, httptest.NewRequest("GET", "/a", nil))
	})
}

// With a FinalCost the handler has Echo's own Response, and so has Deny. Its writer comes back
// afterwards, even if they panic.
func TestTheWriterThatIsWatched(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		ran := gatetest.NewRan(t, 8)
		e := v.newEcho()
		var before any
		e.use(func(next handler) handler {
			return func(c ctx) error {
				ran.Now()
				var servers any
				before, servers = v.response(c)
				defer func() {
					_ = recover()
					if own, now := v.response(c); own != before || now != servers {
						t.Errorf("the limit left a %T around a %T", own, now)
					}
				}()
				return next(c)
			}
		})
		answers := func(c ctx) error {
			ran.Now()
			if own, _ := v.response(c); own != before {
				t.Errorf("got a %T", own)
			}
			if c.Path() == "/panics" {
				panic("mine")
			}
			return c.NoContent(204)
		}
		limit := v.limit(config{
			finalCost: func(ctx, int) int { return 1 },
			deny:      func(c ctx, _ core.Decision) error { return answers(c) },
		}, one(memory()), v.everyone(), v.route)
		for _, path := range []string{"/a", "/panics"} {
			e.add("GET", path, answers, limit)
			do(e, "GET", path)
			do(e, "GET", path)
		}
	})
}

// The status that FinalCost gets is the one that Echo's error handler will send.
func TestFinalCostStatus(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		type request struct {
			name   string
			do     handler
			status int
			panics bool
		}
		requests := []request{
			{"nothing", func(ctx) error { return nil }, 200, false},
			{"a status", func(c ctx) error { return c.NoContent(204) }, 204, false},
			{"JSON", func(c ctx) error { return c.JSON(201, 1) }, 201, false},
			{"an HTTPError", func(ctx) error { return v.httpError(404, "none") }, 404, false},
			{"any other error", func(ctx) error { return errors.New("boom") }, 500, false},
			{"an error after a response", func(c ctx) error { return errors.Join(c.NoContent(202), errors.New("late")) }, 202, false},
			{"an error that was answered", func(c ctx) error { v.errorHandler(c, v.httpError(403, "no")); return nil }, 403, false},
			{"a panic", func(ctx) error { panic("mine") }, 500, true},
		}
		for _, w := range v.wrapped {
			requests = append(requests, request{w.name, func(ctx) error { return w.err }, w.status, false})
		}
		for _, c := range requests {
			t.Run(c.name, func(t *testing.T) {
				var got []int
				limiter := five(memory())
				e := v.newEcho()
				e.add("GET", "/a", c.do, v.limit(config{finalCost: func(c ctx, status int) int {
					if c.Path() != "/a" {
						t.Errorf("the request is another: %q", c.Path())
					}
					got = append(got, status)
					return 0
				}}, limiter, v.everyone(), v.action("a")))
				code := c.status
				func() {
					defer func() {
						if v := recover(); (v != nil) != c.panics {
							t.Errorf("panicked with %v", v)
						}
					}()
					code = do(e, "GET", "/a").Code
				}()
				if !slices.Equal(got, []int{c.status}) || code != c.status {
					t.Errorf("answered %d, FinalCost got %v, want %d", code, got, c.status)
				}
				if d, err := limiter.Peek(t.Context(), "~everyone", "a"); err != nil || d.Remaining != 5 {
					t.Errorf("%d remain, %v", d.Remaining, err)
				}
			})
		}
	})
}

// After early hints Echo sends no status: the client gets 200, and so does FinalCost.
func TestFinalCostAfterEarlyHints(t *testing.T) {
	inBoth(t, func(t *testing.T, v version) {
		for name, then := range map[string]handler{
			"nothing":        func(ctx) error { return nil },
			"another status": func(c ctx) error { return c.NoContent(503) },
			"an error":       func(ctx) error { return v.httpError(503, "no") },
			"a panic":        func(ctx) error { panic("mine") },
		} {
			t.Run(name, func(t *testing.T) {
				got := make(chan int, 1)
				e := v.newEcho()
				e.use(func(next handler) handler {
					return func(c ctx) error {
						defer func() { _ = recover() }()
						return next(c)
					}
				})
				e.add("GET", "/a", func(c ctx) error {
					_ = c.NoContent(103)
					return then(c)
				}, v.limit(config{finalCost: func(_ ctx, status int) int { got <- status; return 1 }}, five(memory()), v.everyone(), v.action("a")))
				s := httptest.NewServer(e)
				defer s.Close()
				resp, err := s.Client().Get(s.URL + "/a")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if status := <-got; resp.StatusCode != 200 || status != 200 {
					t.Errorf("answered %d, FinalCost got %d", resp.StatusCode, status)
				}
			})
		}
	})
}
