package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// The decorator decides what happens while the store has no answer.
func ExampleFallback() {
	for _, store := range []core.Store{
		down{}, // an error: the middleware answers 503
		core.FailOpen(down{}),
		core.Fallback(down{}, memorystore.New(nil)),
	} {
		replies := core.Must(core.New(store, core.SlidingWindow(1, time.Minute)))
		for range 2 {
			d, err := replies.Allow(context.Background(), "alice", "reply")
			fmt.Println(d.Allowed, d.Source, err)
		}
	}
	// Output:
	// false none the store is down
	// false none the store is down
	// true none <nil>
	// true none <nil>
	// true fallback <nil>
	// false fallback <nil>
}

// While the store has no answer, each of four processes has a quarter of every quota.
func ExampleDivide() {
	store := core.Fallback(down{}, core.Divide(memorystore.New(nil), 4))
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	for range 3 {
		d, err := replies.Allow(context.Background(), "alice", "reply")
		fmt.Println(d.Allowed, d.Limit, d.Source, err)
	}
	// Output:
	// true 2 fallback <nil>
	// true 2 fallback <nil>
	// false 2 fallback <nil>
}

// A dry run decides and never refuses.
func ExampleShadow() {
	store := core.Observe(core.Shadow(memorystore.New(nil)),
		func(_ context.Context, o core.Observation) {
			if o.Decision.Reason == core.ReasonShadowed {
				fmt.Println(o.Action, "would be refused by", o.Limits[o.Decision.Binding])
			}
		})

	replies := core.Must(core.New(store, core.SlidingWindow(1, time.Minute)))
	for range 2 {
		d, _ := replies.Allow(context.Background(), "alice", "reply")
		fmt.Println(d.Allowed)
	}
	// Output:
	// true
	// reply would be refused by SlidingWindow(1, 1m)
	// true
}

// It counts decisions by action, limit and verdict, as metrics do, and logs those with a
// reason. Neither names a user.
func ExampleObserve() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: timeless}))
	type series struct{ action, limit, verdict string }
	var mu sync.Mutex
	counts := map[series]int{}
	see := func(ctx context.Context, o core.Observation) {
		verdict := "allowed"
		switch {
		case o.Peek:
			return // not an action
		case o.Err != nil:
			verdict = "error"
		case o.Decision.Reason != "":
			verdict = string(o.Decision.Reason) // limited, banned, full; shadowed, near
		}
		limit := o.Limits[o.Decision.Binding]
		if verdict == "shadowed" || verdict == "near" {
			for _, l := range o.Limits {
				if l.IsShadow() {
					limit = l // the reason is about the shadow limit, not the binding one
				}
			}
		}
		mu.Lock()
		counts[series{o.Action, limit.Identity(), verdict}]++
		mu.Unlock()
		if verdict != "allowed" {
			logger.LogAttrs(ctx, slog.LevelInfo, "decision", slog.String("action", o.Action),
				slog.String("limit", limit.Identity()), slog.String("verdict", verdict), slog.Int("bans", int(o.Decision.BanLevel)))
		}
	}

	replies := core.Must(core.New(core.Observe(memorystore.New(nil), see),
		core.SlidingWindow(5, time.Minute),
		core.SlidingWindow(3, time.Minute).Named("three").Shadow())) // would three do?
	replies = core.Must(replies.With(core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
	for range 8 {
		_, _ = replies.Allow(context.Background(), "alice", "reply")
	}
	fmt.Println(counts)
	// Output:
	// level=INFO msg=decision action=reply limit=shadow:sliding:1m:three verdict=near bans=0
	// level=INFO msg=decision action=reply limit=shadow:sliding:1m:three verdict=shadowed bans=0
	// level=INFO msg=decision action=reply limit=shadow:sliding:1m:three verdict=shadowed bans=0
	// level=INFO msg=decision action=reply limit=sliding:1m verdict=limited bans=0
	// level=INFO msg=decision action=reply limit=sliding:1m verdict=banned bans=1
	// level=INFO msg=decision action=reply limit=sliding:1m verdict=banned bans=1
	// map[{reply shadow:sliding:1m:three near}:1 {reply shadow:sliding:1m:three shadowed}:2 {reply sliding:1m allowed}:2 {reply sliding:1m banned}:2 {reply sliding:1m limited}:1]
}

func timeless(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// While the store has no answer, every user passes.
func ExampleFailOpen() {
	replies := core.Must(core.New(core.FailOpen(down{}), core.SlidingWindow(5, time.Minute)))
	d, err := replies.Allow(context.Background(), "alice", "reply")
	fmt.Println(d.Allowed, d.Source, err)
	// Output: true none <nil>
}

// down is a store without an answer.
type down struct{}

func (down) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{}, nil, errors.New("the store is down")
}

func (down) Reset(context.Context, string, string, []core.Limit) error {
	return errors.New("the store is down")
}
