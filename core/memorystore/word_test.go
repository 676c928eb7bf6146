package memorystore

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// together calls two functions at about the same moment, so often: the first a little later
// each time, over and over.
func together(times int, both func(i int) (func(), func())) {
	var begun, ended atomic.Int64
	var other func()
	go func() {
		for i := range int64(times) {
			for begun.Load() <= i {
				runtime.Gosched()
			}
			other()
			ended.Add(1)
		}
	}()
	for i := range times {
		var mine func()
		mine, other = both(i)
		begun.Add(1)
		for range i % 100 {
			begun.Load()
		}
		mine()
		for ended.Load() <= int64(i) {
			runtime.Gosched()
		}
	}
}

// A key that may be dropped, since it has expired, is charged only under the lock: an action
// that passes is not forgotten with the key.
func TestAnExpiredKeyIsNotSwapped(t *testing.T) {
	c := &clock{us: 1e9}
	s := newStore(nil, c.now)
	l := core.Must(core.New(s, core.Funnel(3, core.Every(time.Minute))))
	allow(t, l, "u")
	user, rule := s.hash("u"), l.Limits()[0].Rule()
	sh, key := s.shard(user), key(user, s.hash("a"), rule)
	at, _ := search(key, sh.keys.slots, 0)
	if v, _ := s.swap(&sh.keys, key, rule, 1); v.Outcome != machine.Admitted {
		t.Errorf("before: %+v", v)
	}
	c.advance(time.Hour)
	if !sh.keys.expired(at, nil, c.now()) {
		t.Error("the key has not expired")
	}
	if v, _ := s.swap(&sh.keys, key, rule, 1); v.Outcome != machine.Undecided {
		t.Errorf("after: %+v", v)
	}
}

// A key moves, since others come and go, while its user acts: no action is forgotten, and no
// other user is charged for it.
func TestAKeyThatMovesForgetsNoAction(t *testing.T) {
	const quota, actions = 1_000_000, 50
	funnel := core.Funnel(quota, core.Every(time.Second))
	var s *Store
	var l *core.Limiter
	together(2000, func(i int) (func(), func()) {
		if i%50 == 0 {
			s = New(&Options{MaxKeys: 1000})
			l = core.Must(core.New(s, funnel))
		}
		first := fmt.Sprint(i)
		allow(t, l, first)
		return func() {
				for range actions {
					allow(t, l, first)
				}
				if d := allow(t, l, first); d.Remaining != quota-actions-2 {
					t.Errorf("round %d: %d actions are left of %d, after %d", i, d.Remaining, quota, actions+2)
				}
			}, func() {
				for j := range 8 {
					allow(t, l, fmt.Sprint("other", i, j))
				}
				for j := range 8 {
					other := fmt.Sprint("other", i, j)
					if d := allow(t, l, other); d.Remaining != quota-2 {
						t.Errorf("round %d: another user has %d actions left of %d, after 2", i, d.Remaining, quota)
					}
					if err := l.Reset(ctx, other, "a"); err != nil {
						t.Error(err)
					}
				}
			}
	})
	s.check(t)
}

// Users at their limit stay refused, though newcomers who are further from whole fill the
// store.
func TestAUserWhoseWordSaysFullIsNotEvicted(t *testing.T) {
	const users, quota = 20, 3
	s := New(&Options{MaxKeys: 2 * users})
	l := core.Must(core.New(s, core.Funnel(quota, core.Every(time.Hour))))
	flood := core.Must(core.New(s, core.Funnel(1000, core.Every(24*time.Hour))))
	for u := range users {
		for range quota {
			allow(t, l, fmt.Sprint(u))
		}
	}
	for i := range 100 * users {
		allow(t, flood, fmt.Sprint("new", i))
	}
	for u := range users {
		if d := allow(t, l, fmt.Sprint(u)); d.Allowed {
			t.Errorf("user %d is forgiven", u)
		}
	}
}

// Somebody who is refused a cost above 1 is protected from eviction too.
func TestARefusalOfALargerCostProtectsTheKey(t *testing.T) {
	const maxKeys = 40
	s := New(&Options{MaxKeys: maxKeys})
	l := core.Must(core.New(s, core.Funnel(10, core.Every(time.Hour))))
	flood := core.Must(core.New(s, core.Funnel(1000, core.Every(24*time.Hour))))
	ask := func(cost int) core.Decision {
		d, err := l.AllowN(ctx, "u", "a", cost)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if first, second := ask(8), ask(5); !first.Allowed || second.Allowed {
		t.Fatalf("%+v, %+v", first, second)
	}
	for i := range 100 * maxKeys {
		allow(t, flood, fmt.Sprint("new", i))
	}
	if d := ask(5); d.Allowed {
		t.Errorf("forgiven: %+v", d)
	}
}

// While a holder of the lock reads the clock, others charge the same meter at a later instant.
// It must not be taken for a clock that stepped back, which would forgive them.
func TestChargesWhileTheLockIsHeldAreNotForgiven(t *testing.T) {
	funnel := core.Funnel(1000, core.Per(1000, time.Second))
	for name, limits := range map[string][]core.Limit{
		"one limit":  {funnel},
		"two limits": {funnel, core.FixedWindow(1_000_000, time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			const start, later = int64(1e9), int64(1e9 + 5000)
			now, admitted := start, 0
			var sh *shard
			var meanwhile func()
			s := newStore(nil, func() int64 {
				at := now
				if meanwhile != nil {
					if sh.mu.TryLock() {
						sh.mu.Unlock()
					} else {
						meanwhile()
					}
				}
				return at
			})
			alone, l := core.Must(core.New(s, funnel)), core.Must(core.New(s, limits...))
			if d, err := alone.AllowN(ctx, "u", "a", 999); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			user, rule := s.hash("u"), alone.Limits()[0].Rule()
			k := key(user, s.hash("a"), rule)
			sh = s.shard(user)
			var charge func()
			charge = func() {
				meanwhile, now = nil, later
				for range 5 {
					if v, _ := s.swap(&sh.keys, k, rule, 1); v.Outcome == machine.Admitted {
						admitted++
					}
				}
				meanwhile, now = charge, start
			}
			meanwhile = charge
			if d := allow(t, l, "u"); d.Allowed {
				admitted++
			}
			meanwhile, now = nil, later
			d, err := alone.Peek(ctx, "u", "a")
			if want := time.Duration(999+admitted-5) * time.Millisecond; err != nil || d.ResetAfter != want {
				t.Errorf("%d actions, of which 5 have drained, leave a debt of %s, want %s, %v", 999+admitted, d.ResetAfter, want, err)
			}
		})
	}
}

// While a caller is between its look at the clock and the key, another one charges the key at a
// later instant. The first one has room too, and must not be refused.
func TestAChargeAtALaterInstantMeanwhileRefusesNobody(t *testing.T) {
	c := &clock{us: 1e9}
	var meanwhile func()
	s := newStore(nil, func() int64 {
		now, other := c.us, meanwhile
		if meanwhile = nil; other != nil {
			other()
		}
		return now
	})
	l := core.Must(core.New(s, core.Funnel(2, core.Every(time.Second))))
	allow(t, l, "u")
	c.advance(999_990 * time.Microsecond) // not expired: the word decides
	meanwhile = func() {
		c.advance(20 * time.Microsecond)
		if d := allow(t, l, "u"); !d.Allowed {
			t.Errorf("the second caller: %+v", d)
		}
	}
	if d := allow(t, l, "u"); !d.Allowed {
		t.Errorf("the first caller: %+v", d)
	}
}
