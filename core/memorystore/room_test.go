package memorystore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Whatever is asked of a small store, it stays within its bound and in order, and
// nobody who was refused passes before the time that he was told.
func TestBoundHoldsUnderEverything(t *testing.T) {
	sets := [][]core.Limit{
		{core.Funnel(3, core.Every(time.Second))},
		{core.Funnel(2, core.Per(7, time.Second)).Named("seven")}, // a smaller tier would forgive
		{core.FixedWindow(2, 2*time.Second)},
		{core.SlidingWindow(2, time.Second), core.FixedWindow(5, 3*time.Second), core.TokenBucket(4, core.Every(time.Second)).Initial(1)},
		{core.TokenBucket(4, core.Every(time.Second))}, // shares the bucket, without Initial
		{core.MovingWindow(3, time.Second), core.FixedWindow(4, 5*time.Second)},
		{core.SlidingWindow(2, time.Second).CountRefused()},
		{core.ElasticWindow(1, time.Second)},
		{core.InFlight(2).Lease(time.Second), core.FixedWindow(5, 3*time.Second)},
		{core.InFlight(1).Lease(time.Second)},
		{core.FixedWindow(9, time.Second).Named("nine"), core.Funnel(2, core.Every(time.Second)).Shadow(), core.MovingWindow(1, time.Second).Shadow()},
	}
	for _, maxKeys := range []int{1, 2, 3, 7, 40, 9000} {
		c := &clock{us: 1e15}
		s := newStore(&Options{MaxKeys: maxKeys}, c.now, c.epoch)
		var limiters []*core.Limiter
		for i, set := range sets {
			l, err := core.New(s, set...)
			keys := len(set)
			if i%3 > 0 && err == nil {
				l, err = l.With(core.Refundable{})
			}
			if i%3 == 2 && err == nil {
				l, err = l.With(core.BanPolicy{Refusals: 2, Within: time.Second, Bans: []time.Duration{2 * time.Second}})
				keys++
			}
			if err == nil {
				limiters = append(limiters, l)
			} else if keys <= maxKeys {
				t.Fatal(err)
			}
		}
		var last core.Decision
		var lastUser string
		rnd := rand.New(rand.NewPCG(3, uint64(maxKeys)))
		type key struct {
			limiter, cost int
			user          string
		}
		until := map[key]int64{}
		forget := func(user string) { // a state of theirs may be shared by other limiters
			for k := range until {
				if k.user == user {
					delete(until, k)
				}
			}
		}
		for step := range 30_000 {
			k := key{rnd.IntN(len(limiters)), 1 + rnd.IntN(3), fmt.Sprint(rnd.IntN(3 * maxKeys))}
			switch rnd.IntN(20) {
			case 0:
				if err := limiters[k.limiter].Reset(ctx, k.user, "a"); err != nil {
					t.Fatal(err)
				}
				forget(k.user)
			case 1, 2:
				c.advance(time.Duration(rnd.IntN(1000)) * time.Millisecond)
			case 3:
				if err := limiters[k.limiter].Refund(ctx, last); err != nil && !errors.Is(err, core.ErrNoReceipt) {
					t.Fatal(err)
				}
				if err := limiters[k.limiter].Renew(ctx, last); err != nil && err != core.ErrLeaseEnded {
					t.Fatal(err)
				}
				if err := limiters[k.limiter].Release(ctx, last); rnd.IntN(2) == 0 && err != nil {
					t.Fatal(err)
				}
				forget(lastUser)
			case 4:
				_ = limiters[k.limiter].Ban(ctx, k.user, "a", time.Second) // if it can, and there is room
				forget(k.user)
			case 5:
				d, _, err := s.Take(ctx, core.Charge{User: k.user, Action: "a", Cost: 1, Terms: &core.Terms{
					Limits: limiters[k.limiter].Limits(), Receipt: true, Ask: machine.Ask{Ahead: 2e6}}})
				if err != nil {
					t.Fatal(err)
				}
				last, lastUser = d, k.user // it may have reserved a turn
				forget(k.user)
			default:
				peeked, err := limiters[k.limiter].Peek(ctx, k.user, "a")
				if err != nil {
					t.Fatal(err)
				}
				d, err := limiters[k.limiter].AllowN(ctx, k.user, "a", k.cost)
				last, lastUser = d, k.user
				switch {
				case err != nil:
					t.Fatal(err)
				case d.Allowed && until[k] > c.us:
					t.Fatalf("MaxKeys %d, step %d: %+v passes %d us before it was to: %+v", maxKeys, step, k, until[k]-c.us, d)
				case k.cost == 1 && d.Allowed != peeked.Allowed:
					t.Fatalf("MaxKeys %d, step %d: Peek says %+v and Allow %+v", maxKeys, step, peeked, d)
				case d.Allowed:
					forget(k.user) // it may now be kept for less
				case d.RetryAfter != core.Never && d.Reason != core.ReasonFull:
					until[k] = c.us + int64(d.RetryAfter/time.Microsecond)
				}
			}
			if step%500 == 0 {
				s.check(t)
			}
		}
		s.check(t)
	}
}

