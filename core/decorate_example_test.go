package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// What happens while a store has no answer is said where it is built.
func ExampleFallback() {
	for _, store := range []core.Store{
		down{}, // an error: the middleware answers 503
		core.FailOpen(down{}),
		core.Fallback(down{}, memorystore.New(nil)),
	} {
		replies := core.Must(core.New(store, core.SlidingWindow(1, time.Minute)))
		for range 2 {
			d, err := replies.Allow(context.Background(), "laoqian", "reply")
			fmt.Println(d.Allowed, d.Source, err)
		}
	}
	// Output:
	// false none the store is down
	// false none the store is down
	// true none <nil>
	// true none <nil>
	// true fallback <nil>
	// false fallback <nil>
}

// With four processes each decides by a quarter of every quota while the store is away.
func ExampleDivide() {
	store := core.Fallback(down{}, core.Divide(memorystore.New(nil), 4))
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	for range 3 {
		d, err := replies.Allow(context.Background(), "laoqian", "reply")
		fmt.Println(d.Allowed, d.Limit, d.Source, err)
	}
	// Output:
	// true 2 fallback <nil>
	// true 2 fallback <nil>
	// false 2 fallback <nil>
}

// A rehearsal decides and never refuses.
func ExampleShadow() {
	store := core.Observe(core.Shadow(memorystore.New(nil)),
		func(_ context.Context, o core.Observation) {
			if o.Decision.Reason == core.ReasonShadowed {
				fmt.Println(o.Action, "would be refused by", o.Limits[o.Decision.Binding])
			}
		})

	replies := core.Must(core.New(store, core.SlidingWindow(1, time.Minute)))
	for range 2 {
		d, _ := replies.Allow(context.Background(), "laoqian", "reply")
		fmt.Println(d.Allowed)
	}
	// Output:
	// true
	// reply would be refused by SlidingWindow(1, 1m)
	// true
}

// down is a store without an answer.
type down struct{}

func (down) Take(context.Context, core.Charge) (core.Decision, error) {
	return core.Decision{}, errors.New("the store is down")
}

func (down) Reset(context.Context, string, string, []core.Limit) error {
	return errors.New("the store is down")
}
