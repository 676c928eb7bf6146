package core_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// An action frees its place a minute later, and there are never more than two in any
// minute.
func ExampleSlidingWindow() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	replies := core.Must(core.New(store, core.SlidingWindow(2, time.Minute)))
	for _, seconds := range []time.Duration{0, 40, 10, 10, 30} {
		now = now.Add(seconds * time.Second)
		d, _ := replies.Allow(context.Background(), "alice", "reply")
		fmt.Println(now.Format("15:04:05"), d.Allowed, d.RetryAfter)
	}
	// Output:
	// 09:00:00 true 0s
	// 09:00:40 true 0s
	// 09:00:50 false 10s
	// 09:01:00 true 0s
	// 09:01:30 false 10s
}

// The decisions of a SlidingWindow, for a million actions a minute.
func ExampleMovingWindow() {
	events := core.Must(core.New(memorystore.New(nil), core.MovingWindow(1_000_000, time.Minute)))
	d, _ := events.AllowN(context.Background(), "alice", "event", 999_999)
	fmt.Println(d.Allowed, d.Remaining)
	d, _ = events.AllowN(context.Background(), "alice", "event", 2)
	fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute))
	// Output:
	// true 1
	// false 1m0s
}

// The window opens with the first action and ends an hour later. Five actions pass within
// two minutes here: two at the end of a window and three at the start of the next.
func ExampleFixedWindow() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	exports := core.Must(core.New(store, core.FixedWindow(3, time.Hour)))
	for _, minutes := range []time.Duration{0, 58, 0, 1, 1, 0, 0, 0} {
		now = now.Add(minutes * time.Minute)
		d, _ := exports.Allow(context.Background(), "alice", "export")
		fmt.Println(now.Format("15:04"), d.Allowed, d.RetryAfter)
	}
	// Output:
	// 09:00 true 0s
	// 09:58 true 0s
	// 09:58 true 0s
	// 09:59 false 1m0s
	// 10:00 true 0s
	// 10:00 true 0s
	// 10:00 true 0s
	// 10:00 false 1h0m0s
}

// A quota of each calendar month in New York. On 1 March at midnight there, five hours behind UTC, the
// count starts anew.
func ExampleCalendarWindow() {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		panic(err) // import _ "time/tzdata" if the machine has no time zones
	}
	now := time.Date(2026, 2, 28, 23, 59, 0, 0, zone)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	reports := core.Must(core.New(store, core.CalendarWindow(10_000, core.Month, zone)))
	for _, minutes := range []time.Duration{0, 0, 1} {
		now = now.Add(minutes * time.Minute)
		d, _ := reports.AllowN(context.Background(), "alice", "report", 9_000)
		fmt.Println(d.Allowed, d.Remaining, now.Add(d.ResetAfter).Format(time.RFC3339))
	}
	// Output:
	// true 1000 2026-03-01T00:00:00-05:00
	// false 1000 2026-03-01T00:00:00-05:00
	// true 1000 2026-04-01T00:00:00-04:00
}

// A user who keeps trying stays refused. The window ends only after a period without
// attempts.
func ExampleElasticWindow() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	logins := core.Must(core.New(store, core.ElasticWindow(2, 15*time.Minute)))
	for _, minutes := range []time.Duration{0, 1, 10, 10, 10, 15} {
		now = now.Add(minutes * time.Minute)
		d, _ := logins.Allow(context.Background(), "alice", "login")
		fmt.Println(now.Format("15:04"), d.Allowed, d.RetryAfter)
	}
	// Output:
	// 09:00 true 0s
	// 09:01 true 0s
	// 09:11 false 15m0s
	// 09:21 false 15m0s
	// 09:31 false 15m0s
	// 09:46 true 0s
}