var hour = core.FixedWindow(2, time.Hour)

// A flood of new keys forgives no user.
func TestARefusedKeyIsNotDropped(t *testing.T) {
	t.Run("of any limit", func(t *testing.T) {
		// Each of them would be, though it has not tried.
		spent := func(l *core.Limiter) { allow(t, l, "refused"); allow(t, l, "refused") }
		policy := core.BanPolicy{Refusals: 9, Within: time.Second, Bans: []time.Duration{time.Hour}}
		for name, tt := range map[string]struct {
			limit core.Limit
			spend func(*core.Limiter)
		}{
			"a window's": {hour, spent},
			"a queue's":  {core.MovingWindow(2, time.Hour), spent},
			"a funnel's": {core.Funnel(2, core.Every(time.Hour)), spent},
			"a bucket's": {core.TokenBucket(2, core.Every(time.Hour)).Initial(2), spent},
			"one that is banned": {core.FixedWindow(2, 2*time.Hour), func(l *core.Limiter) {
				if err := core.Must(l.With(policy)).Ban(ctx, "refused", "a", time.Hour); err != nil {
					t.Fatal(err)
				}
			}},
		} {
			c, s := storeOf(3)
			l := core.Must(core.New(s, tt.limit))
			tt.spend(l)
			for i := range 100 {
				c.advance(time.Second)
				allow(t, l, fmt.Sprint("new", i))
			}
			if d := allow(t, core.Must(l.With(policy)), "refused"); d.Allowed {
				t.Errorf("%s: a flood of new keys forgave it: %+v", name, d)
			}
		}
	})
	t.Run("after a smaller tier or a larger cost was refused", func(t *testing.T) {
		_, s := storeOf(100)
		paid, free := core.Must(core.New(s, core.FixedWindow(5, time.Hour))), core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
		for range 3 {
			allow(t, paid, "tier")
		}
		hundred := core.Must(core.New(s, core.FixedWindow(100, time.Minute)))
		for range 2 {
			if _, err := hundred.AllowN(ctx, "cost", "a", 60); err != nil {
				t.Fatal(err)
			}
		}
		allow(t, free, "tier")
		for i := range 1000 {
			allow(t, free, fmt.Sprint("new", i))
		}
		if d := allow(t, free, "tier"); d.Allowed {
			t.Errorf("a flood forgave the smaller tier: %+v", d)
		}
		if d, err := hundred.AllowN(ctx, "cost", "a", 60); err != nil || d.Allowed {
			t.Errorf("a flood forgave the larger cost: %+v, %v", d, err)
		}
	})
	t.Run("after another limiter has admitted an action since", func(t *testing.T) {
		for _, of := range []func(n int) core.Limit{
			func(n int) core.Limit { return core.FixedWindow(n, time.Hour) },
			func(n int) core.Limit { return core.ElasticWindow(n, time.Hour) },
			func(n int) core.Limit { return core.SlidingWindow(n, time.Hour) },
			func(n int) core.Limit { return core.MovingWindow(n, time.Hour) },
		} {
			c, s := storeOf(100)
			free, paid := core.Must(core.New(s, of(2))), core.Must(core.New(s, of(9)))
			for range 3 {
				allow(t, free, "tier")
			}
			allow(t, paid, "tier")
			for i := range 1000 {
				c.advance(time.Microsecond)
				allow(t, paid, fmt.Sprint("new", i))
			}
			if d := allow(t, free, "tier"); d.Allowed {
				t.Errorf("%s: a flood forgave the smaller tier: %+v", of(2), d)
			}
		}
	})
}

