package roundtripper_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// All spellings that reach the same server share its limit; another port is another server.
func TestOneNameAHost(t *testing.T) {
	for _, urls := range [][]string{
		{"http://a.example", "http://A.EXAMPLE", "http://a.example.", "http://a.example:80", "http://a.example:", "http://a.example:080",
			"https://a.example", "https://A.example.:443", "http://user:secret@a.example"},
		{"http://xn--bcher-kva.example", "http://XN--bcher-kva.example."},
		{"http://127.0.0.1", "http://127.0.0.1:80", "http://[::ffff:127.0.0.1]"},
		{"http://[::1]:8080", "http://[0:0:0:0:0:0:0:1]:8080", "http://[::1]:08080"},
		{"http://a.example:443"}, {"https://a.example:80"}, {"http://a.example:8080"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &next{start: time.Now()}
			c := &http.Client{Transport: roundtripper.New(n, core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Per(1, time.Second)))), "our-account")}
			for i, url := range append(urls, "http://another.example") {
				if _, err := c.Get(url); err != nil {
					t.Fatal(err)
				}
				want := time.Duration(i) * time.Second
				if i == len(urls) {
					want -= time.Second
				}
				if n.came[i] != want {
					t.Errorf("%s was called after %s, want %s", url, n.came[i], want)
				}
			}
		})
	}
}

// net/http would map these to hosts that have another name in ASCII.
func TestAHostIsInASCII(t *testing.T) {
	n := &next{start: time.Now()}
	for _, host := range []string{"bücher.example", "ａ.example", "a。example", "a.example%E3%80%82"} {
		if _, err := client(n).Get("http://" + host); err == nil || !strings.Contains(err.Error(), "roundtripper: the host is not in ASCII") || len(n.came) != 0 {
			t.Errorf("%s: %v, %d calls", host, err, len(n.came))
		}
	}
}

// redirects sends whoever calls it to another host.
type redirects struct{ *next }

func (n redirects) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.next.RoundTrip(r)
	if r.URL.Host == "here.example" {
		resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"http://THERE.example./"}}
	}
	return resp, err
}

func TestARedirectCountsForWhereItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &next{start: time.Now()}
		c := client(redirects{n})
		for _, host := range []string{"there", "there", "here", "here"} {
			if _, err := c.Get("http://" + host + ".example/"); err != nil {
				t.Fatal(err)
			}
		}
		// The third call for there is the first redirect, and the fourth the second one.
		if got, want := fmt.Sprint(n.came), "[0s 0s 0s 0s 0s 500ms]"; got != want {
			t.Errorf("the calls went out at %s, want %s", got, want)
		}
	})
}

// late delays each call by up to 100 ms, and counts those that arrive within a second of each other.
type late struct {
	mu      sync.Mutex
	random  *rand.Rand
	arrived []time.Time
}

func (l *late) RoundTrip(*http.Request) (*http.Response, error) {
	l.mu.Lock()
	delay := time.Duration(l.random.IntN(100)) * time.Millisecond
	l.mu.Unlock()
	time.Sleep(delay)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived = append(l.arrived, time.Now())
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
}

// A server allows ten calls a second, as it counts them. Calls that leave one by one stay below that, although
// the network delays them; calls that leave together do not.
func TestPacedCallsArriveWithinTheServersLimit(t *testing.T) {
	for _, c := range []struct {
		limit core.Limit
		keeps bool
	}{
		{core.Funnel(1, core.Per(9, time.Second)), true},
		{core.SlidingWindow(9, time.Second), false},
	} {
		t.Run(c.limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &late{random: rand.New(rand.NewPCG(1, 1))}
				client := &http.Client{Transport: roundtripper.New(server, core.Must(core.New(memorystore.New(nil), c.limit)), "our-account")}
				var calls sync.WaitGroup
				for range 100 {
					calls.Go(func() {
						if _, err := client.Get("http://a.example/"); err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
				most, first := 0, 0
				for i, at := range server.arrived {
					for at.Sub(server.arrived[first]) >= time.Second {
						first++
					}
					most = max(most, i-first+1)
				}
				if (most <= 10) != c.keeps {
					t.Errorf("%d calls arrived in a second", most)
				}
			})
		})
	}
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
		"of a missing page":         {404, text("86400"), 0},
		"of a forbidden page":       {403, text("7"), 0},
		"of a page that is broken":  {500, text("7"), 0},
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

// down is a store that answers until it is down.
type down struct {
	core.Store
	now bool
}

func (s *down) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if s.now {
		return core.Decision{}, nil, errors.New("no answer")
	}
	return s.Store.Take(ctx, c)
}

// Calls go on if a Retry-After is lost, and the log says so.
func TestALostRetryAfterIsLogged(t *testing.T) {
	var logged strings.Builder
	was := slog.Default()
	defer slog.SetDefault(was)
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	store := &down{Store: memorystore.New(nil)}
	n := &next{busy: func() string { store.now = true; return "60" }}
	c := &http.Client{Transport: roundtripper.New(n, core.Must(core.New(store, core.FixedWindow(9, time.Minute))), "our-account")}
	for range 3 {
		if resp, err := c.Get("http://a.example/"); err != nil || resp.StatusCode != http.StatusTooManyRequests {
			t.Fatal(err)
		}
		store.now = false
	}
	if got := logged.String(); strings.Count(got, "code=retry-after-lost") != 1 {
		t.Error(got)
	}
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
