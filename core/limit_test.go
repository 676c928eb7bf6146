package core_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A limit outside its bounds is an error of New that names the value and the
// bound; the last legal number on either side is none.
func TestNewRefusesWhatIsOutOfBounds(t *testing.T) {
	const (
		year  = 365 * 24 * time.Hour
		limit = 1_000_000_000
	)
	minute := core.Per(1, time.Minute)
	tests := []struct {
		name  string
		limit core.Limit
		want  []string // in the error; none: legal
	}{
		{"zero Limit", core.Limit{}, []string{"zero Limit"}},
		{"in flight 0", core.InFlight(0), []string{"max 0", "1 to 10000"}},
		{"in flight 1", core.InFlight(1), nil},
		{"in flight 10,000", core.InFlight(10_000).Lease(365 * 24 * time.Hour), nil},
		{"in flight 10,001", core.InFlight(10_001), []string{"max 10001", "1 to 10000"}},
		{"a lease of a microsecond", core.InFlight(1).Lease(time.Microsecond), []string{"lease 1µs", "1ms"}},
		{"a lease of over a year", core.InFlight(1).Lease(366 * 24 * time.Hour), []string{"lease 8784h0m0s", "365 days"}},
		{"a lease of part of a microsecond", core.InFlight(1).Lease(time.Second + 1), []string{"lease 1.000000001s", "whole microseconds"}},
		{"a lease of a window", core.FixedWindow(1, time.Minute).Lease(time.Minute), []string{"FixedWindow(1, 1m): Lease applies to InFlight only"}},
		{"sliding max 0", core.SlidingWindow(0, time.Minute), []string{"max 0", "1 to 10000"}},
		{"sliding max 1", core.SlidingWindow(1, time.Minute), nil},
		{"sliding max 10,000", core.SlidingWindow(10_000, time.Minute), nil},
		{"sliding max 10,001 names MovingWindow", core.SlidingWindow(10_001, time.Minute), []string{"max 10001", "MovingWindow"}},
		{"refused max 10,001", core.SlidingWindow(10_001, time.Minute).CountRefused(), []string{"max 10001", "MovingWindow"}},
		{"moving max 50,000,000", core.MovingWindow(50_000_000, time.Minute), nil},
		{"moving max 50,000,001", core.MovingWindow(50_000_001, time.Minute), []string{"max 50000001", "50000000"}},
		{"fixed max 1e9", core.FixedWindow(limit, time.Minute), nil},
		{"fixed max 1e9+1", core.FixedWindow(limit+1, time.Minute), []string{"max 1000000001", "1000000000"}},
		{"elastic max -1", core.ElasticWindow(-1, time.Minute), []string{"max -1"}},
		{"elastic MinInt", core.ElasticWindow(math.MinInt, time.Minute), []string{fmt.Sprint("max ", math.MinInt)}},
		{"period 1ms", core.FixedWindow(1, time.Millisecond), nil},
		{"period 999us", core.FixedWindow(1, 999*time.Microsecond), []string{"999µs", "1ms"}},
		{"period negative", core.FixedWindow(1, -time.Second), []string{"-1s"}},
		{"period a year", core.FixedWindow(1, year), nil},
		{"period above a year", core.FixedWindow(1, year+time.Microsecond), []string{"365 days"}},
		{"period not in whole microseconds", core.FixedWindow(1, time.Second+1), []string{"whole microseconds"}},
		{"funnel capacity 0", core.Funnel(0, minute), []string{"capacity 0"}},
		{"funnel capacity 1e9", core.Funnel(limit, core.Per(1000, time.Second)), nil},
		{"funnel capacity 1e9+1", core.Funnel(limit+1, core.Per(1000, time.Second)), []string{"capacity 1000000001"}},
		{"rate zero", core.Funnel(1, core.Rate{}), []string{"count 0"}},
		{"rate count negative", core.Funnel(1, core.Per(-1, time.Second)), []string{"count -1"}},
		{"rate count 1e9 in 1 ms", core.Funnel(1, core.Per(limit, time.Millisecond)), nil},
		{"rate count 1e9+1", core.Funnel(1, core.Per(limit+1, time.Second)), []string{"count 1000000001"}},
		{"rate period 0", core.Funnel(1, core.Per(1, 0)), []string{"period 0s"}},
		{"rate period not in whole microseconds", core.Funnel(1, core.Every(time.Second+1)), []string{"whole microseconds"}},
		{"drains in 100 years", core.Funnel(100, core.Every(year)), nil},
		{"drains in 101 years", core.Funnel(101, core.Every(year)), []string{"100 years"}},
		{"drains in 31 million years", core.Funnel(limit, core.Every(year)), []string{"100 years"}},
		{"throttle 0", core.Throttle(0, minute), nil},
		{"throttle 1e9-1", core.Throttle(limit-1, core.Per(limit, time.Second)), nil},
		{"throttle 1e9", core.Throttle(limit, core.Per(limit, time.Second)), []string{"maxBurst 1000000000", "999999999"}},
		{"throttle -1", core.Throttle(-1, minute), []string{"maxBurst -1", "0 to"}},
		{"throttle MaxInt", core.Throttle(math.MaxInt, minute), []string{fmt.Sprint("maxBurst ", math.MaxInt-1)}},
		{"initial 1", core.TokenBucket(10, minute).Initial(1), nil},
		{"initial 10 of 10", core.TokenBucket(10, minute).Initial(10), nil},
		{"initial 0", core.TokenBucket(10, minute).Initial(0), []string{"initial tokens 0", "1 to the capacity 10"}},
		{"initial 11 of 10", core.TokenBucket(10, minute).Initial(11), []string{"initial tokens 11"}},
		{"initial on a funnel", core.Funnel(10, minute).Initial(1), []string{"Initial", "TokenBucket only"}},
		{"initial on a window", core.FixedWindow(10, time.Minute).Initial(1), []string{"Initial", "TokenBucket only"}},
		{"forget on a bucket without initial", core.TokenBucket(10, minute).ForgetAfter(time.Hour), []string{"needs Initial"}},
		{"forget on a funnel", core.Funnel(10, minute).ForgetAfter(time.Hour), []string{"ForgetAfter", "TokenBucket only"}},
		{"forget at the time to fill", core.TokenBucket(10, minute).Initial(1).ForgetAfter(10 * time.Minute), nil},
		{"forget below the time to fill", core.TokenBucket(10, minute).Initial(1).ForgetAfter(10*time.Minute - 1000), []string{"9m59.999999s", "10m0s"}},
		{"forget not in whole microseconds", core.TokenBucket(10, minute).Initial(1).ForgetAfter(time.Hour + 1), []string{"whole microseconds"}},
		{"forget above 101 years", core.TokenBucket(10, minute).Initial(1).ForgetAfter(101*year + 1000), []string{"101 years"}},
		{"count refused on a moving window", core.MovingWindow(5, time.Minute).CountRefused(), []string{"CountRefused", "SlidingWindow only"}},
		{"lease 1ms", core.MovingWindow(5, time.Minute).Leased(time.Millisecond), nil},
		{"lease below 1ms", core.MovingWindow(5, time.Minute).Leased(999 * time.Microsecond), []string{"lease 999µs", "1ms"}},
		{"lease of a tenth", core.MovingWindow(5, time.Minute).Leased(6 * time.Second), nil},
		{"lease above a tenth", core.MovingWindow(5, time.Minute).Leased(6*time.Second + 1000), []string{"lease 6.000001s", "1ms to 6s"}},
		{"lease of a fixed window", core.FixedWindow(5, time.Minute).Leased(6 * time.Second), nil},
		{"lease of a bucket", core.TokenBucket(10, minute).Leased(time.Minute), nil},
		{"lease above a tenth of a bucket", core.TokenBucket(10, minute).Leased(time.Minute + 1000), []string{"1ms to 1m0s"}},
		{"lease of a funnel of 2", core.Funnel(2, minute).Leased(12 * time.Second), nil},
		{"lease that leaves nothing", core.Funnel(1, minute).Leased(time.Second), []string{"Leased(1s)", "capacity 1"}},
		{"lease of a period that is too short", core.MovingWindow(5, 5*time.Millisecond).Leased(time.Millisecond), []string{"so short a period", "500µs"}},
		{"lease not in whole microseconds", core.FixedWindow(5, time.Minute).Leased(time.Second + 1), []string{"whole microseconds"}},
		{"lease negative", core.FixedWindow(5, time.Minute).Leased(-time.Second), []string{"lease -1s"}},
		{"lease of ages", core.Funnel(5, minute).Leased(math.MaxInt64 / 1000 * 1000), []string{"lease", "30s"}},
		{"lease of a sliding window", core.SlidingWindow(5, time.Minute).Leased(time.Second), []string{"SlidingWindow", "history", "MovingWindow"}},
		{"lease with CountRefused", core.SlidingWindow(5, time.Minute).CountRefused().Leased(time.Second), []string{"CountRefused", "every attempt"}},
		{"lease of an elastic window", core.ElasticWindow(5, time.Minute).Leased(time.Second), []string{"ElasticWindow", "every attempt"}},
		{"lease of InFlight", core.InFlight(5).Leased(time.Second), []string{"InFlight", "slot"}},
		{"lease of a calendar", core.CalendarWindow(5, core.Day, nil).Leased(time.Second), nil},
		{"lease with Initial", core.TokenBucket(10, minute).Initial(3).Leased(time.Second), []string{"Initial"}},
		{"lease of bad numbers", core.Funnel(0, minute).Leased(time.Second), []string{"capacity 0"}},
		{"name of 64", core.FixedWindow(1, time.Minute).Named(strings.Repeat("a", 64)), nil},
		{"name of 65", core.FixedWindow(1, time.Minute).Named(strings.Repeat("a", 65)), []string{"name", "64"}},
		{"name empty", core.FixedWindow(1, time.Minute).Named(""), []string{"name"}},
		{"name with a colon", core.FixedWindow(1, time.Minute).Named("a:b"), []string{"name"}},
		{"name with a newline", core.FixedWindow(1, time.Minute).Named("a\n"), []string{"name"}},
		{"name with every legal kind of character", core.FixedWindow(1, time.Minute).Named("aZ09._-"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := core.New(memorystore.New(nil), tt.limit)
			if len(tt.want) == 0 {
				if err != nil || l == nil {
					t.Fatalf("New(%s) = %v, %v; want a limiter", tt.limit, l, err)
				}
				return
			}
			if !errors.Is(err, core.ErrConfig) || l != nil {
				t.Fatalf("New(%s) = %v, %v; want an ErrConfig", tt.limit, l, err)
			}
			for _, want := range append(tt.want, "core: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	store := memorystore.New(nil)
	minute := core.SlidingWindow(5, time.Minute)
	tests := []struct {
		name   string
		store  core.Store
		limits []core.Limit
		want   string
	}{
		{"nil store", nil, []core.Limit{minute}, "store is nil"},
		{"no limits", store, nil, "no limits"},
		{"the same limit twice", store, []core.Limit{minute, minute}, "Named"},
		{"two limits of one identity", store, []core.Limit{minute, core.SlidingWindow(9, time.Minute)}, "Named"},
		{"Funnel and Throttle are one kind", store, []core.Limit{core.Funnel(1, core.Every(time.Second)), core.Throttle(0, core.Per(60, time.Minute))}, "Named"},
		{"the second limit is bad", store, []core.Limit{minute, core.FixedWindow(0, time.Hour)}, "max 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := core.New(tt.store, tt.limits...)
			if !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v; want an ErrConfig that says %q", err, tt.want)
			}
			defer func() {
				if recover() == nil {
					t.Error("Must did not panic")
				}
			}()
			core.Must(core.New(tt.store, tt.limits...))
		})
	}
	for _, limits := range [][]core.Limit{
		{minute, core.SlidingWindow(5, time.Hour)},
		{minute, minute.Named("b")},
		{minute, minute.CountRefused()},
		{minute, core.MovingWindow(5, time.Minute)},
		{core.Funnel(5, core.Every(time.Second)), core.Funnel(100, core.Per(100, time.Minute))},
	} {
		if _, err := core.New(store, limits...); err != nil {
			t.Errorf("New(%s): %v", limits, err)
		}
	}
}

func TestLimitsCompareByTheirNumbers(t *testing.T) {
	a, b := core.SlidingWindow(5, time.Minute), core.SlidingWindow(5, time.Minute)
	if a != b {
		t.Error("two equal limits differ")
	}
	distinct := map[core.Limit]bool{}
	all := []core.Limit{
		core.SlidingWindow(5, time.Minute), core.SlidingWindow(6, time.Minute), core.SlidingWindow(5, time.Hour),
		core.SlidingWindow(5, time.Minute).CountRefused(), core.SlidingWindow(5, time.Minute).Named("a"),
		core.MovingWindow(5, time.Minute), core.FixedWindow(5, time.Minute), core.ElasticWindow(5, time.Minute),
		core.Funnel(5, core.Every(time.Minute)), core.TokenBucket(5, core.Every(time.Minute)),
		core.TokenBucket(5, core.Every(time.Minute)).Initial(2),
	}
	for _, l := range all {
		distinct[l] = true
	}
	if len(distinct) != len(all) {
		t.Errorf("%d distinct limits of %d", len(distinct), len(all))
	}
	l := core.Must(core.New(memorystore.New(nil), all[0]))
	if got := l.Limits(); len(got) != 1 || got[0] != all[0] {
		t.Errorf("Limits() = %v, want the limit that New was given", got)
	}
	l.Limits()[0] = all[1]
	if l.Limits()[0] != all[0] {
		t.Error("a limiter can be changed through Limits")
	}
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func TestLimitAccessors(t *testing.T) {
	tests := []struct {
		limit          core.Limit
		text, identity string
		quota          int
		period         time.Duration
		kind           string
		forget         time.Duration
	}{
		{core.SlidingWindow(5, time.Minute), "SlidingWindow(5, 1m)", "sliding:1m", 5, time.Minute, "sliding", 0},
		{core.InFlight(5), "InFlight(5)", "inflight:1m", 5, time.Minute, "inflight", 0},
		{core.InFlight(5).Lease(30 * time.Second), "InFlight(5).Lease(30s)", "inflight:30s", 5, 30 * time.Second, "inflight", 0},
		{core.SlidingWindow(5, time.Minute).CountRefused(), "SlidingWindow(5, 1m).CountRefused()", "refused:1m", 5, time.Minute, "refused", 0},
		{core.MovingWindow(5, time.Hour).Named("x"), `MovingWindow(5, 1h).Named("x")`, "moving:1h:x", 5, time.Hour, "moving", 0},
		{core.FixedWindow(5, time.Millisecond), "FixedWindow(5, 1ms)", "fixed:1ms", 5, time.Millisecond, "fixed", 0},
		{core.ElasticWindow(5, time.Second), "ElasticWindow(5, 1s)", "elastic:1s", 5, time.Second, "elastic", 0},
		{core.Funnel(15, core.Per(30, time.Minute)), "Funnel(15, Per(30, 1m))", "funnel:15:1/2s", 15, 30 * time.Second, "funnel", 0},
		{core.Throttle(15, core.Per(30, time.Minute)), "Throttle(15, Per(30, 1m))", "funnel:16:1/2s", 16, 32 * time.Second, "funnel", 0},
		{core.Funnel(1, core.Per(7, time.Second)), "Funnel(1, Per(7, 1s))", "funnel:1:7/1s", 1, 142858 * time.Microsecond, "funnel", 0},
		{core.TokenBucket(10, core.Every(6*time.Second)).Initial(3), "TokenBucket(10, Per(1, 6s)).Initial(3)", "bucket:3/10:1/6s", 10, time.Minute, "bucket", 24*time.Hour + time.Minute},
		{core.TokenBucket(10, core.Every(time.Second)).Initial(3).ForgetAfter(time.Hour).Named("p"), `TokenBucket(10, Per(1, 1s)).Initial(3).ForgetAfter(1h).Named("p")`, "bucket:3/10:1/1s:p", 10, 10 * time.Second, "bucket", time.Hour},
		{core.TokenBucket(10, core.Per(10, time.Minute)).Named("3"), `TokenBucket(10, Per(10, 1m)).Named("3")`, "bucket:10:1/6s:3", 10, time.Minute, "bucket", 0},
		{core.Funnel(3, core.Per(400, time.Millisecond)).Shadow(), "Funnel(3, Per(400, 1ms)).Shadow()", "shadow:funnel:3:2/5us", 3, 8 * time.Microsecond, "funnel", 0},
		{core.Funnel(3, core.Every(90*time.Minute)), "Funnel(3, Per(1, 1h30m))", "funnel:3:1/1h30m", 3, 270 * time.Minute, "funnel", 0},
		{core.FixedWindow(3, 600*time.Second), "FixedWindow(3, 10m)", "fixed:10m", 3, 10 * time.Minute, "fixed", 0},
		{core.FixedWindow(3, 10*time.Second), "FixedWindow(3, 10s)", "fixed:10s", 3, 10 * time.Second, "fixed", 0},
	}
	for _, tt := range tests {
		l := tt.limit
		if l.String() != tt.text || l.Identity() != tt.identity || l.Quota() != tt.quota || l.Period() != tt.period || l.Kind() != tt.kind || micros(l.Rule().ForgetAfter) != tt.forget {
			t.Errorf("%s: identity %q, quota %d, period %s, kind %s, forget %d; want %+v", l, l.Identity(), l.Quota(), l.Period(), l.Kind(), l.Rule().ForgetAfter, tt)
		}
	}
}

func TestWhenAQuotaComesBack(t *testing.T) {
	berlin := load(t, "Europe/Berlin")
	start, end := time.Date(2026, 3, 1, 0, 0, 0, 0, berlin), time.Date(2026, 4, 1, 0, 0, 0, 0, berlin)
	for _, tt := range []struct {
		limit         core.Limit
		slots, atOnce bool
		start, end    time.Time
	}{
		{limit: core.InFlight(3), slots: true},
		{limit: core.SlidingWindow(3, time.Minute)},
		{limit: core.MovingWindow(3, time.Minute)},
		{limit: core.TokenBucket(3, core.Every(time.Second))},
		{limit: core.Funnel(3, core.Every(time.Second))},
		{limit: core.FixedWindow(3, time.Minute), atOnce: true},
		{limit: core.ElasticWindow(3, time.Minute), atOnce: true},
		{core.CalendarWindow(3, core.Month, berlin), false, true, start, end},
	} {
		l := tt.limit
		for _, at := range []time.Time{start, end.Add(-time.Microsecond)} {
			from, to := l.PeriodAt(at.UTC())
			if l.TakesSlots() != tt.slots || l.ResetsAtOnce() != tt.atOnce || !from.Equal(tt.start) || !to.Equal(tt.end) || from.Format(time.RFC3339) != tt.start.Format(time.RFC3339) {
				t.Errorf("%s at %s: slots %t, at once %t, from %s to %s; want %+v", &l, at, l.TakesSlots(), l.ResetsAtOnce(), from, to, tt)
			}
		}
	}
}

func TestCallsThatReachNoStore(t *testing.T) {
	l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour)))
	ctx := context.Background()
	done, cancel := context.WithCancel(ctx)
	cancel()
	tests := []struct {
		name string
		call func() error
		want error
	}{
		{"empty user", func() error { _, err := l.Allow(ctx, "", "a"); return err }, core.ErrNoUser},
		{"empty action", func() error { _, err := l.Allow(ctx, "u", ""); return err }, core.ErrNoAction},
		{"empty user of Peek", func() error { _, err := l.Peek(ctx, "", "a"); return err }, core.ErrNoUser},
		{"empty action of Reset", func() error { return l.Reset(ctx, "u", "") }, core.ErrNoAction},
		{"empty user of AllowN 0", func() error { _, err := l.AllowN(ctx, "", "a", 0); return err }, core.ErrNoUser},
		{"negative cost", func() error { _, err := l.AllowN(ctx, "u", "a", -1); return err }, core.ErrCost},
		{"the most negative cost", func() error { _, err := l.AllowN(ctx, "u", "a", math.MinInt); return err }, core.ErrCost},
		{"context done on entry", func() error { _, err := l.Allow(done, "u", "a"); return err }, context.Canceled},
		{"context done on entry of Reset", func() error { return l.Reset(done, "u", "a") }, context.Canceled},
	}
	for _, tt := range tests {
		if err := tt.call(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if d, err := l.Allow(ctx, "u", "a"); err != nil || !d.Allowed {
		t.Errorf("after calls that charge nothing: %+v, %v", d, err)
	}
}

// "Cell returns the decision as the five integers of a reply of CL.THROTTLE"
func TestCell(t *testing.T) {
	tests := []struct {
		name string
		d    core.Decision
		want [5]int64
	}{
		{"allowed has no retry", core.Decision{Allowed: true, Limit: 16, Remaining: 15, ResetAfter: 2 * time.Second}, [5]int64{0, 16, 15, -1, 2}},
		{"seconds are rounded up", core.Decision{Limit: 16, RetryAfter: time.Microsecond, ResetAfter: 2*time.Second + time.Microsecond}, [5]int64{1, 16, 0, 1, 3}},
		{"never has no retry", core.Decision{Limit: 5, Remaining: 5, RetryAfter: core.Never}, [5]int64{1, 5, 5, -1, 0}},
	}
	for _, tt := range tests {
		if got := tt.d.Cell(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
