package machine_test

import (
	"fmt"

	"github.com/tailcut/tailcut/core/machine"
)

const second = 1_000_000 // in microseconds

// A funnel of two units that drains one a second, and an instant that the caller gives.
func Example() {
	rule := machine.NewMeter(machine.KindFunnel, 2, 1, second)
	var e machine.Entry // nothing is kept
	ask := machine.Ask{}
	for _, now := range []int64{100 * second, 100 * second, 100 * second, 101 * second} {
		rule.Check(&e, now, 1, &ask)
		if e.Fits {
			rule.Charge(&e, now, 1, &ask)
		} else {
			rule.Refuse(&e, now, 1, true, false)
		}
		if e.Fits {
			fmt.Println("fits, remaining", rule.Remaining(&e.Reading))
		} else {
			fmt.Println("refused, retry after", e.Wait)
		}
	}
	// Output:
	// fits, remaining 1
	// fits, remaining 0
	// refused, retry after 1000000
	// fits, remaining 0
}

// A store that keeps bytes loads a state, decides, and saves it until it expires.
func ExampleRule_Marshal() {
	rule := machine.NewWindow(machine.KindSlidingWindow, 2, 60*second)
	var saved []byte
	for _, now := range []int64{100 * second, 130 * second, 140 * second} {
		state, err := rule.Unmarshal(saved)
		if err != nil {
			fmt.Println(err)
			return
		}
		e, ask := machine.Entry{State: state}, machine.Ask{}
		if rule.Check(&e, now, 1, &ask); e.Fits {
			rule.Charge(&e, now, 1, &ask)
		}
		fmt.Println(e.Fits, "expires at", e.Expires/second)
		if e.Dirty {
			saved = rule.Marshal(e.State)
		}
	}
	// Output:
	// true expires at 160
	// true expires at 190
	// false expires at 190
}
