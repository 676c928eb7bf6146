package storetest_test

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/storetest"
)

// A store's own test: it opens a store on a clock that the suite moves.
func Example() {
	test := func(t *testing.T) {
		storetest.Run(t, func(testing.TB) storetest.Fixture {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			return storetest.Fixture{
				Store:   memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }}),
				Advance: func(d time.Duration) { now = now.Add(d) },
			}
		})
	}
	_ = test // go test calls it by its name, such as TestStore
	// Output:
}
