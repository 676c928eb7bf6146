package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// flaky is a store that fails with err, if set, and tells how often it was asked.
type flaky struct {
	core.Store
	err    error
	asked  atomic.Int64
	during func() // called before it answers
}

func sound() *flaky { return &flaky{Store: memorystore.New(nil)} }

func (s *flaky) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.asked.Add(1)
	if s.during != nil {
		s.during()
	}
	if s.err != nil {
		return core.Decision{}, nil, s.err
	}
	return s.Store.Take(ctx, c)
}

func (s *flaky) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return errors.Join(s.err, s.Store.Reset(ctx, user, action, limits))
}

var errDown = errors.New("redisstore: down")

// logs is what core says in the default log.
func logs(t *testing.T) *bytes.Buffer {
	var b bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(ofCore{slog.NewTextHandler(&b, nil)}))
	t.Cleanup(func() { slog.SetDefault(was) })
	return &b
}

// ofCore drops what memorystore says: tests make many stores, and once in the process, at any
// time, it warns of that.
type ofCore struct{ slog.Handler }

func (h ofCore) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "memorystore: ") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// "Such a decision has the first limit's full quota and SourceNone."
func TestFailOpen(t *testing.T) { synctest.Test(t, testFailOpen) }

func testFailOpen(t *testing.T) {
	log := logs(t)
	store := &flaky{Store: memorystore.New(nil)}
	open := core.FailOpen(store)
	l := core.Must(core.New(open, core.FixedWindow(2, time.Hour), core.Funnel(9, core.Every(time.Second))))
	ctx := context.Background()

	if d, err := l.Allow(ctx, "u", "a"); err != nil || d.Remaining != 1 || d.Source != core.SourceStore {
		t.Fatalf("a store that answers: %+v, %v", d, err)
	}
	store.err = errDown
	want := core.Decision{Allowed: true, Limit: 2, Remaining: 2}
	for range 5 {
		if d, err := l.Allow(ctx, "u", "a"); err != nil || d != want {
			t.Fatalf("a store that fails: %+v, %v; want the first limit untouched", d, err)
		}
	}
	never := core.Decision{Limit: 2, Remaining: 2, RetryAfter: core.Never, Reason: core.ReasonLimited}
	if d, err := l.AllowN(ctx, "u", "a", 3); err != nil || d != never {
		t.Errorf("what can never pass: %+v, %v; want %+v", d, err, never)
	}
	other := core.Must(core.New(open, core.FixedWindow(9, time.Hour), core.Funnel(6, core.Every(time.Second)), core.MovingWindow(5, time.Second)))
	never.Limit, never.Remaining, never.Binding = 6, 5, 1
	if d, err := other.AllowN(ctx, "u", "a", 7); err != nil || d != never {
		t.Errorf("what a second limit can never let pass: %+v, %v; want %+v", d, err, never)
	}
	if d, err := l.Surcharge(ctx, "u", "a", 3); err != nil || d != want {
		t.Errorf("a surcharge above the quota: %+v, %v; want %+v", d, err, want)
	}
	if s, err := l.Status(ctx, "u", "a"); err != nil || len(s.Limits) != 2 || s.Limits[0].Remaining != 2 || s.Limits[1].Remaining != 9 {
		t.Errorf("the status: %+v, %v", s, err)
	}
	if err := l.Reset(ctx, "u", "a"); !errors.Is(err, errDown) {
		t.Errorf("Reset hides the failure: %v", err)
	}
	if strings.Count(log.String(), "actions pass unlimited") != 1 {
		t.Errorf("the outage was not logged once:\n%s", log)
	}
}

// "A decision of other has SourceFallback."
func TestFallback(t *testing.T) { synctest.Test(t, testFallback) }

func testFallback(t *testing.T) {
	log := logs(t)
	store, other := &flaky{Store: memorystore.New(nil)}, &flaky{Store: memorystore.New(nil)}
	l := core.Must(core.New(core.Fallback(store, other), core.FixedWindow(2, time.Hour)))
	ctx := context.Background()

	if d, err := l.Allow(ctx, "u", "a"); err != nil || d.Source != core.SourceStore || other.asked.Load() != 0 {
		t.Fatalf("a store that answers: %+v, %v", d, err)
	}
	store.err = errDown
	for i, allowed := range []bool{true, true, false} {
		d, err := l.Allow(ctx, "u", "a")
		if err != nil || d.Allowed != allowed || d.Source != core.SourceFallback {
			t.Fatalf("action %d in the outage: %+v, %v", i, d, err)
		}
	}
	if strings.Count(log.String(), "store fails") != 1 {
		t.Errorf("the outage was not logged once:\n%s", log)
	}
	if err := l.Reset(ctx, "u", "a"); !errors.Is(err, errDown) {
		t.Errorf("Reset hides the failure: %v", err)
	}
	if d, err := l.Peek(ctx, "u", "a"); err != nil || d.Remaining != 2 {
		t.Errorf("Reset did not reach the fallback: %+v, %v", d, err)
	}
	other.err = errors.New("other: down too")
	if _, err := l.Allow(ctx, "u", "a"); !errors.Is(err, other.err) {
		t.Errorf("both fail: %v", err)
	}
	store.err, other.err = nil, nil
	time.Sleep(time.Second)
	if d, err := l.Allow(ctx, "v", "a"); err != nil || d.Source != core.SourceStore {
		t.Errorf("a store that answers again: %+v, %v", d, err)
	}
}

