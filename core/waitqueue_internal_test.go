package core

import (
	"testing"
	"time"
)

// A turn after more years than a Duration has is too late too.
func TestATurnInCenturiesIsTooLate(t *testing.T) {
	const year = 365 * 24 * time.Hour
	funnel := Funnel(100, Every(year))
	queues := newWaitQueues()
	var all [5]ticket
	for i := range all {
		all[i] = ticket{cost: 100, begun: time.Now(), patience: year, rule: funnel.Rule(), wakeups: make(chan wakeup, 1)}
		queues.join("key", &all[i])
		if i == 0 {
			<-all[0].wakeups // it is the first
			all[0].q.tell(answer{turn: time.Now(), reserved: true})
			continue
		}
		select {
		case c := <-all[i].wakeups:
			if c.late.Before(all[0].begun.Add(min(time.Duration(i), 2) * 100 * year)) {
				t.Errorf("caller %d has its turn at %s", i, c.late)
			}
		default:
			t.Errorf("caller %d waits for a turn in %d years", i, 100*i)
		}
	}
}

// The turn of a caller that has left says nothing of the turn of one behind it, whose cost may be lower.
func TestATurnIsForgottenWithItsCaller(t *testing.T) {
	window := FixedWindow(5, time.Hour)
	queues := newWaitQueues()
	join := func(cost int64, patience time.Duration) *ticket {
		t := &ticket{cost: cost, begun: time.Now(), patience: patience, rule: window.Rule(), wakeups: make(chan wakeup, 1)}
		queues.join("key", t)
		return t
	}
	first := join(5, 2*time.Hour)
	first.q.tell(answer{turn: time.Now().Add(time.Hour)})
	join(1, 2*time.Hour)
	queues.leave(first)
	select {
	case c := <-join(1, time.Minute).wakeups:
		t.Errorf("called with %+v", c)
	default:
	}
}