// Fifteen likes at once, and then one every two seconds.
func ExampleFunnel() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	likes := core.Must(core.New(store, core.Funnel(15, core.Per(30, time.Minute))))
	like := func() core.Decision {
		d, _ := likes.Allow(context.Background(), "alice", "like")
		return d
	}
	n := 0
	for like().Allowed {
		n++
	}
	fmt.Println(n, "at once, the next in", like().RetryAfter)
	now = now.Add(2 * time.Second)
	fmt.Println(like().Allowed, like().Allowed)
	// Output:
	// 15 at once, the next in 2s
	// true false
}

// Ten posts at once, and then one every six seconds.
func ExampleTokenBucket() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	posts := core.Must(core.New(store, core.TokenBucket(10, core.Every(6*time.Second))))
	d, _ := posts.AllowN(context.Background(), "alice", "post", 10)
	fmt.Println(d.Allowed, d.Remaining)
	now = now.Add(27 * time.Second) // four tokens and a half
	d, _ = posts.Peek(context.Background(), "alice", "post")
	fmt.Println(d.Remaining, "and the bucket is full in", d.ResetAfter)
	// Output:
	// true 0
	// 4 and the bucket is full in 33s
}

// CL.THROTTLE key 15 30 60 admits sixteen at once.
func ExampleThrottle() {
	likes := core.Must(core.New(memorystore.New(nil), core.Throttle(15, core.Per(30, time.Minute))))
	d, _ := likes.AllowN(context.Background(), "alice", "like", 16)
	fmt.Println(d.Allowed, d.Limit)
	// Output: true 16
}

// A user has one stream at a time. The process renews the lease of a long one.
func ExampleInFlight() {
	streams := core.Must(core.New(memorystore.New(nil), core.InFlight(1).Lease(30*time.Second)))
	ctx := context.Background()

	first, _ := streams.Allow(ctx, "alice", "stream")
	second, _ := streams.Allow(ctx, "alice", "stream")
	fmt.Println(first.Allowed, second.Allowed, second.Reason)

	fmt.Println(streams.Renew(ctx, first)) // another 30 s
	fmt.Println(streams.Release(ctx, first))

	second, _ = streams.Allow(ctx, "alice", "stream")
	fmt.Println(second.Allowed)
	// Output:
	// true false in-flight
	// <nil>
	// <nil>
	// true
}

// What a lease of 50 ms costs: a funnel some of its capacity, and a moving window, in which each call now
// counts 50 ms longer, some of its rate. A fixed window loses nothing.
func ExampleLimit_Leased() {
	for _, limit := range []core.Limit{
		core.Funnel(10_000, core.Per(10_000, time.Second)),
		core.MovingWindow(10_000, time.Second),
		core.FixedWindow(10_000, time.Second),
	} {
		calls := core.Must(core.New(memorystore.New(nil), limit.Leased(50*time.Millisecond)))
		d, _ := calls.Allow(context.Background(), "acme", "call")
		fmt.Println(d.Limit, "calls; each counts for", d.ResetAfter)
	}
	// Output:
	// 9500 calls; each counts for 100µs
	// 10000 calls; each counts for 1.05s
	// 10000 calls; each counts for 1s
}

// A new user has three posts. The bucket fills up to ten from the first post on.
func ExampleLimit_Initial() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	posts := core.Must(core.New(store, core.TokenBucket(10, core.Every(time.Hour)).Initial(3)))
	remaining := func() int {
		d, _ := posts.Peek(context.Background(), "alice", "post")
		return d.Remaining
	}
	now = now.Add(24 * time.Hour)
	fmt.Println(remaining(), "before the first post")
	_, _ = posts.Allow(context.Background(), "alice", "post")
	fmt.Println(remaining(), "after it")
	now = now.Add(24 * time.Hour)
	fmt.Println(remaining(), "a day later")
	// Output:
	// 3 before the first post
	// 2 after it
	// 10 a day later
}

