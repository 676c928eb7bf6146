package gatetest

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp"
)

// A visit is a request without a network, in fake time.
type visit struct {
	at      time.Duration // when it comes
	leaves  time.Duration // when its client does; 0 is never
	expires time.Duration // when its context's own deadline is; 0 is never
	user    string        // "" is alice

	status int
	after  time.Duration // until the answer
	retry  string        // Retry-After
	reset  int           // X-RateLimit-Reset, less when the answer comes; seconds
}

// Which requests wait, for how long, and what is answered then.
var waits = []struct {
	name    string
	limit   core.Limit // the zero one is a funnel for one request a second
	options []core.Option
	store   func() core.Store // nil is a memorystore
	config  nethttp.Config
	visits  []visit // in the order in which they come
	log     []string
}{
	{
		name:   "without MaxWait no request waits",
		visits: []visit{{status: 200, reset: 1}, {status: 429, retry: "1", reset: 1}},
	},
	{
		name:   "at a funnel requests wait until there is room, in the order of arrival",
		config: nethttp.Config{MaxWait: 3 * time.Second},
		visits: []visit{
			{status: 200, reset: 1},
			{at: 1, status: 200, after: time.Second - 1, reset: 1},
			{at: 2, status: 200, after: 2*time.Second - 2, reset: 1},
			{at: 3, status: 200, after: 3*time.Second - 3, reset: 1},
		},
	},
	{
		name:   "what cannot pass within MaxWait is refused at once, with an honest Retry-After",
		limit:  core.Funnel(15, core.Per(30, time.Minute)),
		config: nethttp.Config{MaxWait: time.Second, Cost: func(*http.Request) (int, error) { return 15, nil }},
		visits: []visit{
			{status: 200, reset: 30},
			{at: time.Second, status: 429, retry: "29", reset: 29},
			{at: 29 * time.Second, status: 200, after: time.Second, reset: 30},
		},
	},
	{
		name:   "at a window a request waits until there is room",
		limit:  core.SlidingWindow(1, time.Second),
		config: nethttp.Config{MaxWait: 2 * time.Second},
		visits: []visit{{status: 200, reset: 1}, {at: time.Millisecond, status: 200, after: 999 * time.Millisecond, reset: 1}},
	},
	{
		name:    "a waiting request does not count as refused",
		options: []core.Option{core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}}},
		config:  nethttp.Config{MaxWait: time.Second},
		visits: []visit{
			{status: 200, reset: 1},
			{at: 1, status: 200, after: time.Second - 1, reset: 1},
			{at: 2 * time.Second, status: 200, reset: 1},
			{at: 2*time.Second + 1, status: 200, after: time.Second - 1, reset: 1},
			{at: 2*time.Second + 2, status: 429, retry: "3600", reset: 3600},
		},
	},
	{
		name:    "a user who is banned for longer does not wait",
		options: []core.Option{core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Minute}}},
		config:  nethttp.Config{MaxWait: 500 * time.Millisecond},
		visits:  []visit{{status: 200, reset: 1}, {status: 429, retry: "60", reset: 60}, {at: time.Second, status: 429, retry: "59", reset: 59}},
	},
	{
		name:   "beyond MaxWaiting is decided at once, and when a place is free there is one again",
		config: nethttp.Config{MaxWait: 5 * time.Second, MaxWaiting: 4},
		visits: []visit{
			{status: 200, reset: 1},
			{at: 1, status: 200, after: time.Second - 1, reset: 1},
			{at: 2, status: 200, after: 2*time.Second - 2, reset: 1},
			{at: 3, status: 429, retry: "2", reset: 2}, // alice has half; only the first of those who wait has reserved a turn
			{at: 4, user: "bob", status: 200, reset: 1},
			{at: 5, user: "bob", status: 200, after: time.Second, reset: 1},
			{at: 6, user: "bob", status: 429, retry: "2", reset: 2}, // one place is free, and bob has one
			{at: 7, user: "carol", status: 200, reset: 1},
			{at: 8, user: "carol", status: 200, after: time.Second, reset: 1},
			{at: 9, user: "dave", status: 200, reset: 1},
			{at: 10, user: "dave", status: 429, retry: "1", reset: 1}, // none is free
			{at: 1500 * time.Millisecond, status: 200, after: 1500 * time.Millisecond, reset: 1},
			{at: 1501 * time.Millisecond, status: 429, retry: "2", reset: 1}, // alice has half again
		},
	},
	{
		name:   "a client who leaves gives its turn back",
		config: nethttp.Config{MaxWait: 5 * time.Second},
		visits: []visit{
			{status: 200, reset: 1},
			{at: 1, leaves: 500 * time.Millisecond, status: 503, after: 500*time.Millisecond - 1, retry: "1", reset: 1},
			{at: 600 * time.Millisecond, status: 200, after: 400 * time.Millisecond, reset: 1},
		},
	},
	{
		name:   "a deadline of the client's own is the time that it can wait",
		config: nethttp.Config{MaxWait: 5 * time.Second},
		visits: []visit{
			{status: 200, reset: 1},
			{at: 1, expires: 500 * time.Millisecond, status: 429, retry: "1", reset: 1},
			{at: 2, expires: 2 * time.Second, status: 200, after: time.Second - 2, reset: 1},
		},
	},
	{
		name: "a cost of 0 does not wait",
		config: nethttp.Config{MaxWait: 5 * time.Second, Cost: func(r *http.Request) (int, error) {
			if r.Header.Get("X-User-ID") == "alice" {
				return 0, nil
			}
			return 1, nil
		}},
		visits: []visit{
			{user: "other", status: 200, reset: 1},
			{user: "other", status: 200, after: time.Second, reset: 1},
			{status: 200},
		},
	},
	{
		name:   "a request that can never pass does not wait",
		config: nethttp.Config{MaxWait: 5 * time.Second, Cost: func(*http.Request) (int, error) { return 2, nil }},
		visits: []visit{{status: 429}},
	},
	{
		name:   "a store that fails is 503 at once",
		store:  Fails("boom"),
		config: nethttp.Config{MaxWait: 5 * time.Second},
		visits: []visit{{status: 503, retry: "1", reset: 1}},
		log:    []string{noAnswer + "store: boom"},
	},
	{
		name:   "MaxWait is no deadline of the store's",
		store:  func() core.Store { return slow{memorystore.New(nil)} },
		config: nethttp.Config{MaxWait: 500 * time.Millisecond},
		visits: []visit{{status: 200, reset: 1}, {at: 1, status: 429, retry: "1", reset: 1}},
	},
	{
		name:   "a request behind another one, which the store keeps waiting, waits for MaxWait and then asks",
		limit:  core.FixedWindow(1, time.Minute),
		store:  func() core.Store { return distant{memory(), 3 * time.Second} },
		config: nethttp.Config{MaxWait: time.Second},
		visits: []visit{{status: 200, after: 3 * time.Second, reset: 60}, {at: 1, status: 429, after: 4*time.Second + time.Microsecond, retry: "59", reset: 59}},
	},
	{
		name:   "the longest MaxWait",
		config: nethttp.Config{MaxWait: core.Never},
		visits: []visit{{status: 200, reset: 1}, {at: 1, status: 200, after: time.Second - 1, reset: 1}},
	},
	{
		name:   "a store that is silent for a second after the client's own deadline is not in the log",
		store:  func() core.Store { return slow{memorystore.New(nil)} },
		config: nethttp.Config{MaxWait: 500 * time.Millisecond},
		visits: []visit{{expires: 400 * time.Millisecond, status: 503, after: 1400 * time.Millisecond, retry: "1", reset: 1}},
	},
	{
		name:   "a request that has waited may be refunded",
		config: nethttp.Config{MaxWait: time.Second, FinalCost: func(r *http.Request, _ int) int { return 0 }},
		visits: []visit{
			{status: 200, reset: 1}, {at: 1, status: 200, reset: 1}, {at: 2, status: 200, reset: 1},
		},
	},
}

