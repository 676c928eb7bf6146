package gatetest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// After a refusal with Retry-After: n the request passes n seconds later. One
// second earlier it does not.
func testRetryAfterIsHonest(t *testing.T, adapters []Adapter) {
	for _, ad := range adapters {
		for _, l := range []core.Limit{
			core.SlidingWindow(2, 10*time.Second),
			core.MovingWindow(2, 10*time.Second+time.Millisecond),
			core.FixedWindow(2, 10*time.Second),
			core.TokenBucket(2, core.Per(7, time.Minute)),
			core.Funnel(2, core.Per(7, time.Minute)),
			core.Funnel(2, core.Per(1000, time.Second)),
		} {
			t.Run(ad.Name+"/"+l.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := ad.Mount(App{Routes: reply(nil, l)(memorystore.New(nil))})
					var resp *http.Response
					for range 3 {
						time.Sleep(300 * time.Microsecond)
						resp = ask(h)
					}
					if resp.StatusCode != 429 {
						t.Fatalf("the third request is %s", resp.Status)
					}
					n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
					if err != nil || n < 1 {
						t.Fatalf("Retry-After: %q", resp.Header.Get("Retry-After"))
					}
					time.Sleep(time.Duration(n-1) * time.Second)
					if n > 1 {
						if early := ask(h); early.StatusCode != 429 {
							t.Errorf("a second too early it is %s", early.Status)
						}
					}
					time.Sleep(time.Second)
					if late := ask(h); late.StatusCode != 200 {
						t.Errorf("after Retry-After: %d it is %s", n, late.Status)
					}
				})
			})
		}
	}
}

// X-RateLimit-Reset is the second of the clock's in which the limit is whole; what
// is between two seconds is the later one.
func testResetSecond(t *testing.T, adapters []Adapter) {
	const midnight = 946684800 // 2000-01-01, when synctest's clock starts
	for _, c := range []struct {
		name         string
		sleep, after time.Duration
		want         int64
	}{
		{"on the second", 0, time.Minute, midnight + 60},
		{"on the second and nothing to wait for", 0, 0, midnight},
		{"a nanosecond later", 1, time.Minute, midnight + 61},
		{"a microsecond to wait", 0, time.Microsecond, midnight + 1},
		{"two halves are one second", time.Second / 2, time.Second / 2, midnight + 1},
		{"two halves and a nanosecond are two", time.Second/2 + 1, time.Second / 2, midnight + 2},
		{"beyond 2038", 0, 100 * 365 * 24 * time.Hour, midnight + 100*365*24*3600},
	} {
		for _, ad := range adapters {
			t.Run(ad.Name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(c.sleep)
					h := ad.Mount(App{Routes: reply(nil)(Decides(core.Decision{Allowed: true, Remaining: 1, ResetAfter: c.after})())})
					if got := ask(h).Header.Get("X-RateLimit-Reset"); got != strconv.FormatInt(c.want, 10) {
						t.Errorf("got %s, want %d", got, c.want)
					}
				})
			})
		}
	}
}

// With SpreadRetryAfter clients that are refused together, of many users or workers of one, are told to come back in
// different seconds of a tenth of the wait, and each second gets about as many.
func testSpread(t *testing.T, adapters []Adapter) {
	const wait = 600
	retry := wait * time.Second
	store := Answers(func(core.Charge) (core.Decision, error) { return core.Decision{Limit: 5, RetryAfter: retry}, nil })
	inside := func(own *nethttp.Config) []Inside {
		return []Inside{{Limiter: core.Must(core.New(store, fivePerMinute)), User: "alice", Action: "inner", Cost: 1, Config: own}}
	}
	skips := func(*http.Request) bool { return true }
	exact := func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprint(w, d.RetryAfter)
	}
	for _, mode := range []struct {
		name   string
		cfg    nethttp.Config
		inside []Inside
	}{
		{"seconds until the reset", nethttp.Config{Headers: gate.XRateLimitDelta}, nil},
		{"the IETF's headers", nethttp.Config{Headers: gate.IETF}, nil},
		{"Deny gets the exact wait", nethttp.Config{Deny: exact, Headers: gate.XRateLimitDelta}, nil},
		{"Allow inside", nethttp.Config{Skip: skips, Headers: gate.XRateLimitDelta}, inside(nil)},
		{"Allow with its own", nethttp.Config{}, inside(&nethttp.Config{SpreadRetryAfter: true, Headers: gate.XRateLimitDelta})},
	} {
		for _, ad := range adapters {
			t.Run(mode.name+"/"+ad.Name, func(t *testing.T) {
				route := Route{Inside: mode.inside}
				if mode.name != "Allow with its own" {
					mode.cfg.SpreadRetryAfter = true
					route.Limits = []Limit{{Limiter: core.Must(core.New(store, fivePerMinute)), Config: &mode.cfg}}
				}
				h := ad.Mount(App{Routes: []Route{route}}.Filled())
				told := func(user string) int {
					w := Do(h, "POST", "/replies/7", "X-User-ID", user)
					n, err := strconv.Atoi(w.Header().Get("Retry-After"))
					second, body := fmt.Sprint(n), fmt.Sprintf(`"retry_after":%d}`, n)
					if mode.cfg.Deny != nil {
						body = retry.String()
					}
					reset := w.Header().Get("X-RateLimit-Reset")
					if mode.cfg.Headers == gate.IETF {
						_, reset, _ = strings.Cut(w.Header().Get("RateLimit"), ";t=")
					}
					if err != nil || reset != second || !strings.Contains(w.Body.String(), body) {
						t.Fatalf("%v: the response does not agree: %v %s", err, w.Header(), w.Body)
					}
					if exact := int((retry + time.Second - 1) / time.Second); n < exact || n > exact+int(retry/10/time.Second) {
						t.Errorf("%s waits %d, of %v", user, n, retry)
					}
					return n
				}
				together := func(n, most int, user func(i int) string) {
					t.Helper()
					seconds := map[int]int{}
					for i := range n {
						seconds[told(user(i))]++
					}
					for second, clients := range seconds {
						if clients > most {
							t.Errorf("of %d clients %d come after %d seconds", n, clients, second)
						}
					}
				}
				if mode.name == "seconds until the reset" {
					retry = wait * time.Second
					together(1000, 40, func(i int) string { return fmt.Sprint("user-", i) }) // 16 on average
				}
				for _, share := range []struct{ wait, workers, most int }{{600, 40, 2}, {60, 40, 8}, {100, 110, 13}, {10, 40, 22}, {9, 40, 40}} {
					retry = time.Duration(share.wait) * time.Second
					together(share.workers, share.most, func(int) string { return "alice" })
				}
				for s := wait; s > 0; s -= 7 { // a client that asks again
					retry = time.Duration(s)*time.Second - time.Millisecond
					told("alice")
				}
			})
		}
	}
}
