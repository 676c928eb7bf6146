package gate_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

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
						if got, want := ask(h).Header.Get("X-RateLimit-Reset"), strconv.FormatInt(midnight+tt.want, 10); got != want {
							t.Errorf("response %d: %s, want %s", i+1, got, want)
						}
					}
				})
			})
		}
	}
}
