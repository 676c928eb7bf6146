package machine_test

import (
	"fmt"

	"github.com/tailcut/tailcut/core/machine"
)

const second = 1_000_000 // in microseconds

// A funnel of two units that drains one a second, and an instant that the caller gives.
func Example() {
	rule := machine.NewMeter(machine.KindFunnel, 2, 1, second)
	var state machine.State // nothing is kept
	ask := machine.Ask{Cost: 1}
	for _, now := range []int64{100 * second, 100 * second, 100 * second, 101 * second} {
		rule.Check(&state, now, &ask)
		if state.Fits {
			rule.Charge(&state, now, &ask)
		} else {
			rule.Refuse(&state, now, &ask, true)
		}
		var r machine.Reading
		rule.Read(&r, &state, now, &ask)
		if r.Fits {
			fmt.Println("fits, remaining", rule.Remaining(&r))
		} else {
			fmt.Println("refused, retry after", rule.RetryAfter(&r, ask.Cost))
		}
	}
	// Output:
	// fits, remaining 1
	// fits, remaining 0
	// refused, retry after 1000000
	// fits, remaining 0
}

// A charge that one rule decides takes one call.
func ExampleRule_Decide() {
	rule := machine.NewWindow(machine.KindFixedWindow, 2, 60*second)
	var state machine.State
	for _, cost := range []int64{1, 2, 1} {
		v := rule.Decide(&state, 100*second, cost)
		fmt.Println(v.Outcome == machine.Admitted, "count", v.Count, "ends in", v.Rest.Whole)
	}
	// Output:
	// true count 1 ends in 60000000
	// false count 1 ends in 60000000
	// true count 2 ends in 60000000
}

// A store that keeps bytes loads a state, decides, and saves it until it expires.
func ExampleState_MarshalBinary() {
	rule := machine.NewWindow(machine.KindSlidingWindow, 2, 60*second)
	var saved []byte
	for _, now := range []int64{100 * second, 130 * second, 140 * second} {
		var state machine.State
		if err := state.UnmarshalBinary(saved); err != nil {
			fmt.Println(err)
			return
		}
		v := rule.Decide(&state, now, 1)
		fmt.Println(v.Outcome == machine.Admitted, "expires at", rule.Expires(&state)/second)
		if state.Dirty {
			saved, _ = state.MarshalBinary()
		}
	}
	// Output:
	// true expires at 160
	// true expires at 190
	// false expires at 190
}
