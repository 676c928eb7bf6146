//go:build !race

package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

// History says what is wrong with its arguments, as every method of a Limiter does.
func TestHistoryOfNobody(t *testing.T) {
	w, window := miniWorld(t, 3), core.SlidingWindow(5, time.Hour)
	if _, err := w.store.History(t.Context(), "", action, window); err != core.ErrNoUser {
		t.Errorf("no user: %v", err)
	}
	if _, err := w.store.History(t.Context(), user, "", window); err != core.ErrNoAction {
		t.Errorf("no action: %v", err)
	}
	var none context.Context
	if _, err := w.store.History(none, user, action, window); err == nil || !strings.Contains(err.Error(), "the context is nil") {
		t.Errorf("no context: %v", err)
	}
}

func TestHistory(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		start := time.UnixMicro(w.now)
		history := func(l core.Limit) []redisstore.Entry {
			t.Helper()
			h, err := w.store.History(t.Context(), user, action, l)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		act := func(l core.Limit, n int) {
			t.Helper()
			if _, err := core.Must(core.New(w.store, l)).AllowN(t.Context(), user, action, n); err != nil {
				t.Fatal(err)
			}
		}
		same := func(got []redisstore.Entry, want ...redisstore.Entry) {
			t.Helper()
			if !slices.EqualFunc(got, want, func(a, b redisstore.Entry) bool { return a.Time.Equal(b.Time) && a.Admitted == b.Admitted }) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		plain, counting := core.SlidingWindow(2, time.Minute), core.SlidingWindow(3, time.Minute).CountRefused()
		same(history(plain))
		act(plain, 1)
		act(counting, 2)
		w.advance(1500 * time.Microsecond)
		later := start.Add(1500 * time.Microsecond)
		for range 3 {
			act(plain, 1)
		}
		act(counting, 2) // refused, and both are kept
		same(history(plain), redisstore.Entry{Time: start, Admitted: true}, redisstore.Entry{Time: later, Admitted: true})
		same(history(core.SlidingWindow(7, time.Minute)), history(plain)...)
		same(history(counting), redisstore.Entry{Time: start, Admitted: true}, redisstore.Entry{Time: later}, redisstore.Entry{Time: later})
		same(history(core.SlidingWindow(2, time.Hour))) // another state
		for _, l := range kinds[2:] {
			h, err := w.store.History(t.Context(), user, action, l)
			if h != nil || err == nil || !strings.Contains(err.Error(), "SlidingWindow") {
				t.Errorf("%s: %v, %v", l, h, err)
			}
			discreet(t, err)
		}

		// Many, in order.
		many := core.SlidingWindow(10_000, time.Hour)
		for range 4 {
			act(many, 2500)
			w.advance(time.Microsecond)
		}
		h := history(many)
		if len(h) != 10_000 || !slices.IsSortedFunc(h, func(a, b redisstore.Entry) int { return a.Time.Compare(b.Time) }) {
			t.Errorf("%d entries", len(h))
		}

		for name, command := range nonsense(plain, w.now) {
			key := w.store.Key("else", action, plain)
			if err := w.rdb.Do(t.Context(), append([]any{command[0], key}, command[1:]...)...).Err(); err != nil {
				t.Fatal(err)
			}
			if h, err := w.store.History(t.Context(), "else", action, plain); !errors.Is(err, redisstore.ErrState) {
				t.Errorf("%s: %v, %v; want ErrState", name, h, err)
			}
			w.rdb.Del(t.Context(), key)
		}
	})
}
