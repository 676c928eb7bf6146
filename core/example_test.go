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
		d, err := replies.Allow(context.Background(), "alice", "reply")
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
		d, _ := posts.Allow(context.Background(), "alice", "post")
		fmt.Println(d.Allowed, posts.Limits()[d.Binding])
	}
	s, _ := posts.Status(context.Background(), "alice", "post")
	fmt.Println(s.Limits[1].Remaining, "left today")
	_, err = core.New(memorystore.New(nil), core.FixedWindow(0, time.Hour))
	fmt.Println(errors.Is(err, core.ErrConfig), err)
	// Output:
	// true MovingWindow(1, 3s)
	// false MovingWindow(1, 3s)
	// 199 left today
	// true core: FixedWindow(0, 1h): max 0 is not within 1 to 1000000000
}

// What redis-cell's CL.THROTTLE key 15 30 60 replies to the first action and to the
// seventeenth.
func ExampleDecision_Cell() {
	likes := core.Must(core.New(memorystore.New(nil), core.Throttle(15, core.Per(30, time.Minute))))
	for i := range 17 {
		d, _ := likes.Allow(context.Background(), "alice", "like")
		if i == 0 || i == 16 {
			fmt.Println(d.Cell())
		}
	}
	// Output:
	// [0 16 15 -1 2]
	// [1 16 0 2 32]
}