// A user who has not posted for thirty days is a new user again.
func ExampleLimit_ForgetAfter() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	posts := core.Must(core.New(store,
		core.TokenBucket(10, core.Every(time.Hour)).Initial(3).ForgetAfter(30*24*time.Hour)))
	_, _ = posts.Allow(context.Background(), "alice", "post")
	for _, days := range []time.Duration{29, 1} {
		now = now.Add(days * 24 * time.Hour)
		d, _ := posts.Peek(context.Background(), "alice", "post")
		fmt.Println(d.Remaining)
	}
	// Output:
	// 10
	// 3
}

// Refused attempts are recorded too, so a user who keeps trying stays refused.
func ExampleLimit_CountRefused() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	forgiving := core.Must(core.New(store, core.SlidingWindow(1, time.Minute)))
	strict := core.Must(core.New(store, core.SlidingWindow(1, time.Minute).CountRefused()))
	for _, seconds := range []time.Duration{0, 40, 40} {
		now = now.Add(seconds * time.Second)
		one, _ := forgiving.Allow(context.Background(), "alice", "login")
		other, _ := strict.Allow(context.Background(), "alice", "login")
		fmt.Println(one.Allowed, other.Allowed)
	}
	// Output:
	// true true
	// false false
	// true false
}

// Two limits of one kind and period would share a state. A name tells them apart.
func ExampleLimit_Named() {
	store := memorystore.New(nil)
	burst := core.SlidingWindow(5, time.Minute).Named("burst")
	_, err := core.New(store, core.SlidingWindow(5, time.Minute), core.SlidingWindow(20, time.Minute))
	fmt.Println(err)
	_, err = core.New(store, burst, core.SlidingWindow(20, time.Minute))
	fmt.Println(err, burst.Identity())
	// Output:
	// core: New: SlidingWindow(5, 1m) and SlidingWindow(20, 1m) would share one state; tell them apart with Named
	// <nil> sliding:1m:burst
}

// Likes and replies count together.
func ExampleLimit_PerUser() {
	ctx := context.Background()
	all := core.Must(core.New(memorystore.New(nil), core.FixedWindow(2, time.Hour).PerUser()))
	for _, action := range []string{"like", "reply", "like"} {
		d, _ := all.Allow(ctx, "alice", action)
		fmt.Println(action, d.Allowed)
	}
	// Output:
	// like true
	// reply true
	// like false
}

// Five a minute are allowed. Would a limit of three refuse anything?
func ExampleLimit_Shadow() {
	replies := core.Must(core.New(memorystore.New(nil),
		core.SlidingWindow(5, time.Minute),
		core.SlidingWindow(3, time.Minute).Named("three").Shadow()))
	for range 6 {
		d, _ := replies.Allow(context.Background(), "alice", "reply")
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

// A limit in the environment or a file. The error says what is wrong, and where.
func ExampleParseLimit() {
	for _, text := range []string{"Funnel(15, Per(30, 1m))", "Funnel(15, 30/m)"} {
		limit, err := core.ParseLimit(text)
		fmt.Println(limit, err)
	}
	// Output:
	// Funnel(15, Per(30, 1m)) <nil>
	// Limit{} core: ParseLimit: "Funnel(15, 30/m)", position 12: "30/m" is not a rate; write Per(30, 1m) or Every(2s)
}

// A Limit is a field of a configuration file, and a flag.
func ExampleLimit_UnmarshalText() {
	var config struct{ Replies, Likes core.Limit }
	err := json.Unmarshal([]byte(`{"replies": "SlidingWindow(5, 1m)", "likes": "Funnel(15, Every(2s))"}`), &config)
	fmt.Println(config.Likes, err)

	flags := flag.NewFlagSet("forum", flag.ContinueOnError)
	flags.TextVar(&config.Replies, "replies", config.Replies, "the limit of replies")
	err = flags.Parse([]string{"-replies", "SlidingWindow(10, 1m)"})
	fmt.Println(config.Replies, err)
	// Output:
	// Funnel(15, Per(1, 2s)) <nil>
	// SlidingWindow(10, 1m) <nil>
}
