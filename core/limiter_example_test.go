package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// An error is not a decision: the action was neither allowed nor refused.
func ExampleLimiter_Allow() {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	d, err := replies.Allow(context.Background(), "alice", "reply")
	fmt.Println(d.Allowed, d.Remaining, err)

	_, err = replies.Allow(context.Background(), "", "reply")
	fmt.Println(errors.Is(err, core.ErrNoUser), err)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = replies.Allow(ctx, "alice", "reply")
	fmt.Println(errors.Is(err, context.Canceled), err)
	// Output:
	// true 4 <nil>
	// true core: the user is empty
	// true context canceled
}

func ExampleLimiter_AllowN() {
	exports := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1000, time.Hour)))
	d, _ := exports.AllowN(context.Background(), "alice", "export", 800)
	fmt.Println(d.Allowed, d.Remaining)
	d, _ = exports.AllowN(context.Background(), "alice", "export", 800)
	fmt.Println(d.Allowed, d.Remaining)
	d, _ = exports.AllowN(context.Background(), "alice", "export", 1001)
	fmt.Println(d.Allowed, d.RetryAfter == core.Never)
	// Output:
	// true 200
	// false 200
	// false true
}

func ExampleLimiter_Peek() {
	ctx := context.Background()
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	for range 2 {
		d, _ := replies.Peek(ctx, "alice", "reply")
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 5
	// true 5
}

// Every limit's own numbers, for a page that shows users what they have left.
func ExampleLimiter_Status() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	posts := core.Must(core.New(store, core.Funnel(2, core.Every(time.Minute)), core.FixedWindow(100, 24*time.Hour)))
	for range 3 {
		_, _ = posts.Allow(ctx, "alice", "post")
	}
	s, err := posts.Status(ctx, "alice", "post")
	for _, l := range s.Limits {
		fmt.Println(l.Limit, "remaining", l.Remaining, "retry after", l.RetryAfter, "reset after", l.ResetAfter)
	}
	fmt.Println(err)
	// Output:
	// Funnel(2, Per(1, 1m)) remaining 0 retry after 1m0s reset after 2m0s
	// FixedWindow(100, 24h) remaining 98 retry after 0s reset after 24h0m0s
	// <nil>
}

func ExampleLimiter_Reset() {
	ctx := context.Background()
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(1, time.Minute)))
	_, _ = replies.Allow(ctx, "alice", "reply")
	fmt.Println(replies.Reset(ctx, "alice", "reply"))
	d, _ := replies.Allow(ctx, "alice", "reply")
	fmt.Println(d.Allowed)
	// Output:
	// <nil>
	// true
}

// The cost of a query is known only from its response.
func ExampleLimiter_Surcharge() {
	ctx := context.Background()
	queries := core.Must(core.New(memorystore.New(nil), core.Funnel(100, core.Per(100, time.Hour))))
	_, _ = queries.Allow(ctx, "alice", "query")
	d, err := queries.Surcharge(ctx, "alice", "query", 29)
	fmt.Println(d.Remaining, err)
	// Output: 70 <nil>
}

// If the turn comes before the deadline, Wait waits. If not, it refuses at once.
func ExampleLimiter_Wait() {
	likes := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(10*time.Millisecond))))
	for range 3 {
		d, err := likes.Wait(context.Background(), "alice", "like")
		fmt.Println(d.Allowed, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	slow := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(time.Hour))))
	for range 2 {
		d, err := slow.Wait(ctx, "alice", "like")
		fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// true 0s <nil>
	// false 1h0m0s core: the action gets no turn before the deadline
}

// A batch waits until there is room for all of it. A batch that is larger than the limit is
// refused at once.
func ExampleLimiter_WaitN() {
	rows := core.Must(core.New(memorystore.New(nil), core.Funnel(100, core.Per(10, time.Millisecond))))
	for _, batch := range []int{100, 100, 101} {
		d, err := rows.WaitN(context.Background(), "importer", "row", batch)
		fmt.Println(d.Allowed, errors.Is(err, core.ErrRefused), d.RetryAfter == core.Never)
	}
	// Output:
	// true false false
	// true false false
	// false true true
}

// A post that could not be published costs nothing.
func ExampleLimiter_Refund() {
	ctx := context.Background()
	posts := core.Must(core.New(memorystore.New(nil), core.FixedWindow(100, 24*time.Hour), core.Funnel(3, core.Every(time.Minute))))
	posts = core.Must(posts.With(core.Refundable{}))
	publish := func() error { return errors.New("the disk is full") }

	d, _ := posts.Allow(ctx, "alice", "post")
	fmt.Println(d.Remaining)
	if err := publish(); err != nil {
		fmt.Println(posts.Refund(ctx, d))
	}
	d, _ = posts.Peek(ctx, "alice", "post")
	fmt.Println(d.Remaining)
	// Output:
	// 2
	// <nil>
	// 3
}

