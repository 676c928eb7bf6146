package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
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

var (
	digits = regexp.MustCompile(`^[0-9]+$`)
	// RateLimit and RateLimit-Policy of one limit, in the words of
	// RFC 9651 (https://www.rfc-editor.org/rfc/rfc9651).
	ietfItem   = regexp.MustCompile(`^"[A-Za-z0-9:._-]+";r=([0-9]{1,15})(;t=([0-9]{1,15}))?$`)
	ietfPolicy = regexp.MustCompile(`^"[A-Za-z0-9:._-]+";q=([0-9]{1,15});w=60$`)
)

// The headers of any decision keep what they promise. The test draws decisions itself, because
// go test -fuzz compiles everything that the four frameworks import again, with instrumentation.
func TestHeaders(t *testing.T) {
	exact := []time.Duration{1, 999, 1000, 1001, time.Second - 1, time.Second, time.Second + 1, time.Minute, time.Hour, core.Never - 1}
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			holdsHeaders(t, ad, nethttp.Config{}, core.Decision{Limit: 5, RetryAfter: core.Never})
			holdsHeaders(t, ad, nethttp.Config{Headers: gate.XRateLimitDelta}, core.Decision{Allowed: true, Limit: 1_000_000_000, Remaining: 1_000_000_000})
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			after := func() time.Duration {
				if r.IntN(2) == 0 {
					return exact[r.IntN(len(exact))]
				}
				return time.Duration(r.Int64() >> r.IntN(63))
			}
			for range 2000 {
				cfg := nethttp.Config{Headers: gate.Headers(r.IntN(int(gate.NoHeaders) + 1)), Keep: r.IntN(2) == 0}
				d := core.Decision{Allowed: r.IntN(2) == 0, Limit: 1 + r.IntN(1_000_000_000)>>r.IntN(30), ResetAfter: after()}
				d.Remaining = r.IntN(d.Limit + 1)
				if !d.Allowed {
					d.RetryAfter = max(1, after())
				}
				if holdsHeaders(t, ad, cfg, d); t.Failed() {
					t.Fatalf("%+v, %+v", cfg, d)
				}
			}
		})
	}
}

// holdsHeaders has an adapter answer with a decision, and checks the headers.
func holdsHeaders(t *testing.T, ad gatetest.Adapter, cfg nethttp.Config, d core.Decision) {
	t.Helper()
	h := ad.Mount(gatetest.App{Routes: reply(&cfg, core.FixedWindow(d.Limit, time.Minute))(decides(d)())}.Filled())

	before := time.Now()
	resp := ask(h)
	after := time.Now()

	for name, values := range resp.Header {
		if len(values) != 1 {
			t.Errorf("%s: %q", name, values)
		}
	}
	if d.Allowed != (resp.StatusCode == 200) || !d.Allowed != (resp.StatusCode == 429) {
		t.Errorf("status %d for %+v", resp.StatusCode, d)
	}
	if !d.Allowed != (resp.Header.Get("Cache-Control") == "no-store") {
		t.Errorf("Cache-Control: %q", resp.Header.Get("Cache-Control"))
	}
	shows := cfg.Headers
	if shows != gate.IETF && shows != gate.NoHeaders {
		numbers(t, resp.Header, shows, d, before, after)
	} else if strings.Contains(fmt.Sprint(resp.Header), "X-Ratelimit") {
		t.Errorf("unasked: %v", resp.Header)
	}

	// Retry-After: there if and only if waiting helps, never too early, and less
	// than a second too late.
	waits := !d.Allowed && d.RetryAfter != core.Never
	if _, there := resp.Header["Retry-After"]; there != waits {
		t.Errorf("Retry-After: %q for %+v", resp.Header["Retry-After"], d)
	}
	if waits {
		n := number(t, resp.Header, "Retry-After")
		if want := min(secondsUp(d.RetryAfter), 1_728_000); n != want || n < 1 {
			t.Errorf("Retry-After %d, want %d for %s", n, want, d.RetryAfter)
		}
	}
	if shows == gate.IETF || shows == gate.XRateLimitAndIETF {
		ietf(t, resp.Header, d)
	} else if resp.Header.Get("RateLimit") != "" || resp.Header.Get("RateLimit-Policy") != "" {
		t.Errorf("unasked: %v", resp.Header)
	}
}

