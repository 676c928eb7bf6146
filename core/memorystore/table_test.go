package memorystore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// The table against a plain map, through growth, removal and expiry.
func TestTableKeepsEveryLiveKey(t *testing.T) {
	limits := []core.Limit{
		core.Funnel(3, core.Every(time.Second)),
		core.FixedWindow(3, 2*time.Second),
		core.SlidingWindow(3, 3*time.Second),
		core.TokenBucket(3, core.Every(time.Second)).Initial(1).ForgetAfter(4 * time.Second),
	}
	c, s := storeOf(1 << 20)
	var limiters []*core.Limiter
	for _, l := range limits {
		limiters = append(limiters, core.Must(core.New(s, l)))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	type key struct {
		limit int
		user  string
	}
	expires := map[key]int64{}
	for step := range 60_000 {
		k := key{rnd.IntN(len(limits)), fmt.Sprint("user", rnd.IntN(20_000))}
		l := limiters[k.limit]
		switch rnd.IntN(20) {
		case 0:
			if err := l.Reset(ctx, k.user, "a"); err != nil {
				t.Fatal(err)
			}
			delete(expires, k)
		case 1:
			c.advance(time.Duration(rnd.IntN(3000)) * time.Microsecond)
		default:
			known := expires[k] > c.us
			d, err := l.Peek(ctx, k.user, "a")
			if err != nil {
				t.Fatal(err)
			}
			fresh := d.Remaining == limits[k.limit].Quota() || limits[k.limit].Rule().ForgetAfter > 0 && d.Remaining == 1 && d.ResetAfter == 2*time.Second
			if !known && !fresh {
				t.Fatalf("step %d: %v is new and has %+v", step, k, d)
			}
			if known && d.ResetAfter == 0 && limits[k.limit].Rule().ForgetAfter == 0 {
				t.Fatalf("step %d: %v is known and has %+v", step, k, d)
			}
			if d = allow(t, l, k.user); d.Allowed {
				expires[k] = c.us + int64(d.ResetAfter/time.Microsecond)
				if after := limits[k.limit].Rule().ForgetAfter; after > 0 {
					expires[k] = c.us + after
				}
			}
		}
		if step%5_000 == 0 {
			s.check(t)
		}
	}
	s.check(t)
}

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
			if sl.more && sl.expires <= c.us {
				kept++
			}
		}
	}
	if kept > 5 {
		t.Errorf("%d of 500 expired queues are still kept", kept)
	}
}

// A queue that was long and has emptied needs no blocks.
func TestAnEmptyQueueFreesItsBlocks(t *testing.T) {
	c := &clock{}
	s := newStore(nil, c.now, c.epoch)
	l := core.Must(core.New(s, core.MovingWindow(10_000, time.Second)))
	if d, err := l.AllowN(ctx, "u", "a", 10_000); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	c.advance(time.Minute)
	if d := allow(t, l, "u"); d.Remaining != 9_999 {
		t.Errorf("%+v", d)
	}
	s.check(t)
}
