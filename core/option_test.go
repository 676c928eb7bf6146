package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// What is wrong with a policy is an error of With that names the value and the bound;
// the last legal number on either side is none.
func TestWithRefusesWhatIsOutOfBounds(t *testing.T) {
	const year = 365 * 24 * time.Hour
	good := core.BanPolicy{Refusals: 3, Within: time.Minute, Bans: []time.Duration{time.Minute}}
	policy := func(change func(*core.BanPolicy)) core.BanPolicy {
		l := good
		change(&l)
		return l
	}
	bans := func(d ...time.Duration) core.BanPolicy { return policy(func(l *core.BanPolicy) { l.Bans = d }) }
	for _, tt := range []struct {
		name    string
		options []core.Option
		want    []string // in the error; none: legal
	}{
		{"nothing", nil, nil},
		{"a nil", []core.Option{nil}, []string{"an option is nil"}},
		{"a policy and refundable", []core.Option{good, core.Refundable{}}, nil},
		{"two policies", []core.Option{good, good}, []string{"has a BanPolicy already"}},
		{"no refusals", []core.Option{policy(func(l *core.BanPolicy) { l.Refusals = 0 })}, []string{"Refusals 0", "1 to 100"}},
		{"no numbers: by hand only", []core.Option{core.BanPolicy{}}, nil},
		{"by hand only, from all actions", []core.Option{core.BanPolicy{ForgetAfter: time.Hour, PerUser: true}}, nil},
		{"bans alone", []core.Option{core.BanPolicy{Bans: []time.Duration{time.Minute}}}, []string{"Refusals 0", "1 to 100"}},
		{"within alone", []core.Option{core.BanPolicy{Within: time.Minute}}, []string{"Refusals 0", "1 to 100"}},
		{"1 refusal", []core.Option{policy(func(l *core.BanPolicy) { l.Refusals = 1 })}, nil},
		{"100 refusals", []core.Option{policy(func(l *core.BanPolicy) { l.Refusals = 100 })}, nil},
		{"101 refusals", []core.Option{policy(func(l *core.BanPolicy) { l.Refusals = 101 })}, []string{"Refusals 101", "1 to 100"}},
		{"within nothing", []core.Option{policy(func(l *core.BanPolicy) { l.Within = 0 })}, []string{"Within 0s", "1ms to 365 days"}},
		{"within 1 ms", []core.Option{policy(func(l *core.BanPolicy) { l.Within = time.Millisecond })}, nil},
		{"within a year", []core.Option{policy(func(l *core.BanPolicy) { l.Within = year })}, nil},
		{"within more than a year", []core.Option{policy(func(l *core.BanPolicy) { l.Within = year + time.Microsecond })}, []string{"Within", "365 days"}},
		{"within half a microsecond more", []core.Option{policy(func(l *core.BanPolicy) { l.Within = time.Second + 500 })}, []string{"Within", "whole microseconds"}},
		{"no bans", []core.Option{bans()}, []string{"Bans has 0 entries", "1 to 16"}},
		{"16 bans", []core.Option{bans(make16()...)}, nil},
		{"17 bans", []core.Option{bans(append(make16(), time.Minute)...)}, []string{"Bans has 17 entries", "1 to 16"}},
		{"a ban of nothing", []core.Option{bans(time.Minute, 0)}, []string{"a ban of 0s", "1ms to 365 days"}},
		{"a ban of a year", []core.Option{bans(year)}, nil},
		{"a ban of more", []core.Option{bans(year + time.Millisecond)}, []string{"a ban of", "365 days"}},
		{"quiet for 1 ms", []core.Option{policy(func(l *core.BanPolicy) { l.ForgetAfter = time.Millisecond })}, nil},
		{"quiet for less", []core.Option{policy(func(l *core.BanPolicy) { l.ForgetAfter = time.Microsecond })}, []string{"ForgetAfter 1µs", "1ms to 365 days"}},
		{"quiet for a negative time", []core.Option{policy(func(l *core.BanPolicy) { l.ForgetAfter = -time.Hour })}, []string{"ForgetAfter -1h0m0s"}},
	} {
		l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour)))
		derived, err := l.With(tt.options...)
		if len(tt.want) == 0 {
			if err != nil || derived == nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if !errors.Is(err, core.ErrConfig) || derived != nil || !strings.HasPrefix(err.Error(), "core: ") {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, s := range tt.want {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", tt.name, err, s)
			}
		}
	}
}

func make16() []time.Duration {
	bans := make([]time.Duration, 16)
	for i := range bans {
		bans[i] = time.Minute
	}
	return bans
}

func TestABanPolicyIsNotChangedAfterwards(t *testing.T) {
	bans := []time.Duration{time.Minute}
	l := core.Must(core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour))).With(
		core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: bans}))
	bans[0] = time.Hour
	for range 2 {
		_, _ = l.Allow(t.Context(), "u", "a")
	}
	if d, err := l.Status(t.Context(), "u", "a"); err != nil || d.Ban.RetryAfter > time.Minute || !d.Ban.Banned {
		t.Errorf("%+v, %v", d, err)
	}
}

