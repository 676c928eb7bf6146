package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A counted server counts its decisions.
type counted struct {
	core.Amender
	decided atomic.Int64
}

func (s *counted) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.decided.Add(1)
	return s.Amender.Take(ctx, c)
}

// A caller who waits for the lock until its lease has ended uses no unit of it.
func TestALeaseEndsWhileACallerWaitsForTheLock(t *testing.T) {
	store := &counted{Amender: memorystore.New(nil)}
	table := New(store, time.Second, nil, Room)
	c := core.Charge{User: "alice", Action: "call", Terms: &core.Terms{Limits: []core.Limit{core.MovingWindow(1_000_000, 10*time.Second).Leased(time.Second)}}}
	c.Cost = 1
	ask := func() {
		d, _, err := table.take(t.Context(), &c, 20*time.Millisecond)
		if err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	}
	s := table.shard(c.User)
	var end time.Time
	for range 10_000 {
		ask()
		s.mu.Lock()
		for _, h := range s.held {
			if n := len(h.grants); n > 0 && h.grants[n-1].left > 10 {
				end = h.grants[n-1].end
			}
		}
		if !end.IsZero() {
			break // with the lock
		}
		s.mu.Unlock()
	}
	if end.IsZero() {
		t.Fatal("the process holds nothing")
	}
	before, done := store.decided.Load(), make(chan struct{})
	go func() {
		defer close(done)
		ask()
	}()
	time.Sleep(time.Until(end) + 20*time.Millisecond)
	s.mu.Unlock()
	<-done
	if store.decided.Load() == before {
		t.Error("a lease that has ended decided")
	}
}
