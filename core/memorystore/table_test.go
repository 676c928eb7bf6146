package memorystore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

func TestAFullTableRemovesEveryExpiredKey(t *testing.T) {
	c := &clock{}
	s := newStore(nil, c.now, c.epoch)
	l := core.Must(core.New(s, core.FixedWindow(1, time.Second)))
	for i := range 10_000 {
		allow(t, l, fmt.Sprint("old", i))
	}
	c.advance(time.Second)
	for i := range 300 { // all in one shard
		user := fmt.Sprint("new", i)
		for s.hash(user)&hash(len(s.shards)-1) != 0 {
			user += "'"
		}
		before := s.shards[0].keys.used.Load()
		allow(t, l, user)
		if used := s.shards[0].keys.used.Load(); used < before {
			if used != int64(i+1) {
				t.Errorf("%d keys are left of %d, and %d live", used, before, i+1)
			}
			return
		}
	}
	t.Error("no key was removed")
}

// What a queue takes, at the limit and under steady use.
func TestAQueueTakesEightAndAHalfBytesPerAction(t *testing.T) {
	for _, n := range []int{5, 33, 65, 100, 300, 1000, 4097, 10_000, 100_000} {
		c, s := storeOf(10_000)
		l := core.Must(core.New(s, core.MovingWindow(n, time.Duration(n)*time.Millisecond)))
		other := core.Must(core.New(s, core.MovingWindow(1, time.Hour)))
		for i := range 5000 { // every shard has a table
			allow(t, other, fmt.Sprint(i))
		}
		keys := max(1, 20_000/n)
		users := make([]string, keys)
		for i := range users {
			users[i] = fmt.Sprint("user", i)
			allow(t, other, users[i])
		}
		for _, u := range users { // leaves room for the queues' keys in the tables
			if err := other.Reset(ctx, u, "a"); err != nil {
				t.Fatal(err)
			}
		}
		before := heap()
		for range 3 * n {
			c.advance(time.Millisecond)
			for _, u := range users {
				if d := allow(t, l, u); !d.Allowed {
					t.Fatal(d)
				}
			}
		}
		perKey := (float64(heap()) - float64(before)) / float64(keys)
		most := 8.5*float64(n) + 300
		if n < 10_000 {
			most += 0.5 * float64(n) // what the allocator rounds up
		}
		if perKey > most {
			t.Errorf("MovingWindow(%d): %.0f bytes a key, more than %.0f", n, perKey, most)
		}
		runtime.KeepAlive(s)
	}
}

// Idle queues do not stay for ever: as new keys come, what has expired goes.
func TestExpiredTrailsAreFreed(t *testing.T) {
	c := &clock{}
	s := newStore(nil, c.now, c.epoch)
	l := core.Must(core.New(s, core.MovingWindow(1000, time.Second)))
	for i := range 500 {
		if _, err := l.AllowN(ctx, fmt.Sprint(i), "a", 1000); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(time.Minute)
	for i := range 20_000 {
		allow(t, l, fmt.Sprint("later", i))
	}
	s.check(t)
	kept := 0
	for i := range s.shards {
		for _, sl := range s.shards[i].keys.slots {
			if sl.hasData && sl.expires <= c.us {
				kept++
			}
		}
	}
	if kept > 5 {
		t.Errorf("%d of 500 expired queues are still kept", kept)
	}
}