// An import reserves the quota of a whole file, and gives back what it did not need.
func ExampleLimiter_RefundN() {
	ctx := context.Background()
	rows := core.Must(core.New(memorystore.New(nil), core.FixedWindow(10_000, 24*time.Hour)))
	rows = core.Must(rows.With(core.Refundable{}))
	d, _ := rows.AllowN(ctx, "alice", "import", 5000)
	imported := 4200 // the others were there already
	fmt.Println(rows.RefundN(ctx, d, 5000-imported))
	d, _ = rows.Peek(ctx, "alice", "import")
	fmt.Println(d.Remaining)
	// Output:
	// <nil>
	// 5800
}

// A chat reserves 500 tokens for an answer, and pays for what the model has written. Bob's answer was
// short. Alice's took more than the minute had left, so alice waits until her debt is paid.
func ExampleLimiter_Settle() {
	ctx := context.Background()
	tokens := core.Must(core.New(memorystore.New(nil), core.TokenBucket(1000, core.Per(1000, time.Minute))))
	tokens = core.Must(tokens.With(core.Refundable{}))
	for _, chat := range []struct {
		user    string
		written int
	}{{"bob", 100}, {"alice", 1600}} {
		d, _ := tokens.AllowN(ctx, chat.user, "chat", 500)
		err := tokens.Settle(ctx, d, chat.written)
		d, _ = tokens.Peek(ctx, chat.user, "chat")
		fmt.Println(chat.user, err, d.Allowed, d.Remaining, d.RetryAfter.Round(time.Second))
	}
	// Output:
	// bob <nil> true 900 0s
	// alice <nil> false 0 36s
}

// A derived limiter shares the state of the original.
func ExampleLimiter_With() {
	ctx := context.Background()
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	strict, err := replies.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = replies.Allow(ctx, "alice", "reply")
	d, _ := strict.Allow(ctx, "alice", "reply")
	fmt.Println(d.Remaining)
	// Output: 3
}

// A user who keeps trying is banned, for longer each time.
func ExampleBanPolicy() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	replies = core.Must(replies.With(core.BanPolicy{
		Refusals: 5, Within: time.Minute,
		Bans: []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
	}))
	for range 3 {
		for range 11 { // five pass, five are refused, and then the user is banned
			_, _ = replies.Allow(ctx, "alice", "reply")
		}
		d, _ := replies.Allow(ctx, "alice", "reply")
		fmt.Println(d.Reason, d.RetryAfter, d.BanLevel)
		now = now.Add(d.RetryAfter)
	}
	// Output:
	// banned 1m0s 1
	// banned 10m0s 2
	// banned 1h0m0s 3
}

// A moderator bans a user from all actions for a day.
func ExampleLimiter_Ban() {
	ctx := context.Background()
	forum := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	forum = core.Must(forum.With(core.BanPolicy{PerUser: true}))

	fmt.Println(forum.Ban(ctx, "xiaoming", "reply", 24*time.Hour))
	d, _ := forum.Allow(ctx, "xiaoming", "post")
	fmt.Println(d.Allowed, d.Reason, d.RetryAfter.Round(time.Hour))
	// Output:
	// <nil>
	// false banned 24h0m0s
}

// A ban that was a mistake ends. The limit is as it was.
func ExampleLimiter_Unban() {
	ctx := context.Background()
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	replies = core.Must(replies.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
	for range 6 {
		_, _ = replies.Allow(ctx, "alice", "reply")
	}
	for range 2 {
		s, _ := replies.Status(ctx, "alice", "reply")
		fmt.Println("banned:", s.Ban.Banned, "remaining:", s.Limits[0].Remaining)
		_ = replies.Unban(ctx, "alice", "reply")
	}
	// Output:
	// banned: true remaining: 0
	// banned: false remaining: 0
}

// A plan without a limit counts all the same. Its max is one that nobody reaches. The window is that of
// the other plans, so what was used counts when the user goes back.
func Example_unlimitedPlan() {
	ctx := context.Background()
	store := memorystore.New(nil)
	const most = 1_000_000_000 // of a FixedWindow
	plans := map[string]*core.Limiter{
		"free":      core.Must(core.New(store, core.FixedWindow(200, 24*time.Hour))),
		"unlimited": core.Must(core.New(store, core.FixedWindow(most, 24*time.Hour))),
	}
	_, _ = plans["free"].AllowN(ctx, "alice", "export", 150)
	_, _ = plans["unlimited"].AllowN(ctx, "alice", "export", 3000)

	s, _ := plans["unlimited"].Status(ctx, "alice", "export")
	fmt.Println("used today:", most-s.Limits[0].Remaining)
	d, _ := plans["free"].Allow(ctx, "alice", "export")
	fmt.Println("back on the free plan:", d.Allowed)
	// Output:
	// used today: 3150
	// back on the free plan: false
}
