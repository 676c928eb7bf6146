package core_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A simpleStore keeps states in a map. The arithmetic is the Charge's: a store only keeps
// states, has a clock, and makes the step atomic.
type simpleStore struct {
	mu     sync.Mutex
	states map[stateKey]machine.State
}

type stateKey struct{ user, action, limit string }

func keyOf(user, action string, limit *core.Limit) stateKey {
	if limit.IsPerUser() {
		action = ""
	}
	return stateKey{user, action, limit.Identity()}
}

func (s *simpleStore) Take(_ context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMicro()
	limits := c.Limits
	entries := make([]machine.Entry, len(limits))
	for i := range limits {
		entries[i].State = s.states[keyOf(c.User, c.Action, &limits[i])]
	}
	r = c.Commit(&d, entries, now, c.Check(entries, now))
	for i := range limits {
		if entries[i].Dirty {
			s.states[keyOf(c.User, c.Action, &limits[i])] = entries[i].State
		}
	}
	return d, r, nil
}

func (s *simpleStore) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range limits {
		delete(s.states, keyOf(user, action, &limits[i]))
	}
	return nil
}

// A store of your own. It forgets nothing and refunds nothing; examples/blobstore does
// both. Package storetest tests a store.
func ExampleStore() {
	store := &simpleStore{states: map[stateKey]machine.State{}}
	posts := core.Must(core.New(store, core.SlidingWindow(2, time.Minute), core.Funnel(3, core.Every(time.Hour))))
	for range 3 {
		d, err := posts.Allow(context.Background(), "alice", "post")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
