package memorystore

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A new key takes the place of another one, as the package's documentation says.
func TestWhichKeyIsDropped(t *testing.T) {
	t.Run("an expired one first", func(t *testing.T) {
		c, s := storeOf(3)
		l, short := core.Must(core.New(s, hour)), core.Must(core.New(s, core.FixedWindow(2, time.Second)))
		allow(t, l, "long")
		allow(t, short, "short")
		c.advance(time.Minute) // short has expired; shorter, not yet
		shorter := core.Must(core.New(s, core.FixedWindow(2, time.Millisecond)))
		allow(t, shorter, "shorter")
		allow(t, l, "new")
		if d, _ := l.Peek(ctx, "long", "a"); d.Remaining != 1 {
			t.Errorf("a live key went: %+v", d)
		}
		if d, _ := shorter.Peek(ctx, "shorter", "a"); d.Remaining != 1 {
			t.Errorf("a live key went: %+v", d)
		}
	})
	t.Run("an expired one at its very microsecond", func(t *testing.T) {
		c, s := storeOf(2)
		allow(t, core.Must(core.New(s, core.FixedWindow(9, time.Hour))), "live")
		brief := core.Must(core.New(s, core.FixedWindow(2, time.Second)))
		allow(t, brief, "brief")
		c.advance(time.Second)
		allow(t, brief, "new")
		if d, _ := core.Must(core.New(s, core.FixedWindow(9, time.Hour))).Peek(ctx, "live", "a"); d.Remaining != 8 {
			t.Errorf("the live key went: %+v", d)
		}
	})
	t.Run("an expired one at its very microsecond, before a live one of a user of many", func(t *testing.T) {
		const maxKeys = 2 * shardKeys
		c, s := storeOf(maxKeys)
		in := func(shard int) (user string) {
			for i := 0; user == "" || s.index(s.hash(user)) != shard; i++ {
				user = fmt.Sprint("user", i)
			}
			return user
		}
		brief, long := core.Must(core.New(s, core.FixedWindow(2, time.Second))), core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
		allow(t, brief, in(0))
		for i := range maxKeys - 1 {
			if _, err := long.Allow(ctx, in(1), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		c.advance(time.Second)
		allow(t, long, in(0))
		if n := s.shards[1].keys.used.Load(); n != maxKeys-1 {
			t.Errorf("%d live keys went", maxKeys-1-n)
		}
	})
	t.Run("then the one that has used the least of its quota", func(t *testing.T) {
		for name, limits := range map[string][2]core.Limit{
			"windows":        {core.SlidingWindow(5, time.Minute), hour},
			"a funnel":       {core.Funnel(5, core.Every(time.Minute)), hour},
			"a large window": {core.FixedWindow(1e9, time.Minute), hour},
		} {
			c, s := storeOf(2)
			allow(t, core.Must(core.New(s, limits[1])), "half")
			c.advance(59*time.Minute + 30*time.Second) // it expires before the other
			allow(t, core.Must(core.New(s, limits[0])), "least")
			allow(t, core.Must(core.New(s, hour)), "new")
			if d, _ := core.Must(core.New(s, limits[1])).Peek(ctx, "half", "a"); d.Remaining != 1 {
				t.Errorf("%s: the key went that has used half of its quota: %+v", name, d)
			}
		}
	})
	t.Run("of equal ones the one nearest to whole", func(t *testing.T) {
		c, s := storeOf(3)
		l := core.Must(core.New(s, hour))
		for _, user := range []string{"first", "second", "third"} {
			allow(t, l, user)
			c.advance(time.Minute)
		}
		if d := allow(t, l, "new"); !d.Allowed {
			t.Fatalf("the new key: %+v", d)
		}
		for user, want := range map[string]int{"first": 2, "second": 1, "third": 1, "new": 1} {
			if d, _ := l.Peek(ctx, user, "a"); d.Remaining != want {
				t.Errorf("%s has %d remaining, want %d", user, d.Remaining, want)
			}
		}
	})
	t.Run("one whose refused action could never pass", func(t *testing.T) {
		_, s := storeOf(1)
		l := core.Must(core.New(s, hour))
		allow(t, l, "old")
		if d, err := l.AllowN(ctx, "old", "a", 3); err != nil || d.RetryAfter != core.Never {
			t.Fatalf("%+v, %v", d, err)
		}
		allow(t, l, "new")
		if d, _ := l.Peek(ctx, "old", "a"); d.Remaining != 2 {
			t.Errorf("the old key stays: %+v", d)
		}
	})
	t.Run("a bucket with Initial only when it is forgotten", func(t *testing.T) {
		c, s := storeOf(1)
		bucket := core.Must(core.New(s, core.TokenBucket(5, core.Every(time.Second)).Initial(1).ForgetAfter(time.Hour)))
		allow(t, bucket, "a")
		c.advance(time.Minute) // full, not forgotten
		if d := allow(t, bucket, "a"); d.Remaining != 4 {
			t.Fatalf("the bucket: %+v", d)
		}
		c.advance(time.Hour)
		if d := allow(t, bucket, "a"); d.Remaining != 0 {
			t.Fatalf("the bucket is not forgotten: %+v", d)
		}
	})
	t.Run("none of the same charge", func(t *testing.T) {
		c, s := storeOf(2)
		two := core.Must(core.New(s, core.FixedWindow(9, time.Minute), core.Funnel(9, core.Every(time.Minute))))
		for i := range 20 {
			c.advance(time.Second)
			if d := allow(t, two, fmt.Sprint(i)); !d.Allowed || d.Remaining != 8 {
				t.Fatalf("user %d: %+v", i, d)
			}
			if d, _ := two.Peek(ctx, fmt.Sprint(i), "a"); d.Remaining != 8 {
				t.Fatalf("user %d lost a charge: %+v", i, d)
			}
		}
	})
	t.Run("the one that Peek foresees", func(t *testing.T) {
		brief, long := core.FixedWindow(1, time.Second), core.FixedWindow(1, time.Hour)
		for range 100 { // each store's hashes are its own
			c, s := storeOf(200)
			limiters := []*core.Limiter{core.Must(core.New(s, brief)), core.Must(core.New(s, long))}
			for i := range 200 {
				allow(t, limiters[min(1, i%20)], fmt.Sprint(i))
			}
			c.advance(time.Second)
			peeked, err := limiters[1].Peek(ctx, "new", "a")
			if d := allow(t, limiters[1], "new"); err != nil || peeked.Allowed != d.Allowed {
				t.Fatalf("Peek says %+v, %v and Allow %+v", peeked, err, d)
			}
		}
	})
}

// A full store forgets a part of a user's quota only after others have used about that part of MaxKeys quotas,
// each time: here n guesses of five after n times MaxKeys units of made-up names. The attacker sees when that is.
func TestAFloodForgetsNoMoreThanItHasUsed(t *testing.T) {
	const maxKeys, quota, rounds = 1000, 5, 10
	for name, tt := range map[string]struct {
		limit                    core.Limit
		before, guesses, perName int // units: of each of maxKeys names before; of the user; of each name after it
	}{
		"names that are used once":                   {core.SlidingWindow(quota, time.Hour), 0, 4, 1},
		"of a fixed window":                          {core.FixedWindow(quota, time.Hour), 0, 4, 1},
		"of a funnel":                                {core.Funnel(quota, core.Every(24*time.Hour)), 0, 4, 1},
		"after a single guess":                       {core.SlidingWindow(quota, time.Hour), 0, 1, 1},
		"names that are nearly refused":              {core.SlidingWindow(quota, time.Hour), 0, 4, 4},
		"after names that were nearly refused":       {core.SlidingWindow(quota, time.Hour), 4, 4, 1},
		"after them a single guess, and single uses": {core.SlidingWindow(quota, time.Hour), 4, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := storeOf(maxKeys)
			s.shards[0].keys.level = math.MaxUint16 - fullPart // it wraps around
			l := core.Must(core.New(s, tt.limit))
			use := func(user string, n int) {
				if d, err := l.AllowN(ctx, user, "a", n); err != nil || !d.Allowed {
					t.Fatalf("%s: %+v, %v", user, d, err)
				}
				c.advance(time.Microsecond)
			}
			for i := range maxKeys {
				use(fmt.Sprint("before", i), max(1, tt.before))
			}
			units, want := 0, rounds*tt.guesses*maxKeys
			for round := range rounds {
				use("alice", tt.guesses)
				for i := 0; units <= 2*want; i, units = i+1, units+tt.perName {
					if d, err := l.Peek(ctx, "alice", "a"); err != nil || d.Remaining == quota {
						break
					}
					use(fmt.Sprint("made-up", round, "-", i), tt.perName)
				}
			}
			if units < want*3/4 || units > want*3/2 {
				t.Errorf("%d units of others made it forget %d guesses, want about %d", units, rounds*tt.guesses, want)
			}
			s.check(t)
		})
	}
}
