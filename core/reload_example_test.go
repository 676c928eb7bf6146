package core_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A program reads its numbers from a file, and reads them again while it runs. The store
// stays, so a window with another max keeps its history. A file with an error changes
// nothing.
func ExampleParseLimit_reload() {
	store := memorystore.New(nil)
	var replies atomic.Pointer[core.Limiter]

	load := func(file string) error {
		var numbers struct{ Replies core.Limit }
		if err := json.Unmarshal([]byte(file), &numbers); err != nil {
			return err
		}
		limiter, err := core.New(store, numbers.Replies)
		if err != nil {
			return err
		}
		replies.Store(limiter)
		return nil
	}
	reply := func() {
		d, _ := replies.Load().Allow(context.Background(), "alice", "reply")
		fmt.Printf("allowed=%t, %d of %d remain\n", d.Allowed, d.Remaining, d.Limit)
	}

	fmt.Println(load(`{"Replies": "SlidingWindow(2, 1h)"}`))
	reply()
	reply()
	reply()
	fmt.Println(load(`{"Replies": "SlidingWindow(3, 1h)"}`))
	reply()
	reply()
	fmt.Println(load(`{"Replies": "SlidingWindow(0, 1h)"}`))
	reply()
	// Output:
	// <nil>
	// allowed=true, 1 of 2 remain
	// allowed=true, 0 of 2 remain
	// allowed=false, 0 of 2 remain
	// <nil>
	// allowed=true, 0 of 3 remain
	// allowed=false, 0 of 3 remain
	// core: SlidingWindow(0, 1h): max 0 is not within 1 to 10000
	// allowed=false, 0 of 3 remain
}
