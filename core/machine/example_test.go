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
		r := rule.Read(&state, now, &ask)
		if r.Fits {
			fmt.Println("fits, remaining", rule.Remaining(r))
		} else {
			fmt.Println("refused, retry after", r.Wait)
		}
	}
	// Output:
	// fits, remaining 1
	// fits, remaining 0
	// refused, retry after 1000000
	// fits, remaining 0
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
		ask := machine.Ask{Cost: 1}
		if rule.Check(&state, now, &ask); state.Fits {
			rule.Charge(&state, now, &ask)
		}
		fmt.Println(state.Fits, "expires at", rule.Expires(&state)/second)
		if state.Dirty {
			saved, _ = state.MarshalBinary()
		}
	}
	// Output:
	// true expires at 160
	// true expires at 190
	// false expires at 190
}