// numbers checks the headers that begin with X-RateLimit.
func numbers(t *testing.T, h http.Header, shows gate.Headers, d core.Decision, before, after time.Time) {
	t.Helper()
	if got := number(t, h, "X-RateLimit-Limit"); got != int64(d.Limit) {
		t.Errorf("Limit %d, want %d", got, d.Limit)
	}
	if got := number(t, h, "X-RateLimit-Remaining"); got != int64(d.Remaining) {
		t.Errorf("Remaining %d, want %d", got, d.Remaining)
	}

	// Reset: the first second that is not before the limit is whole.
	got := number(t, h, "X-RateLimit-Reset")
	if shows == gate.XRateLimitDelta {
		if want := secondsUp(d.ResetAfter); got != want {
			t.Errorf("Reset %d, want %d for %s", got, want, d.ResetAfter)
		}
	} else if time.Unix(got, 0).Before(before.Add(d.ResetAfter).Round(0)) || !time.Unix(got-1, 0).Before(after.Add(d.ResetAfter).Round(0)) {
		t.Errorf("Reset %d for %s from %v to %v", got, d.ResetAfter, before, after)
	}
}

func ietf(t *testing.T, h http.Header, d core.Decision) {
	item := ietfItem.FindStringSubmatch(h.Get("RateLimit"))
	policy := ietfPolicy.FindStringSubmatch(h.Get("RateLimit-Policy"))
	if item == nil || policy == nil {
		t.Fatalf("RateLimit: %q, RateLimit-Policy: %q", h.Get("RateLimit"), h.Get("RateLimit-Policy"))
	}
	if item[1] != strconv.Itoa(d.Remaining) || policy[1] != strconv.Itoa(d.Limit) {
		t.Errorf("%q and %q for %+v", item[0], policy[0], d)
	}
	if retry := h.Get("Retry-After"); !d.Allowed && item[3] != retry && retry != "1728000" {
		t.Errorf("t=%q and Retry-After: %q", item[3], retry)
	}
}

func number(t *testing.T, h http.Header, name string) int64 {
	t.Helper()
	s := h.Get(name)
	n, err := strconv.ParseInt(s, 10, 64)
	if !digits.MatchString(s) || err != nil || len(s) > 1 && strings.HasPrefix(s, "0") {
		t.Errorf("%s: %q is not a number", name, s)
	}
	return n
}

// secondsUp counts nanoseconds up to the next whole second, in another way than
// the package does.
func secondsUp(d time.Duration) int64 {
	n := uint64(d) + uint64(time.Second) - 1
	return int64(n / uint64(time.Second))
}

// What a handler does to the values of one response changes no other value and no other
// response.
func TestHeaderValuesAreNotShared(t *testing.T) {
	two := func(s core.Store) *core.Limiter {
		return core.Must(core.New(s, core.FixedWindow(5, time.Minute), core.FixedWindow(500, time.Hour)))
	}
	for _, c := range []struct {
		name  string
		store func() core.Store
		cfg   nethttp.Config
		user  string
		n     int // headers of ours, but for Reset
	}{
		{"allowed", decides(allowed), nethttp.Config{}, "alice", 2},
		{"allowed, with IETF", decides(allowed), nethttp.Config{Headers: gate.XRateLimitAndIETF}, "alice", 4},
		{"allowed, with Keep", decides(allowed), nethttp.Config{Keep: true}, "alice", 2},
		{"refused", decides(refusal), nethttp.Config{}, "alice", 4},
		{"refused forever", decides(core.Decision{RetryAfter: core.Never}), nethttp.Config{}, "alice", 3},
		{"refused, with IETF", decides(refusal), nethttp.Config{Headers: gate.XRateLimitAndIETF}, "alice", 6},
		{"no answer", fails("boom"), nethttp.Config{Headers: gate.XRateLimitAndIETF}, "alice", 6},
		{"no user", decides(allowed), nethttp.Config{}, "", 1},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				gatetest.Capture(t)
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{{Limiter: two(c.store()), Config: &c.cfg}}}}}.Filled())
				ask := func() http.Header {
					r := httptest.NewRequest("POST", "/replies/7", nil)
					if c.user != "" {
						r.Header.Set("X-User-ID", c.user)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					got := w.Header() // the very map, not the copy in a Result
					delete(got, "Content-Type")
					delete(got, "Content-Length")
					delete(got, "X-Ratelimit-Reset") // another second
					return got
				}
				first := ask()
				want := first.Clone()
				if n := len(want); n != c.n {
					t.Fatalf("%d headers, want %d: %v", n, c.n, want)
				}
				for name := range first {
					_ = append(first[name], "more")
				}
				for name := range first {
					if !slices.Equal(first[name], want[name]) {
						t.Errorf("after adding to others %s is %q, want %q", name, first[name], want[name])
					}
				}
				for name := range first {
					first[name][0] = "changed"
				}
				second := ask()
				for name := range want {
					if !slices.Equal(second[name], want[name]) {
						t.Errorf("%s: %q, want %q", name, second[name], want[name])
					}
				}
			})
		}
	}
}

