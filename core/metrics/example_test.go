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
	for _, u := range m.MostRefused(10).Users {
		fmt.Printf("%s was refused %d times, last a %s\n", u.User, u.Refused, u.Action)
	}
	// Output: alice was refused 2 times, last a reply
}

// Who was refused in the last hour, over two processes?
func ExampleMergeRefused() {
	options := &metrics.Options{RefusedWindow: time.Hour, ShowUsers: true, HashKey: []byte("the same secret in both")}
	var lists []metrics.RefusedUsers
	for range 2 { // processes, which hand over their lists as JSON
		m := metrics.New(options)
		replies := core.Must(core.New(m.Watch(memorystore.New(nil)), core.SlidingWindow(5, time.Minute)))
		for range 7 {
			_, _ = replies.Allow(context.Background(), "alice", "reply")
		}
		lists = append(lists, m.MostRefused(1000))
	}
	for _, u := range metrics.MergeRefused(10, lists...).Users {
		fmt.Printf("%s was refused %d times, last by %s\n", u.User, u.Refused, u.Limit)
	}
	// Output: alice was refused 4 times, last by sliding:1m
}

// A line for every refusal. Without ShowUsers it does not name the user.
func ExampleMetrics_OnDecision() {
	m := metrics.New(&metrics.Options{ShowUsers: true})
	m.OnDecision(func(_ context.Context, d metrics.Decision) {
		if !d.Passes {
			fmt.Println(d.User, d.Action, d.Limit, d.Outcome, "retry after", d.RetryAfter.Round(time.Minute))
		}
	})
	exports := core.Must(core.New(m.Watch(memorystore.New(nil)), core.FixedWindow(1, time.Hour)))
	for range 2 {
		_, _ = exports.Allow(context.Background(), "alice", "export")
	}
	// Output: alice export fixed:1h limited retry after 1h0m0s
}