// With derives: what it is derived from stays as it was.
func TestWithDerives(t *testing.T) {
	plain := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour)))
	strict := core.Must(plain.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
	for range 3 {
		_, _ = plain.Allow(t.Context(), "u", "a")
	}
	if d, err := strict.Status(t.Context(), "u", "a"); err != nil || d.Ban != (core.BanStatus{}) {
		t.Errorf("the plain limiter counts refusals: %+v, %v", d, err)
	}
	if d, err := strict.Allow(t.Context(), "u", "a"); err != nil || d.Reason != core.ReasonBanned || d.BanLevel != 1 {
		t.Errorf("they do not share the limit: %+v, %v", d, err)
	}
	if d, err := plain.Allow(t.Context(), "u", "a"); err != nil || d.Reason != core.ReasonLimited || d.BanLevel != 0 {
		t.Errorf("the plain limiter bans: %+v, %v", d, err)
	}
}

func TestWithAsksTheStore(t *testing.T) {
	l := core.Must(core.New(memorystore.New(&memorystore.Options{MaxKeys: 1}), core.FixedWindow(1, time.Hour)))
	if _, err := l.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Minute}}); !errors.Is(err, core.ErrConfig) {
		t.Errorf("a policy for which the store has no room: %v", err)
	}
}

func TestNewNeedsAnEnforcedLimitAndOneStateEach(t *testing.T) {
	store := memorystore.New(nil)
	a, b := core.FixedWindow(1, time.Hour), core.FixedWindow(9, time.Minute)
	if _, err := core.New(store, a.Shadow(), b.Shadow()); !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), "core.Shadow(store)") {
		t.Errorf("a limiter of shadows only: %v", err)
	}
	if _, err := core.New(store, a, b.Shadow(), core.FixedWindow(3, time.Minute).Shadow()); !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), "Shadow()") {
		t.Errorf("two shadows of one state: %v", err)
	}
	if _, err := core.New(store, a, core.FixedWindow(0, time.Minute).Shadow()); !errors.Is(err, core.ErrConfig) {
		t.Errorf("a shadow that is out of bounds: %v", err)
	}
	l, err := core.New(store, b.Shadow(), a, a.Shadow(), b)
	if err != nil {
		t.Fatal(err)
	}
	l = core.Must(l.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
	if got := l.Limits(); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("Limits, less shadow limits and the policy: %v", got)
	}
	if s := a.Shadow(); !s.IsShadow() || a.IsShadow() || s == a || s.Identity() == a.Identity() {
		t.Error("a shadow is not told apart")
	}
}

// A cost that only a shadow limit can never let pass is charged to the others.
func TestAShadowLimitRefusesNobody(t *testing.T) {
	l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(9, time.Hour), core.FixedWindow(1, time.Minute).Shadow()))
	if d, err := l.AllowN(t.Context(), "u", "a", 5); err != nil || !d.Allowed || d.Reason != core.ReasonShadowed || d.Remaining != 4 || d.Limit != 9 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestNoBanPolicy(t *testing.T) {
	l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour)))
	ctx := t.Context()
	if err := l.Ban(ctx, "u", "a", time.Hour); !errors.Is(err, core.ErrNoBanPolicy) {
		t.Errorf("Ban: %v", err)
	}
	if err := l.Unban(ctx, "u", "a"); !errors.Is(err, core.ErrNoBanPolicy) {
		t.Errorf("Unban: %v", err)
	}
	if s, err := l.Status(ctx, "u", "a"); err != nil || s.Ban != (core.BanStatus{}) {
		t.Errorf("Status: %+v, %v", s, err)
	}
	l = core.Must(l.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
	for _, d := range []time.Duration{0, -time.Hour, time.Microsecond, 366 * 24 * time.Hour, time.Second + 1} {
		if err := l.Ban(ctx, "u", "a", d); !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), "Ban") {
			t.Errorf("Ban of %v: %v", d, err)
		}
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	for _, tt := range []struct {
		ctx          context.Context
		user, action string
		want         error
	}{{ctx, "", "a", core.ErrNoUser}, {ctx, "u", "", core.ErrNoAction}, {done, "u", "a", context.Canceled}} {
		_, status := l.Status(tt.ctx, tt.user, tt.action)
		_, surcharge := l.Surcharge(tt.ctx, tt.user, tt.action, 1)
		for i, err := range []error{l.Ban(tt.ctx, tt.user, tt.action, time.Hour), l.Unban(tt.ctx, tt.user, tt.action), status, surcharge} {
			if !errors.Is(err, tt.want) {
				t.Errorf("call %d: %v, want %v", i, err, tt.want)
			}
		}
	}
	for _, n := range []int{0, -1} {
		if _, err := l.Surcharge(ctx, "u", "a", n); !errors.Is(err, core.ErrCost) {
			t.Errorf("Surcharge of %d: %v", n, err)
		}
	}
	if d, err := l.Allow(ctx, "u", "a"); err != nil || !d.Allowed {
		t.Errorf("after calls that do nothing: %+v, %v", d, err)
	}
}

