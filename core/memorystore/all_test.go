package memorystore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// In a full store two subjects without room share one state of a shard, which is charged once only: so
// they are refused, and with room for one of them both pass.
func TestSeveralSubjectsInAFullStore(t *testing.T) {
	s := New(&Options{MaxKeys: 4})
	fixed := core.FixedWindow(1, time.Hour)
	user, org := core.Must(core.New(s, fixed)), core.Must(core.New(s, core.FixedWindow(2, time.Hour).Named("org")))
	for i := range 4 { // refused users keep their keys
		allow(t, user, fmt.Sprint("full", i))
		if d, err := user.Allow(t.Context(), fmt.Sprint("full", i), "a"); err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	// Two limits of one identity have one shared state.
	d, err := core.All(t.Context(), user.For("new", "a"), user.For("newer", "a"))
	if err != nil || d.Allowed || d.Reason != core.ReasonFull {
		t.Errorf("two in one shared state: %+v, %v", d, err)
	}
	// Of two identities each has its own. Together new users have the quota of one.
	for i := range 2 {
		d, err := core.All(t.Context(), user.For(fmt.Sprint("new", i), "a"), org.For("org", "a"))
		if err != nil || d.Allowed != (i == 0) || !d.Allowed && (d.Reason != core.ReasonFull || d.RetryAfter <= 0) {
			t.Errorf("new user %d: %+v, %v", i, d, err)
		}
	}
	// The subject that lacks room is the one that the refusal is about.
	d, err = core.All(t.Context(), org.For("full0", "b"), user.For("new2", "a"))
	if err != nil || d.Allowed || d.Subject != 1 || d.Limit != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := org.Peek(t.Context(), "org", "a"); err != nil || d.Remaining > 2 {
		t.Errorf("%+v, %v", d, err)
	}
	s.check(t)
	for i := range s.shards {
		if !s.shards[i].mu.TryLock() {
			t.Fatalf("shard %d is locked", i)
		}
		s.shards[i].mu.Unlock()
	}
}

// Charges of several subjects, in any order and over all shards, neither deadlock nor evict beyond
// the bound.
func TestSeveralSubjectsOverAllShards(t *testing.T) {
	s := New(&Options{MaxKeys: 4 * shardKeys})
	l := core.Must(core.New(s, core.FixedWindow(3, time.Hour)))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				n := (i*7 + g) % 6000
				subjects := []core.Subject{l.For(fmt.Sprint(n), "a"), l.For(fmt.Sprint(n+1), "a"), l.For(fmt.Sprint(n*31%6000, "x"), "b")}
				if i%2 == 0 {
					subjects[0], subjects[2] = subjects[2], subjects[0]
				}
				if _, err := core.All(t.Context(), subjects...); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.check(t)
}