// Whoever hangs up must not thereby pass uncounted.
func TestACallersCancellationIsNotAnOutage(t *testing.T) {
	log := logs(t)
	for _, name := range []string{"FailOpen", "Fallback", "Shadow"} {
		ctx, cancel := context.WithCancel(context.Background())
		store := &flaky{Store: memorystore.New(nil), err: context.Canceled, during: cancel}
		other := &flaky{Store: memorystore.New(nil)}
		decorated := map[string]core.Store{
			"FailOpen": core.FailOpen(store),
			"Fallback": core.Fallback(store, other),
			"Shadow":   core.Shadow(store),
		}[name]
		l := core.Must(core.New(decorated, core.FixedWindow(2, time.Hour)))
		if d, err := l.Allow(ctx, "u", "a"); !errors.Is(err, context.Canceled) || d.Allowed || other.asked.Load() != 0 {
			t.Errorf("%s: %+v, %v; want the caller's own error", name, d, err)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged:\n%s", log)
	}
	// A store's own timeout is an outage, the caller still being there.
	store := &flaky{Store: memorystore.New(nil), err: context.DeadlineExceeded}
	l := core.Must(core.New(core.FailOpen(store), core.FixedWindow(2, time.Hour)))
	if d, err := l.Allow(context.Background(), "u", "a"); err != nil || !d.Allowed {
		t.Errorf("the store's own deadline: %+v, %v", d, err)
	}
}

func TestShadowNeverRefuses(t *testing.T) {
	log := logs(t)
	var seen []core.Observation
	store := &flaky{Store: memorystore.New(nil)}
	l := core.Must(core.New(core.Observe(core.Shadow(store), func(_ context.Context, o core.Observation) { seen = append(seen, o) }),
		core.FixedWindow(2, time.Hour)))
	ctx := context.Background()
	want := []core.Decision{
		{Allowed: true, Limit: 2, Remaining: 1, Source: core.SourceStore},
		{Allowed: true, Limit: 2, Remaining: 0, Source: core.SourceStore},
		{Allowed: true, Limit: 2, Remaining: 0, Source: core.SourceStore, Reason: core.ReasonShadowed},
		{Allowed: true, Limit: 2, Remaining: 2},
		{Allowed: true, Limit: 2, Remaining: 2},
		{Allowed: true, Limit: 2, Remaining: 2},
	}
	for i := range want {
		if i == 3 {
			store.err = errDown
		}
		d, err := l.Allow(ctx, "u", "a")
		if d.ResetAfter = 0; err != nil || d != want[i] {
			t.Errorf("action %d: %+v, %v; want %+v", i, d, err, want[i])
		}
	}
	if strings.Count(log.String(), "the dry run sees nothing") != 1 {
		t.Errorf("the outage was not logged once:\n%s", log)
	}
	if len(seen) != 6 || seen[2].Decision.Reason != core.ReasonShadowed || seen[2].Action != "a" || seen[2].Cost != 1 || len(seen[2].Limits) != 1 {
		t.Errorf("observed %+v", seen)
	}
}

func TestObserveSeesErrors(t *testing.T) {
	var seen core.Observation
	store := &flaky{Store: memorystore.New(nil), err: errDown}
	l := core.Must(core.New(core.Observe(store, func(_ context.Context, o core.Observation) { seen = o }), core.FixedWindow(2, time.Hour)))
	if _, err := l.Peek(context.Background(), "u", "a"); !errors.Is(err, errDown) {
		t.Errorf("Observe changed the answer: %v", err)
	}
	if !errors.Is(seen.Err, errDown) || !seen.Peek {
		t.Errorf("observed %+v", seen)
	}
}

// A surcharge and a ban by hand can be told from what users do.
func TestObserveDistinguishesCalls(t *testing.T) {
	var seen []string
	store := core.Observe(memorystore.New(nil), func(_ context.Context, o core.Observation) {
		seen = append(seen, fmt.Sprint(o.User, o.Limits, o.Cost, o.Ban, o.Peek, o.Surcharge, o.Decision.Allowed))
	})
	l := core.Must(core.Must(core.New(store, core.FixedWindow(9, time.Hour).Shadow(), core.FixedWindow(5, time.Hour))).With(
		core.BanPolicy{Refusals: 3, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
	ctx := t.Context()
	_, _ = l.AllowN(ctx, "u", "a", 2)
	_, _ = l.Surcharge(ctx, "u", "a", 9)
	_ = l.Ban(ctx, "u", "a", time.Hour)
	_, _ = l.AllowN(ctx, "v", "a", 6) // it can never pass
	_, _ = core.PeekAll(ctx, l.For("v", "a").Cost(6))
	const limits = "FixedWindow(5, 1h) FixedWindow(9, 1h).Shadow()"
	want := []string{
		"u[" + limits + " BanPolicy{Refusals: 3}] 2 0s false false true",
		"u[" + limits + "] 9 0s false true true",
		"u[BanPolicy{Refusals: 3}] 1 1h0m0s false false true",
		"v[" + limits + " BanPolicy{Refusals: 3}] 6 0s false false false",
		"v[" + limits + " BanPolicy{Refusals: 3}] 6 0s true false false",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

func TestDecoratorsRefuseNil(t *testing.T) {
	store := memorystore.New(nil)
	for name, make := range map[string]func(){
		"FailOpen":         func() { core.FailOpen(nil) },
		"Fallback":         func() { core.Fallback(nil, store) },
		"Fallback's other": func() { core.Fallback(store, nil) },
		"Shadow":           func() { core.Shadow(nil) },
		"Divide":           func() { core.Divide(nil, 4) },
		"Observe":          func() { core.Observe(nil, func(context.Context, core.Observation) {}) },
		"Observe's func":   func() { core.Observe(store, nil) },
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "core: ") || !strings.Contains(s, "nil") {
					t.Errorf("%s: panic %q does not say what to change", name, s)
				}
			}()
			make()
		}()
	}
}

// A dry run neither refuses nor delays, and has charged nothing for what it lets pass
// against the limit.
func TestShadowDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []core.Limit{core.Funnel(1, core.Every(time.Hour)), core.FixedWindow(1, time.Hour)} {
			store := memorystore.New(nil)
			l := core.Must(core.Must(core.New(core.Shadow(store), limit)).With(core.Refundable{}))
			start := time.Now()
			for _, want := range []core.Reason{"", core.ReasonShadowed, core.ReasonShadowed} {
				d, err := l.Wait(t.Context(), "u", "a")
				if err != nil || !d.Allowed || d.Reason != want || time.Since(start) > 0 {
					t.Errorf("%s: after %v: %+v, %v; want the reason %q at once", limit, time.Since(start), d, err, want)
				}
				if want == core.ReasonShadowed {
					if err := l.Refund(t.Context(), d); err != nil {
						t.Errorf("%s: nothing was charged, and it cannot be given back: %v", limit, err)
					}
				}
			}
			if d, _ := core.Must(core.New(store, limit)).Peek(t.Context(), "u", "a"); d.RetryAfter != time.Hour {
				t.Errorf("%s: a shadow refusal was charged, or what passed was given back: %+v", limit, d)
			}
		}
	})
}