func TestRefundWithoutAReceipt(t *testing.T) {
	ctx := t.Context()
	l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour)))
	d, _ := l.Allow(ctx, "u", "a")
	if err := l.Refund(ctx, d); !errors.Is(err, core.ErrNoReceipt) {
		t.Errorf("a limiter without Refundable: %v", err)
	}
	refused, _ := l.Allow(ctx, "u", "a")
	untouched, _ := core.Must(core.New(core.FailOpen(&flaky{err: errDown}), core.FixedWindow(1, time.Hour))).Allow(ctx, "u", "a")
	for name, d := range map[string]core.Decision{"a refusal": refused, "a decision that nobody made": untouched, "the zero one": {}} {
		if err := l.Refund(ctx, d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d, _ := l.Peek(ctx, "u", "a"); d.Allowed {
		t.Errorf("something was given back: %+v", d)
	}
}

func TestARefundIsDoneOnce(t *testing.T) {
	ctx := t.Context()
	l := core.Must(core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Hour))).With(core.Refundable{}))
	_, _ = l.AllowN(ctx, "u", "a", 2)
	d, _ := l.AllowN(ctx, "u", "a", 2)
	copied := d
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.Refund(done, d); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: %v", err)
	}
	for range 3 {
		for _, d := range []core.Decision{d, copied} {
			if err := l.Refund(ctx, d); err != nil {
				t.Error(err)
			}
		}
	}
	if d, _ := l.Peek(ctx, "u", "a"); d.Remaining != 3 {
		t.Errorf("%d remain, not 3", d.Remaining)
	}
	if peeked, _ := l.Peek(ctx, "u", "a"); l.Refund(ctx, peeked) == nil {
		t.Error("a Peek could be given back")
	}
}

// What the fallback has decided is given back to it, and what the store has, to that.
// A window knows by the instants which charges are its own. A bucket, a funnel and an
// ElasticWindow do not.
func TestARefundAfterAReset(t *testing.T) {
	for limit, tooMuch := range map[core.Limit]bool{
		core.SlidingWindow(10, time.Hour):                false,
		core.SlidingWindow(10, time.Hour).CountRefused(): false,
		core.MovingWindow(10, time.Hour):                 false,
		core.FixedWindow(10, time.Hour):                  false,
		core.ElasticWindow(10, time.Hour):                true,
		core.TokenBucket(10, core.Every(time.Hour)):      true,
		core.Funnel(10, core.Every(time.Hour)):           true,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.Must(core.New(memorystore.New(nil), limit)).With(core.Refundable{}))
			lost, _ := l.AllowN(t.Context(), "u", "a", 5)
			_ = l.Reset(t.Context(), "u", "a")
			time.Sleep(time.Millisecond)
			_, _ = l.AllowN(t.Context(), "u", "a", 5)
			err := l.Refund(t.Context(), lost)
			if d, _ := l.Peek(t.Context(), "u", "a"); err != nil || d.Remaining > 5 != tooMuch {
				t.Errorf("%s: %d remain, %v", limit, d.Remaining, err)
			}
		})
	}
}

// A bucket with Initial stays started, as after a refusal.
func TestARefundedActionStartsABucket(t *testing.T) {
	for _, cost := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.Must(core.New(memorystore.New(nil), core.TokenBucket(10, core.Every(time.Second)).Initial(1))).With(core.Refundable{}))
			d, err := l.AllowN(t.Context(), "u", "a", cost)
			if err != nil || d.Allowed != (cost == 1) || l.Refund(t.Context(), d) != nil {
				t.Fatal(d, err)
			}
			time.Sleep(3 * time.Second)
			if d, _ := l.Peek(t.Context(), "u", "a"); d.Remaining != 4 {
				t.Errorf("a cost of %d: %d remain", cost, d.Remaining)
			}
		})
	}
}

func TestARefundGoesToTheStoreThatDecided(t *testing.T) {
	ctx := t.Context()
	first, second := memorystore.New(nil), memorystore.New(nil)
	store := &flaky{Store: first}
	limit := core.FixedWindow(5, time.Hour)
	l := core.Must(core.Must(core.New(core.Observe(core.Fallback(store, second), func(context.Context, core.Observation) {}), limit)).With(core.Refundable{}))
	left := func() [2]int {
		a, _ := core.Must(core.New(first, limit)).Peek(ctx, "u", "a")
		b, _ := core.Must(core.New(second, limit)).Peek(ctx, "u", "a")
		return [2]int{a.Remaining, b.Remaining}
	}
	one, _ := l.AllowN(ctx, "u", "a", 2)
	store.err = errDown
	two, _ := l.AllowN(ctx, "u", "a", 3)
	if got := left(); one.Source != core.SourceStore || two.Source != core.SourceFallback || got != [2]int{3, 2} {
		t.Fatalf("%+v, %+v, %v", one, two, got)
	}
	if err := l.Refund(ctx, two); err != nil || left() != [2]int{3, 5} {
		t.Errorf("the fallback's: %v, %v", left(), err)
	}
	if err := l.Refund(ctx, one); err != nil || left() != [2]int{5, 5} {
		t.Errorf("the store's: %v, %v", left(), err)
	}
}