// slow is a store that answers only who has no deadline.
type slow struct{ core.Store }

func (s slow) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if _, ok := ctx.Deadline(); ok {
		<-ctx.Done()
		return core.Decision{}, nil, ctx.Err()
	}
	return s.Store.Take(ctx, c)
}

func testHold(t *testing.T, adapters []Adapter) {
	for _, c := range waits {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				log := Capture(t)
				synctest.Test(t, func(t *testing.T) {
					store := memory()
					if c.store != nil {
						store = c.store()
					}
					limit := cmp.Or(c.limit, core.Funnel(1, core.Every(time.Second)))
					limiter := core.Must(core.Must(core.New(store, limit)).With(c.options...))
					h := ad.Mount(App{Routes: []Route{{Limits: []Limit{{Limiter: limiter, Config: &c.config}}}}})
					begun := time.Now()
					var wg sync.WaitGroup
					for i, v := range c.visits {
						time.Sleep(v.at - time.Since(begun))
						wg.Go(func() { v.pay(t, i+1, h) })
						synctest.Wait()
					}
					wg.Wait()
				})
				if got := log.Take(ad.pkg()); !slices.Equal(got, c.log) {
					t.Errorf("log:\n got %q\nwant %q", got, c.log)
				}
			})
		}
	}
}