func TestAShadowLimitWithoutRoomIsLeftOut(t *testing.T) {
	for _, shadow := range []core.Limit{hour, core.TokenBucket(2, core.Every(time.Hour)).Initial(2)} {
		_, s := storeOf(2)
		l := core.Must(core.New(s, core.FixedWindow(9, time.Hour), shadow.Shadow()))
		once := core.Must(core.New(s, core.FixedWindow(1, time.Hour)))
		allow(t, once, "refused")
		for i := range 5 {
			if d := allow(t, l, "u"); !d.Allowed || d.Reason != "" || d.Remaining != 8-i {
				t.Fatalf("beside %s: action %d: %+v", shadow, i, d)
			}
		}
	}
}

// All keys of a user are in one shard. If they fill the store, the users of other shards take
// their places.
func TestOneUsersManyActionsLeaveRoomForOthers(t *testing.T) {
	const maxKeys = 8192
	limiter := func(s *Store) *core.Limiter { return core.Must(core.New(s, core.FixedWindow(1, time.Hour))) }
	fill := func(s *Store, l *core.Limiter, times int) {
		for i := range maxKeys + 1000 {
			for range times {
				if _, err := l.Allow(ctx, "hog", fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := s.used.Load(); n != maxKeys {
			t.Fatalf("%d keys", n)
		}
	}
	for name, wait := range map[string]time.Duration{"the keys have expired": 24 * time.Hour, "they have not": 0} {
		t.Run(name, func(t *testing.T) {
			c, s := storeOf(maxKeys)
			l := limiter(s)
			// Of a limit of 1 each key would be refused, and could not be dropped.
			fill(s, core.Must(core.New(s, core.FixedWindow(2, time.Hour))), 1)
			c.advance(wait)
			for i := range maxKeys / 2 {
				if d, err := l.Peek(ctx, fmt.Sprint(i), "a"); err != nil || !d.Allowed {
					t.Fatalf("a look at user %d: %+v, %v", i, d, err)
				}
				if d := allow(t, l, fmt.Sprint(i)); !d.Allowed {
					t.Fatalf("user %d: %+v", i, d)
				}
			}
			for i := range maxKeys / 2 {
				if d := allow(t, l, fmt.Sprint(i)); d.Allowed {
					t.Fatalf("user %d is forgiven: %+v", i, d)
				}
			}
			s.check(t)
		})
	}
	t.Run("they are refused", func(t *testing.T) {
		_, s := storeOf(maxKeys)
		fill(s, limiter(s), 2)
		for i := range 400 {
			if d := allow(t, limiter(s), fmt.Sprint(i)); d.Reason == core.ReasonFull && d.RetryAfter != time.Minute {
				t.Fatalf("user %d: %+v", i, d)
			}
		}
	})
}

// Where most keys are refused, new users go on finding room as easily as at first: what can
// be dropped does not become rare in one part of a table.
func TestNewUsersFindRoomAmongRefusedKeys(t *testing.T) {
	const maxKeys = 8192
	c, s := storeOf(maxKeys)
	c.us = 1e9
	refused, passing := core.Must(core.New(s, core.FixedWindow(1, time.Hour))), core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
	for i := range maxKeys {
		if i%5 > 0 {
			allow(t, refused, fmt.Sprint("refused", i))
		} else {
			allow(t, passing, fmt.Sprint("passing", i))
		}
	}
	const newUsers, last = 60_000, 20_000
	without := 0
	for i := range newUsers {
		user := fmt.Sprint("new", i)
		c.advance(time.Microsecond)
		allow(t, passing, user)
		s.edit(user, "a", passing.Limits(), func(tx *transaction) {
			if tx.refs[0].slot == nil && i >= newUsers-last {
				without++
			}
		})
	}
	if share := float64(without) / last; share > 0.01 {
		t.Errorf("%.1f %% of the last %d new users found no room", 100*share, last)
	}
	s.check(t)
}

// A look at a new key in a store that is full drops no key.
func TestAPeekDropsNoKey(t *testing.T) {
	_, s := storeOf(3)
	two := core.Must(core.New(s, core.FixedWindow(2, time.Hour), core.FixedWindow(2, 2*time.Hour)))
	one := core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
	allow(t, two, "a")
	allow(t, one, "b")
	for range 10 {
		if d, err := two.Peek(ctx, "new", "a"); err != nil || !d.Allowed || d.Remaining != 2 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	for user, l := range map[string]*core.Limiter{"a": two, "b": one} {
		if d, err := l.Peek(ctx, user, "a"); err != nil || d.Remaining != 1 {
			t.Errorf("user %s has lost a key: %+v, %v", user, d, err)
		}
	}
	s.check(t)
}