// later is a store whose answer arrives later, as from another machine.
type later struct {
	core.Store
	by time.Duration
}

func (l later) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	defer time.Sleep(l.by)
	return l.Store.Take(ctx, c)
}

func (l later) Unwrap() core.Store { return l.Store }

// X-RateLimit-Reset of a CalendarWindow is the true date, although time has passed since the store has decided. It is
// never before the true instant of another limit.
func TestResetOfACalendarWindow(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	const midnight = 946684800 // 2000-01-01, when synctest's clock starts
	day, local := core.CalendarWindow(5, core.Day, nil), core.CalendarWindow(5, core.Day, shanghai)
	inside := func(l *core.Limiter) []gatetest.Route {
		return []gatetest.Route{{Inside: []gatetest.Inside{{Limiter: l, User: "alice", Action: "reply", Cost: 1}}}}
	}
	mounted := func(limits ...gatetest.Limit) []gatetest.Route { return []gatetest.Route{{Limits: limits}} }
	of := func(s core.Store, limits ...core.Limit) gatetest.Limit {
		return gatetest.Limit{Limiter: core.Must(core.New(s, limits...))}
	}
	hundred := core.FixedWindow(100, time.Hour)
	for _, tt := range []struct {
		name   string
		routes func(core.Store) []gatetest.Route
		want   int64 // seconds after midnight
	}{
		{"a day", func(s core.Store) []gatetest.Route { return mounted(of(s, day)) }, 24 * 3600},
		{"a day elsewhere", func(s core.Store) []gatetest.Route { return mounted(of(s, local)) }, 16 * 3600},
		{"the second limit", func(s core.Store) []gatetest.Route { return mounted(of(s, hundred, day)) }, 24 * 3600},
		{"the second subject", func(s core.Store) []gatetest.Route {
			first, second := of(s, hundred), of(s, day)
			second.Action, first.And = keyfuncs.Action("second"), []gatetest.Limit{second}
			return mounted(first)
		}, 24 * 3600},
		{"the second subject, after one without a user", func(s core.Store) []gatetest.Route {
			first, second := of(s, hundred), of(s, day)
			first.Guests, first.User = true, keyfuncs.Header("X-None")
			second.Action, first.And = keyfuncs.Action("second"), []gatetest.Limit{second}
			return mounted(first)
		}, 24 * 3600},
		{"one that was picked", func(s core.Store) []gatetest.Route {
			l, picked := of(s, hundred), of(s, day).Limiter
			l.Config = &nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return picked, nil }}
			return mounted(l)
		}, 24 * 3600},
		{"Allow", func(s core.Store) []gatetest.Route { return inside(of(s, day).Limiter) }, 24 * 3600},
		{"one in another one", func(s core.Store) []gatetest.Route {
			inner := of(s, day)
			inner.Action = keyfuncs.Action("inner")
			return mounted(of(s, day), inner)
		}, 24 * 3600},
		{"another limit", func(s core.Store) []gatetest.Route { return mounted(of(s, core.FixedWindow(5, time.Hour))) }, 3601},
		{"another limit beside it", func(s core.Store) []gatetest.Route {
			return mounted(of(s, core.FixedWindow(4, 24*time.Hour), day))
		}, 24*3600 + 1},
	} {
		for _, ad := range adapters {
			t.Run(tt.name+"/"+ad.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := ad.Mount(gatetest.App{Routes: tt.routes(later{memory(), 300 * time.Microsecond})}.Filled())
					for i := range 6 { // the last is refused
						if got, want := number(t, ask(h).Header, "X-RateLimit-Reset"), midnight+tt.want; got != want {
							t.Errorf("response %d: %d, want %d", i+1, got, want)
						}
					}
				})
			})
		}
	}
}
