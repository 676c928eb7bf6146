package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/storetest"
)

// A store's test opens the store on a clock that the suite moves:
//
//	func TestStore(t *testing.T) { storetest.Run(t, open) }
//
// The store must follow that clock, as it does here.
func Example() {
	open := func(testing.TB) storetest.Fixture {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		return storetest.Fixture{
			Store:   memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }}),
			Advance: func(d time.Duration) { now = now.Add(d) },
			Now:     func() time.Time { return now },
		}
	}

	fixture := open(nil)
	exports := core.Must(core.New(fixture.Store, core.FixedWindow(1, time.Hour)))
	for range 3 {
		d, err := exports.Allow(context.Background(), "alice", "export")
		fmt.Println(d.Allowed, d.RetryAfter, err)
		fixture.Advance(30 * time.Minute)
	}
	// Output:
	// true 0s <nil>
	// false 30m0s <nil>
	// true 0s <nil>
}
