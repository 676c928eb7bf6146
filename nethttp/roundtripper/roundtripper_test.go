package roundtripper_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp/roundtripper"
)

func client(next http.RoundTripper) *http.Client {
	calls := core.Must(core.New(memorystore.New(nil), core.Funnel(3, core.Per(2, time.Second))))
	return &http.Client{Transport: roundtripper.New(next, calls, "our-account")}
}

// next answers every request and notes when it came.
type next struct {
	start time.Time
	came  []time.Duration
	busy  func() string // the Retry-After of a refusal, or ""

	status int // of a refusal; 0 is 429
}

func (n *next) RoundTrip(*http.Request) (*http.Response, error) {
	n.came = append(n.came, time.Since(n.start))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	if n.busy != nil {
		if after := n.busy(); after != "" {
			resp.StatusCode = cmp.Or(n.status, http.StatusTooManyRequests)
			resp.Header.Set("Retry-After", after)
		}
	}
	return resp, nil
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &next{start: time.Now()}
		c := client(n)
		for _, host := range []string{"a", "A", "a", "A", "a", "b"} {
			if _, err := c.Get("http://" + host + ".example/"); err != nil {
				t.Fatal(err)
			}
		}
		// The sixth is for another host, which has a limit of its own.
		if got, want := fmt.Sprint(n.came), "[0s 0s 0s 500ms 1s 1s]"; got != want {
			t.Errorf("the calls went out at %s, want %s", got, want)
		}
	})
}

// Calls to other hosts do not wait for a host that answered with Retry-After.
func TestCallsWaitForRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, after := range map[string]func() string{
			"seconds": func() string { return "60" },
			"a date":  func() string { return time.Now().Add(time.Minute).UTC().Format(http.TimeFormat) },
		} {
			n := &next{start: time.Now()}
			n.busy = func() string {
				if len(n.came) == 2 {
					return after()
				}
				return ""
			}
			c := client(n)
			for _, host := range []string{"a", "a", "b", "a"} {
				if _, err := c.Get("http://" + host + ".example/"); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := fmt.Sprint(n.came), "[0s 0s 0s 1m0s]"; got != want {
				t.Errorf("%s: the calls went out at %s, want %s", name, got, want)
			}
		}
	})
}

// A body notes that it was closed.
type body struct {
	*strings.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestACallWithoutATurnBeforeItsDeadlineFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &next{start: time.Now()}
		c := client(n)
		for range 3 {
			if _, err := c.Get("http://a.example/"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		b := &body{Reader: strings.NewReader("{}")}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a.example/", b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(r); !errors.Is(err, core.ErrRefused) || !b.closed || time.Since(n.start) != 0 || len(n.came) != 3 {
			t.Errorf("%v after %s, body closed: %t, %d calls", err, time.Since(n.start), b.closed, len(n.came))
		}
	})
}

// What a Retry-After means, and what means nothing.
func TestRetryAfter(t *testing.T) {
	in := func(d time.Duration) func() string {
		return func() string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	}
	text := func(s string) func() string { return func() string { return s } }
	for name, c := range map[string]struct {
		status int
		after  func() string
		want   time.Duration
	}{
		"a refusal's":               {429, text("7"), 7 * time.Second},
		"an outage's":               {503, text("7"), 7 * time.Second},
		"a date's":                  {429, in(7 * time.Second), 7 * time.Second},
		"a past date's":             {429, in(-time.Hour), 0},
		"a redirect's":              {302, text("7"), 0},
		"none":                      {429, text(""), 0},
		"no number":                 {429, text("soon"), 0},
		"a negative number":         {429, text("-7"), 0},
		"zero":                      {429, text("0"), 0},
		"a day's at most":           {429, text("4000000000"), 24 * time.Hour},
		"and of a longer number":    {429, text("5000000000"), 24 * time.Hour},
		"of the longest of 64 bits": {429, text("18446744073709551615"), 24 * time.Hour},
		"a number that is too long": {429, text("40000000000000000000"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &next{start: time.Now(), status: c.status}
				n.busy = func() string {
					if len(n.came) == 1 {
						return c.after()
					}
					return ""
				}
				cl := client(n)
				cl.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				for range 2 {
					if _, err := cl.Get("http://a.example/"); err != nil {
						t.Fatal(err)
					}
				}
				if got := n.came[1]; got != c.want {
					t.Errorf("the second call went out after %s, want %s", got, c.want)
				}
			})
		})
	}
}

// slow answers after 100 ms, as next does.
type slow struct {
	*next
	mu sync.Mutex
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(100 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.RoundTrip(r)
}

// Of two calls under way each is told to wait: the longer time counts, whichever comes first.
func TestTheLongerRetryAfterCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range [][]string{{"60", "5"}, {"5", "60"}} {
			n := &next{start: time.Now()}
			n.busy = func() string {
				if len(n.came) <= len(after) {
					return after[len(n.came)-1]
				}
				return ""
			}
			c := client(&slow{next: n})
			call := func() {
				if _, err := c.Get("http://a.example/"); err != nil {
					t.Error(err)
				}
			}
			var calls sync.WaitGroup
			calls.Go(call)
			time.Sleep(time.Millisecond)
			calls.Go(call)
			calls.Wait()
			if call(); n.came[2] < time.Minute {
				t.Errorf("after %q the third call came at %s", after, n.came[2])
			}
		}
	})
}

// A limiter with a policy keeps it.
func TestALimiterOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := core.Must(core.New(memorystore.New(nil), core.Funnel(3, core.Per(2, time.Second))))
		calls = core.Must(calls.With(core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
		n := &next{start: time.Now(), busy: func() string { return "60" }}
		c := &http.Client{Transport: roundtripper.New(n, calls, "our-account")}
		for range 2 {
			if _, err := c.Get("http://a.example/"); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := fmt.Sprint(n.came), "[0s 1m0s]"; got != want {
			t.Errorf("the calls went out at %s, want %s", got, want)
		}
	})
}

func TestNewPanics(t *testing.T) {
	calls := core.Must(core.New(memorystore.New(nil), core.Funnel(3, core.Per(2, time.Second))))
	for want, do := range map[string]func(){
		"roundtripper: New: the limiter is nil":    func() { roundtripper.New(nil, nil, "our-account") },
		"roundtripper: New: the account is empty;": func() { roundtripper.New(nil, calls, "") },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, want) {
					t.Errorf("panicked with %q, want %q", got, want)
				}
			}()
			do()
		}()
	}
}