// A ban by hand that no store has taken is an error, and one that a dry run has taken
// can be inspected.
func TestABanThatNoStoreTakesIsAnError(t *testing.T) {
	limit, policy := core.FixedWindow(1, time.Hour), core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Minute}}
	for name, decorate := range map[string]func(core.Store) core.Store{"FailOpen": core.FailOpen, "Shadow": core.Shadow} {
		store := sound()
		l := core.Must(core.Must(core.New(decorate(store), limit)).With(policy))
		if err := l.Ban(t.Context(), "u", "a", time.Hour); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := l.Status(t.Context(), "u", "a"); err != nil || !s.Ban.Banned || s.Ban.RetryAfter < 59*time.Minute {
			t.Errorf("%s: Status: %+v, %v", name, s, err)
		}
		store.err = errDown
		if err := l.Ban(t.Context(), "u", "a", time.Hour); err == nil {
			t.Errorf("%s: nobody was banned, and no error says so", name)
		}
	}
	store := sound()
	l := core.Must(core.Must(core.New(core.Fallback(store, memorystore.New(nil)), limit)).With(policy))
	if err := l.Ban(t.Context(), "u", "a", time.Hour); err != nil {
		t.Errorf("Fallback: %v", err)
	}
	store.err = errDown
	if err := l.Ban(t.Context(), "v", "a", time.Hour); err == nil {
		t.Error("Fallback: the store has not kept the ban, and no error says so")
	}
	if d, err := l.Peek(t.Context(), "v", "a"); err != nil || d.Reason != core.ReasonBanned {
		t.Errorf("Fallback: the second store has not kept the ban: %+v, %v", d, err)
	}
	if err := l.Unban(t.Context(), "u", "a"); !errors.Is(err, errDown) {
		t.Errorf("Fallback: the store keeps the ban, and no error says so: %v", err)
	}
	full := memorystore.New(&memorystore.Options{MaxKeys: 2})
	l = core.Must(core.Must(core.New(core.Shadow(full), limit)).With(policy))
	for _, u := range []string{"u", "v"} {
		if err := l.Ban(t.Context(), u, "a", time.Hour); err != nil {
			t.Error(err)
		}
	}
	if err := l.Ban(t.Context(), "w", "a", time.Hour); err == nil {
		t.Error("a store that is full: no error says that nobody was banned")
	}
}
