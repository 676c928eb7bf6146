package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// Five replies a minute.
func Example() {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	for range 6 {
		d, err := replies.Allow(context.Background(), "laoqian", "reply")
		switch {
		case err != nil:
			fmt.Println("there is no decision:", err)
		case !d.Allowed:
			fmt.Println("refused; again in", d.RetryAfter.Round(time.Second))
		default:
			fmt.Println("allowed;", d.Remaining, "more would pass now")
		}
	}
	// Output:
	// allowed; 4 more would pass now
	// allowed; 3 more would pass now
	// allowed; 2 more would pass now
	// allowed; 1 more would pass now
	// allowed; 0 more would pass now
	// refused; again in 1m0s
}

// admitted is how many actions a limit admits at once.
func admitted(limit core.Limit) (n int) {
	limiter := core.Must(core.New(memorystore.New(nil), limit))
	for {
		if d, err := limiter.Allow(context.Background(), "laoqian", "like"); err != nil || !d.Allowed {
			return n
		}
		n++
	}
}

// Several limits: an action that one of them refuses is charged to none.
func ExampleNew() {
	posts, err := core.New(memorystore.New(nil),
		core.MovingWindow(1, 3*time.Second),
		core.FixedWindow(200, 24*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		d, _ := posts.Allow(context.Background(), "laoqian", "post")
		fmt.Println(d.Allowed, posts.Limits()[d.Binding])
	}
	s, _ := posts.Status(context.Background(), "laoqian", "post")
	fmt.Println(s.Limits[1].Remaining, "left today")
	_, err = core.New(memorystore.New(nil), core.FixedWindow(0, time.Hour))
	fmt.Println(errors.Is(err, core.ErrConfig), err)
	// Output:
	// true MovingWindow(1, 3s)
	// false MovingWindow(1, 3s)
	// 199 left today
	// true core: FixedWindow(0, 1h): max 0 is not within 1 to 1000000000
}

func ExampleFixedWindow() {
	fmt.Println(admitted(core.FixedWindow(200, 24*time.Hour)))
	// Output: 200
}

func ExampleElasticWindow() {
	fmt.Println(admitted(core.ElasticWindow(5, 15*time.Minute)))
	// Output: 5
}

func ExampleSlidingWindow() {
	fmt.Println(admitted(core.SlidingWindow(5, time.Minute)))
	// Output: 5
}

func ExampleMovingWindow() {
	fmt.Println(admitted(core.MovingWindow(1000, time.Minute)))
	// Output: 1000
}

// Fifteen at once, then thirty a minute.
func ExampleFunnel() {
	fmt.Println(admitted(core.Funnel(15, core.Per(30, time.Minute))))
	// Output: 15
}

// A bucket of ten that a new user finds half full.
func ExampleTokenBucket() {
	fmt.Println(admitted(core.TokenBucket(10, core.Every(time.Minute))))
	fmt.Println(admitted(core.TokenBucket(10, core.Every(time.Minute)).Initial(5)))
	// Output:
	// 10
	// 5
}

// CL.THROTTLE key 15 30 60 admits sixteen at once.
func ExampleThrottle() {
	fmt.Println(admitted(core.Throttle(15, core.Per(30, time.Minute))))
	// Output: 16
}

// Likes and replies count together.
func ExampleLimit_PerUser() {
	ctx := context.Background()
	all := core.Must(core.New(memorystore.New(nil), core.FixedWindow(2, time.Hour).PerUser()))
	for _, action := range []string{"like", "reply", "like"} {
		d, _ := all.Allow(ctx, "laoqian", action)
		fmt.Println(action, d.Allowed)
	}
	// Output:
	// like true
	// reply true
	// like false
}

func ExampleLimiter_AllowN() {
	exports := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1000, time.Hour)))
	d, _ := exports.AllowN(context.Background(), "laoqian", "export", 800)
	fmt.Println(d.Allowed, d.Remaining)
	d, _ = exports.AllowN(context.Background(), "laoqian", "export", 800)
	fmt.Println(d.Allowed, d.Remaining)
	d, _ = exports.AllowN(context.Background(), "laoqian", "export", 1001)
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
		d, _ := replies.Peek(ctx, "laoqian", "reply")
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 5
	// true 5
}

func ExampleLimiter_Reset() {
	ctx := context.Background()
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(1, time.Minute)))
	_, _ = replies.Allow(ctx, "laoqian", "reply")
	fmt.Println(replies.Reset(ctx, "laoqian", "reply"))
	d, _ := replies.Allow(ctx, "laoqian", "reply")
	fmt.Println(d.Allowed)
	// Output:
	// <nil>
	// true
}

// Only the response tells what a query has cost.
func ExampleLimiter_Surcharge() {
	ctx := context.Background()
	queries := core.Must(core.New(memorystore.New(nil), core.Funnel(100, core.Per(100, time.Hour))))
	_, _ = queries.Allow(ctx, "laoqian", "query")
	d, err := queries.Surcharge(ctx, "laoqian", "query", 29)
	fmt.Println(d.Remaining, err)
	// Output: 70 <nil>
}

// While the store has no answer, everybody passes.
func ExampleFailOpen() {
	store := core.FailOpen(unplugged{})
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	d, err := replies.Allow(context.Background(), "laoqian", "reply")
	fmt.Println(d.Allowed, err)
	// Output: true <nil>
}

type unplugged struct{}

var errUnplugged = errors.New("no answer")

func (unplugged) Take(context.Context, core.Charge) (core.Decision, error) {
	return core.Decision{}, errUnplugged
}

func (unplugged) Reset(context.Context, string, string, []core.Limit) error { return errUnplugged }
