package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func TestWhatALimiterOfNothingCannotHave(t *testing.T) {
	store := memorystore.New(nil)
	off := core.Must(core.New(store, core.Nothing(), core.SlidingWindow(5, time.Minute).Shadow()))
	for name, make := range map[string]func() (*core.Limiter, error){
		"another limit": func() (*core.Limiter, error) {
			return core.New(store, core.SlidingWindow(5, time.Minute), core.Nothing())
		},
		"a BanPolicy":  func() (*core.Limiter, error) { return off.With(core.BanPolicy{}) },
		"OnlyFailures": func() (*core.Limiter, error) { return off.With(core.OnlyFailures{}) },
		"Leased":       func() (*core.Limiter, error) { return core.New(store, core.Nothing().Leased(time.Second)) },
	} {
		_, err := make()
		if !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), strings.Fields(name)[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingStaysNothing(t *testing.T) {
	l := core.Nothing().Named("off")
	if got, err := core.ParseLimit(l.String()); err != nil || got != l {
		t.Errorf("ParseLimit(%s) = %s, %v", l, got, err)
	}
	for name, store := range map[string]core.Store{
		"divided":                  core.Divide(memorystore.New(nil), 3),
		"failing, open":            core.FailOpen(down{}),
		"failing, with a fallback": core.Fallback(down{}, memorystore.New(nil)),
	} {
		d, err := core.Must(core.New(store, l)).Allow(t.Context(), "alice", "reply")
		if err != nil || d.Allowed || d.Reason != core.ReasonNothing || d.RetryAfter != core.Never {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}
