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

// A user who keeps trying is banned. Moderators look, ban and unban by hand.
func ExampleBanPolicy() {
	ctx := context.Background()
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	replies = core.Must(replies.With(core.BanPolicy{
		Refusals: 5, Within: time.Minute,
		Bans: []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
	}))
	for range 10 {
		_, _ = replies.Allow(ctx, "laoqian", "reply")
	}
	how := func(user string) {
		s, err := replies.Status(ctx, user, "reply")
		fmt.Println(s.Ban.Banned, s.Ban.RetryAfter.Round(time.Second), s.Ban.Level, err)
	}
	how("laoqian")
	_ = replies.Ban(ctx, "xiaoming", "reply", 24*time.Hour)
	how("xiaoming")
	_ = replies.Unban(ctx, "xiaoming", "reply")
	how("xiaoming")
	// Output:
	// true 1m0s 1 <nil>
	// true 24h0m0s 0 <nil>
	// false 0s 0 <nil>
}

// A turn that comes in time is waited for, and one that does not is refused at once.
func ExampleLimiter_Wait() {
	likes := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(10*time.Millisecond))))
	for range 3 {
		d, err := likes.Wait(context.Background(), "laoqian", "like")
		fmt.Println(d.Allowed, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	slow := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(time.Hour))))
	for range 2 {
		d, err := slow.Wait(ctx, "laoqian", "like")
		fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// true 0s <nil>
	// false 1h0m0s core: the action does not get its turn before the deadline
}

// A post that could not be published costs nothing.
func ExampleLimiter_Refund() {
	ctx := context.Background()
	posts := core.Must(core.New(memorystore.New(nil), core.FixedWindow(100, 24*time.Hour), core.Funnel(3, core.Every(time.Minute))))
	posts = core.Must(posts.With(core.Refundable{}))
	publish := func() error { return errors.New("the disk is full") }

	d, _ := posts.Allow(ctx, "laoqian", "post")
	fmt.Println(d.Remaining)
	if err := publish(); err != nil {
		fmt.Println(posts.Refund(ctx, d))
	}
	d, _ = posts.Peek(ctx, "laoqian", "post")
	fmt.Println(d.Remaining)
	// Output:
	// 2
	// <nil>
	// 3
}

// Would three a minute do, where five are allowed?
func ExampleLimit_Shadow() {
	replies := core.Must(core.New(memorystore.New(nil),
		core.SlidingWindow(5, time.Minute),
		core.SlidingWindow(3, time.Minute).Named("three").Shadow()))
	for range 6 {
		d, _ := replies.Allow(context.Background(), "laoqian", "reply")
		fmt.Printf("%v %q\n", d.Allowed, d.Reason)
	}
	// Output:
	// true ""
	// true ""
	// true "near"
	// true "shadowed"
	// true "shadowed"
	// false "limited"
}

// Every decision as a count by action, limit and verdict, as metrics are made of, and
// what is not simply allowed as a line in the log. No user is in either.
func ExampleObserve() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: timeless}))
	type series struct{ action, limit, verdict string }
	var mu sync.Mutex
	counts := map[series]int{}
	see := func(ctx context.Context, o core.Observation) {
		verdict := "allowed"
		switch {
		case o.Peek:
			return // nobody did anything
		case o.Err != nil:
			verdict = "error"
		case o.Decision.Reason != "":
			verdict = string(o.Decision.Reason) // limited, banned, full; shadowed, near
		}
		limit := o.Limits[o.Decision.Binding]
		if verdict == "shadowed" || verdict == "near" {
			for _, l := range o.Limits {
				if l.Shadowed() {
					limit = l // what is rehearsed says so, and not what binds
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
		_, _ = replies.Allow(context.Background(), "laoqian", "reply")
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
