package gatetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/nethttp"
)

// estimated charges 4 of what a handler then settles.
var estimated = nethttp.Config{Settle: true, Cost: func(*http.Request) (int, error) { return 4, nil }}

func tens(s core.Store) *core.Limiter { return core.Must(core.New(s, core.FixedWindow(10, time.Hour))) }

// What a handler settles is what remains charged.
func testSettle(t *testing.T, adapters []Adapter) {
	settles := func(costs ...int) Settles {
		return func(w http.ResponseWriter, _ *http.Request, settle func(int) error) {
			for _, n := range costs {
				if err := settle(n); err != nil {
					w.Header().Set("X-Error", err.Error())
				}
			}
			_, _ = io.WriteString(w, "done")
		}
	}
	leave := context.CancelFunc(func() {})
	with := func(change func(*nethttp.Config)) []nethttp.Config {
		cfg := estimated
		change(&cfg)
		return []nethttp.Config{cfg}
	}
	for _, c := range []struct {
		name    string
		configs []nethttp.Config // outermost first; none: one with an estimate of 4
		do      Settles
		left    []int // of 10, for each
		fails   string
	}{
		{"less is given back", nil, settles(1), []int{9}, ""},
		{"nothing is given back whole", nil, settles(0), []int{10}, ""},
		{"more is charged", nil, settles(7), []int{3}, ""},
		{"more than the quota is charged", nil, settles(15), []int{-5}, ""},
		{"what is never settled stays", nil, settles(), []int{6}, ""},
		{"the second of two does nothing", nil, settles(1, 9), []int{9}, ""},
		{"a negative cost is an error, and leaves it to a later one", nil, settles(-1, 1), []int{9}, "core: the cost is negative"},
		{"after the response has begun", nil, func(w http.ResponseWriter, _ *http.Request, settle func(int) error) {
			_, _ = io.WriteString(w, "done")
			if err := settle(1); err != nil {
				t.Error(err)
			}
		}, []int{9}, ""},
		{"with a request whose context has ended", nil, func(_ http.ResponseWriter, r *http.Request, settle func(int) error) {
			leave()
			if left(r); r.Context().Err() == nil {
				t.Error("the context has not ended")
			}
			if err := settle(1); err != nil {
				t.Error(err)
			}
		}, []int{9}, ""},
		{"by a deferred call of a handler that panics", nil, func(_ http.ResponseWriter, _ *http.Request, settle func(int) error) {
			defer func() { _ = settle(7) }()
			panic("mine")
		}, []int{3}, ""},
		{"each of two limits", []nethttp.Config{estimated, estimated}, settles(7), []int{3, 3}, ""},
		{"the one of two limits that has it, within", []nethttp.Config{{}, estimated}, settles(7), []int{9, 3}, ""},
		{"the one of two limits that has it, around", []nethttp.Config{estimated, {Keep: true}}, settles(7), []int{3, 9}, ""},
		{"a picked limiter", with(func(cfg *nethttp.Config) {
			cfg.Limiter = func(*http.Request) (*core.Limiter, error) { return nil, nil }
		}), settles(7), []int{3}, ""},
		{"a request that was skipped costs nothing", with(func(cfg *nethttp.Config) {
			cfg.Skip = func(*http.Request) bool { return true }
		}), settles(7), []int{10}, ""},
		{"a request of cost 0 cannot be settled", with(func(cfg *nethttp.Config) {
			cfg.Cost = func(*http.Request) (int, error) { return 0, nil }
		}), settles(7), []int{10}, core.ErrNoReceipt.Error()},
		{"without a limit that has it", []nethttp.Config{{Keep: true}}, settles(7), []int{9}, "adapter: Settle: no Limit around the request has Settle; set it in the Config of the Limit whose Cost is the estimate"},
		{"without a mark", []nethttp.Config{{}}, settles(7), []int{9}, "adapter: Settle: no Limit around the request has Settle; set it in the Config of the Limit whose Cost is the estimate"},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				Capture(t)
				configs := c.configs
				if configs == nil {
					configs = []nethttp.Config{estimated}
				}
				rt := Route{Settles: c.do}
				var stores []core.Store
				for _, cfg := range configs {
					stores = append(stores, memory())
					rt.Limits = append(rt.Limits, Limit{Limiter: tens(stores[len(stores)-1]), Config: &cfg})
				}
				var ctx context.Context
				ctx, leave = context.WithCancel(t.Context())
				defer leave()
				r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
				r.Header.Set("X-User-ID", "alice")
				w := httptest.NewRecorder()
				ad.Mount(App{Routes: []Route{rt}, Recovers: true}).ServeHTTP(w, r)
				if got, want := w.Header().Get("X-Error"), strings.Replace(c.fails, "adapter", ad.pkg(), 1); got != want {
					t.Errorf("it fails with %q, want %q", got, want)
				}
				for i, want := range c.left {
					// A larger window of the same state tells of a debt.
					l := core.Must(core.New(stores[i], core.FixedWindow(30, time.Hour)))
					if d, err := l.Peek(t.Context(), "alice", "reply"); err != nil || d.Remaining-20 != want {
						t.Errorf("limit %d: %d of 10 remain, want %d; %v", i, d.Remaining-20, want, err)
					}
				}
			})
		}
	}

	for _, ad := range adapters {
		t.Run("a debtor is refused, and a store that fails says so/"+ad.Name, func(t *testing.T) {
			Capture(t)
			store := &settling{Store: memory()}
			h := ad.Mount(App{Routes: []Route{{Limits: []Limit{{Limiter: tens(store), Config: &estimated}}, Settles: settles(15)}}})
			Want(t, Do(h, "POST", "/replies/7", "X-User-ID", "alice"), 200, "6")
			Want(t, Do(h, "POST", "/replies/7", "X-User-ID", "alice"), 429, "0")
			store.err = errors.New("down")
			if got := Do(h, "POST", "/replies/7", "X-User-ID", "bob").Header().Get("X-Error"); got != "down" {
				t.Errorf("the error is %q", got)
			}
		})
		t.Run("FinalCost and Settle exclude each other/"+ad.Name, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, ": Limit: FinalCost and Settle are both set") {
					t.Errorf("the panic is %q", got)
				}
			}()
			cfg := *asCharged
			cfg.Settle = true
			ad.Mount(App{Routes: []Route{{Limits: []Limit{{Limiter: tens(memory()), Config: &cfg}}}}})
		})
	}
}

