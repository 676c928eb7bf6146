package metrics_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

func ExampleMetrics_Snapshot() {
	m := metrics.New(nil)
	store := m.Watch(memorystore.New(nil))
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	for range 7 {
		_, _ = replies.Allow(context.Background(), "alice", "reply")
	}
	for _, d := range m.Snapshot().Decisions {
		fmt.Println(d.Action, d.Limit, d.Outcome, d.Source, d.Count)
	}
	// Output:
	// reply sliding:1m allowed store 5
	// reply sliding:1m limited store 2
}

// Who is refused most right now? Without ShowUsers the list has hashes.
func ExampleMetrics_MostRefused() {
	m := metrics.New(&metrics.Options{ShowUsers: true})
	replies := core.Must(core.New(m.Watch(memorystore.New(nil)), core.SlidingWindow(5, time.Minute)))
	for range 7 {
		_, _ = replies.Allow(context.Background(), "alice", "reply")
	}
	for _, u := range m.MostRefused(10) {
		fmt.Printf("%s was refused %d times, last a %s\n", u.User, u.Refused, u.Action)
	}
	// Output: alice was refused 2 times, last a reply
}

// A line for every refusal. It does not name the user.
func ExampleMetrics_OnRefusal() {
	m := metrics.New(nil)
	m.OnRefusal(func(_ context.Context, r metrics.Refusal) {
		fmt.Println(r.Action, r.Limit, r.Outcome, "retry after", r.RetryAfter.Round(time.Minute))
	})
	exports := core.Must(core.New(m.Watch(memorystore.New(nil)), core.FixedWindow(1, time.Hour)))
	for range 2 {
		_, _ = exports.Allow(context.Background(), "alice", "export")
	}
	// Output: export fixed:1h limited retry after 1h0m0s
}
