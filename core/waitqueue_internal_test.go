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
		all[i] = ticket{cost: 100, begun: time.Now(), patience: year, rule: funnel.Rule(), calls: make(chan call, 1)}
		queues.join("key", &all[i])
		if i == 0 {
			<-all[0].calls // it is the first
			all[0].q.tell(answer{turn: time.Now(), reserved: true})
			continue
		}
		select {
		case c := <-all[i].calls:
			if c.late.Before(all[0].begun.Add(min(time.Duration(i), 2) * 100 * year)) {
				t.Errorf("caller %d has its turn at %s", i, c.late)
			}
		default:
			t.Errorf("caller %d waits for a turn in %d years", i, 100*i)
		}
	}
}