func (v visit) pay(t *testing.T, i int, h http.Handler) {
	ctx := t.Context()
	if v.leaves > 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithCancel(ctx)
		defer time.AfterFunc(v.leaves-v.at, leave).Stop()
	}
	if v.expires > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.expires-v.at)
		defer cancel()
	}
	r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
	r.Header.Set("X-User-ID", "alice")
	if v.user != "" {
		r.Header.Set("X-User-ID", v.user)
	}
	w := httptest.NewRecorder()
	begun := time.Now()
	h.ServeHTTP(w, r)
	if after := time.Since(begun); w.Code != v.status || after.Round(time.Microsecond) != v.after.Round(time.Microsecond) {
		t.Errorf("visit %d: %d after %s, want %d after %s", i, w.Code, after, v.status, v.after)
	}
	if got := w.Header().Get("Retry-After"); got != v.retry {
		t.Errorf("visit %d: Retry-After %q, want %q", i, got, v.retry)
	}
	reset := strconv.FormatInt(ceil(time.Now().Add(time.Duration(v.reset)*time.Second)), 10)
	if got := w.Header().Get("X-RateLimit-Reset"); got != reset {
		t.Errorf("visit %d: X-RateLimit-Reset %s, want %s", i, got, reset)
	}
}

// A waiting request ends with its client's connection, and another gets its turn.
func testAHeldClientLeaves(t *testing.T, adapters []Adapter) {
	onEach(t, adapters, func(t *testing.T, ad Adapter, s *Server) {
		limiter := core.Must(core.New(memory(), core.Funnel(1, core.Every(time.Hour))))
		s.Mount(ad.Mount(App{Routes: []Route{{Limits: []Limit{{Limiter: limiter, Config: &nethttp.Config{MaxWait: 5 * time.Hour}}}}}}))
		resp, err := post(t, s)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()

		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			req, _ := http.NewRequestWithContext(ctx, "POST", s.URL+"/replies/7", nil)
			req.Header.Set("X-User-ID", "alice")
			if resp, err := s.Client().Do(req); err == nil {
				resp.Body.Close()
				t.Error("the waiting request was answered")
			}
		}()
		turns := func(n int) bool {
			d, err := limiter.Peek(t.Context(), "alice", "reply")
			return err == nil && d.ResetAfter > time.Duration(n-1)*time.Hour && d.ResetAfter <= time.Duration(n)*time.Hour
		}
		until(t, "it waits", func() bool { return turns(2) })
		leave()
		<-left
		until(t, "its turn is refunded", func() bool { return turns(1) })
	})
}

// until waits for what comes soon.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// distant is a store that decides at once. The answer to a charge takes a while, and the caller
// may leave before it comes.
type distant struct {
	core.Store
	delay time.Duration
}

func (s distant) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if c.Mode == machine.ModePeek {
		return d, r, err
	}
	select {
	case <-time.After(s.delay):
		return d, r, err
	case <-ctx.Done():
		return core.Decision{}, nil, ctx.Err()
	}
}