// A settling store charges, and then may fail to settle.
type settling struct {
	core.Store
	err error
}

func (s *settling) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if !c.Receipt && s.err != nil {
		return core.Decision{}, nil, s.err
	}
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}

func (s *settling) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	return s.Store.(core.Amender).Amend(ctx, r, a)
}

// A client that leaves in the middle of a stream pays for what was used.
func testSettleAfterTheClientHasLeft(t *testing.T, adapters []Adapter) {
	onEach(t, adapters, func(t *testing.T, ad Adapter, s *Server) {
		if ad.NoStreams {
			t.Skip("not on this fixture: the framework cannot")
		}
		limiter := tens(memory())
		settled := make(chan error, 1)
		s.Mount(ad.Mount(App{Routes: []Route{{
			Limits: []Limit{{Limiter: limiter, Config: &estimated}},
			Settles: func(w http.ResponseWriter, r *http.Request, settle func(int) error) {
				_, _ = io.WriteString(w, "one\n")
				w.(http.Flusher).Flush()
				if left(r); r.Context().Err() == nil {
					t.Error("the context has not ended")
				}
				settled <- settle(9)
			},
		}}}))
		resp, err := post(t, s)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if err := <-settled; err != nil {
			t.Error(err)
		}
		if d, err := limiter.Peek(t.Context(), "alice", "reply"); err != nil || d.Remaining != 1 {
			t.Errorf("%d remain, %v; want 1", d.Remaining, err)
		}
	})
}
