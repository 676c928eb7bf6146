package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
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
		if _, err := l.Surcharge(ctx, "u", "a", n); !errors.Is(err, core.ErrCost) || !strings.Contains(err.Error(), "less than 1") {
			t.Errorf("Surcharge of %d: %v", n, err)
		}
	}
	if d, err := l.Allow(ctx, "u", "a"); err != nil || !d.Allowed {
		t.Errorf("after calls that do nothing: %+v, %v", d, err)
	}
}
