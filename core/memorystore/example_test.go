package memorystore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func Example() {
	store := memorystore.New(nil)
	replies := core.Must(core.New(store, core.SlidingWindow(2, time.Minute)))
	for range 3 {
		d, err := replies.Allow(context.Background(), "alice", "reply")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// A test moves the clock instead of waiting.
func ExampleOptions_clock() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	replies := core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
	reply := func() {
		d, err := replies.Allow(context.Background(), "alice", "reply")
		fmt.Println(d.Allowed, d.RetryAfter, err)
	}
	reply()
	now = now.Add(20 * time.Minute)
	reply()
	now = now.Add(40 * time.Minute)
	reply()
	// Output:
	// true 0s <nil>
	// false 40m0s <nil>
	// true 0s <nil>
}

// A full store does not drop a refused user to make room for a new one.
func ExampleOptions_maxKeys() {
	store := memorystore.New(&memorystore.Options{MaxKeys: 1000})
	logins := core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
	login := func(user string) core.Decision {
		d, _ := logins.Allow(context.Background(), user, "login")
		return d
	}
	login("alice")
	fmt.Println(login("alice").Allowed)
	for i := range 5000 {
		login(fmt.Sprint("stranger ", i))
	}
	fmt.Println(login("alice").Allowed)
	keys, most := store.Len()
	fmt.Println(keys <= most, login("another").Reason)
	// Output:
	// false
	// false
	// true full
}
