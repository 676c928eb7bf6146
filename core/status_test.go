package core_test

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func TestStatusReportsEveryLimitAndTheBan(t *testing.T) {
	now := time.Unix(1e9, 0)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	fixed, funnel, shadow := core.FixedWindow(2, time.Minute), core.Funnel(5, core.Every(time.Second)), core.FixedWindow(1, time.Hour).Shadow()
	l := core.Must(core.Must(core.New(store, shadow, fixed, funnel)).With(
		core.BanPolicy{Refusals: 3, Within: time.Hour, Bans: []time.Duration{time.Minute}, ForgetAfter: time.Hour}))
	for range 3 {
		_, _ = l.Allow(t.Context(), "u", "a")
	}
	now = now.Add(time.Second)
	got, err := l.Status(t.Context(), "u", "a")
	want := []core.LimitStatus{
		{Limit: fixed, Remaining: 0, RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second, Used: 2},
		{Limit: funnel, Remaining: 4, ResetAfter: time.Second, Used: 1},
		{Limit: shadow, Remaining: 0, RetryAfter: time.Hour - time.Second, ResetAfter: time.Hour - time.Second, Used: 1},
	}
	if err != nil || len(got.Limits) != len(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range want {
		if got.Limits[i] != want[i] {
			t.Errorf("limit %d: %+v, want %+v", i, got.Limits[i], want[i])
		}
	}
	if want := (core.BanStatus{ForgetAfter: time.Hour - time.Second, Refusals: 1}); got.Ban != want {
		t.Errorf("%+v, want %+v", got.Ban, want)
	}
	for range 2 {
		_, _ = l.Allow(t.Context(), "u", "a")
	}
	got, err = l.Status(t.Context(), "u", "a")
	if want := (core.BanStatus{Banned: true, RetryAfter: time.Minute, ForgetAfter: time.Hour + time.Minute, Level: 1}); err != nil || got.Ban != want {
		t.Errorf("%+v, %v, want %+v", got.Ban, err, want)
	}
}
