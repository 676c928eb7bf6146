package memorystore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// clock is a clock in the test's hands, in microseconds.
type clock struct{ us int64 }

// clockEpoch is when instant 0 of the clock was, in 1992.
const clockEpoch = 7e14

func (c *clock) now() int64              { return c.us }
func (c *clock) epoch() int64            { return clockEpoch }
func (c *clock) time() time.Time         { return time.UnixMicro(c.us + clockEpoch) }
func (c *clock) advance(d time.Duration) { c.us += int64(d / time.Microsecond) }

func allow(t *testing.T, l *core.Limiter, user string) core.Decision {
	t.Helper()
	d, err := l.Allow(ctx, user, "a")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// check looks for what must hold of the store whatever happened before.
func (s *Store) check(t testing.TB) {
	t.Helper()
	total := int64(0)
	for i := range s.shards {
		sh := &s.shards[i]
		total += sh.keys.check(t, fmt.Sprint("the keys of shard ", i))
		if sh.keys.shared != nil {
			sh.keys.shared.check(t, fmt.Sprint("the shared states of shard ", i))
		}
	}
	tx := transactions.Get().(*transaction)
	defer transactions.Put(tx)
	for j, state := range tx.states[:cap(tx.states)] {
		if state != (machine.State{}) {
			t.Fatalf("state %d of an earlier charge is still there: %+v", j, state)
		}
	}
	for j, r := range tx.refs[:cap(tx.refs)] {
		if r != (ref{}) {
			t.Fatalf("ref %d of an earlier charge is still there: %+v", j, r)
		}
	}
	if total != s.used.Load() || total > s.max {
		t.Fatalf("the store counts %d keys, has %d and may have %d", s.used.Load(), total, s.max)
	}
}

func (tab *table) check(t testing.TB, name string) (used int64) {
	t.Helper()
	kept := map[form]int{}
	for at := range tab.slots {
		sl := &tab.slots[at]
		if sl.key == 0 {
			if *sl != (slot{}) {
				t.Fatalf("%s: slot %d has no key and is not empty", name, at)
			}
			continue
		}
		used++
		if found, ok := tab.search(sl.key); !ok || found != at {
			t.Fatalf("%s: slot %d is not found, but %d, %v", name, at, found, ok)
		}
		kept[sl.form]++
	}
	if used != tab.used.Load() || used*100 > int64(len(tab.slots))*maxLoad {
		t.Fatalf("%s: %d keys are counted, and %d are in %d slots", name, tab.used.Load(), used, len(tab.slots))
	}
	m := tab.arenas
	if m == nil {
		m = new(arenas)
	}
	for form, have := range map[form]int{
		inTrails: int(m.trails.used) - len(m.trails.free),
		inOthers: int(m.others.used) - len(m.others.free),
	} {
		if have != kept[form] {
			t.Fatalf("%s: arena %d holds %d for %d keys", name, form, have, kept[form])
		}
	}
	m.trails.check(t, name)
	m.others.check(t, name)
	return used
}

// check looks for memory that a dropped value still holds.
func (a *arena[T]) check(t testing.TB, name string) {
	t.Helper()
	for _, i := range a.free {
		if v := any(*a.at(i)); v != any(*new(T)) {
			t.Fatalf("%s: a dropped value is still there: %+v", name, v)
		}
	}
}

func TestOptionsOutOfBoundsPanic(t *testing.T) {
	for _, n := range []int64{-1, maxMaxKeys + 1} {
		if int64(int(n)) != n {
			continue // with 32 bits it cannot be said
		}
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.Contains(s, fmt.Sprint(n)) || !strings.Contains(s, "memorystore: ") {
					t.Errorf("MaxKeys %d: panic %q", n, s)
				}
			}()
			New(&Options{MaxKeys: int(n)})
		}()
	}
	if s := New(&Options{}); s.max != defaultMaxKeys {
		t.Errorf("the zero Options allow %d keys", s.max)
	}
}

// The table against a plain map, through growth, removal and expiry.
func TestTableKeepsEveryLiveKey(t *testing.T) {
	limits := []core.Limit{
		core.Funnel(3, core.Every(time.Second)),
		core.FixedWindow(3, 2*time.Second),
		core.SlidingWindow(3, 3*time.Second),
		core.TokenBucket(3, core.Every(time.Second)).Initial(1).ForgetAfter(4 * time.Second),
	}
	c := &clock{}
	s := newStore(&Options{MaxKeys: 1 << 20}, c.now, c.epoch)
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
				d, err := s.Take(ctx, core.Charge{
					User: k.user, Action: "a", Limits: limiters[k.limiter].Limits(), Receipt: true, Ask: machine.Ask{Cost: 1, Ahead: 2e6}})
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

func TestAtTheBound(t *testing.T) {
	hour := core.FixedWindow(2, time.Hour)
	t.Run("what has expired goes first", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 3}, c.now, c.epoch)
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
	t.Run("then the one nearest to whole", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 3}, c.now, c.epoch)
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
	t.Run("never one that is refused", func(t *testing.T) {
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
			c := &clock{}
			s := newStore(&Options{MaxKeys: 3}, c.now, c.epoch)
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
	t.Run("new users share one quota if all keys are refused", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 2}, c.now, c.epoch)
		l := core.Must(core.New(s, hour))
		for _, user := range []string{"a", "b"} {
			allow(t, l, user)
			allow(t, l, user)
			c.advance(time.Minute)
		}
		for i, remaining := range []int{1, 0} {
			user := fmt.Sprint("new", i)
			peeked, err := l.Peek(ctx, user, "a")
			if d := allow(t, l, user); err != nil || !d.Allowed || !peeked.Allowed || d.Remaining != remaining {
				t.Fatalf("new user %d: %+v, and Peek says %+v, %v", i, d, peeked, err)
			}
		}
		want := core.Decision{Limit: 2, RetryAfter: time.Minute, ResetAfter: time.Minute, Reason: core.ReasonFull, Source: core.SourceStore}
		for i := range 100 { // by none of many users, actions or stores in between
			user, limiter := fmt.Sprint("newer", i), l
			if i%2 == 0 {
				limiter = core.Must(core.New(core.Observe(s, func(context.Context, core.Observation) {}), hour))
			}
			peeked, err := l.Peek(ctx, user, "b")
			if d := allow(t, limiter, user); err != nil || d != want || peeked != want {
				t.Fatalf("newer user %d: %+v, and Peek says %+v, %v; want %+v", i, d, peeked, err, want)
			}
		}
		c.advance(58*time.Minute - time.Microsecond)
		if d := allow(t, l, "last"); d.Allowed || d.RetryAfter != time.Microsecond {
			t.Errorf("a microsecond before the first refused key expires: %+v", d)
		}
		c.advance(time.Microsecond)
		if d := allow(t, l, "last"); !d.Allowed || d.Remaining != 1 {
			t.Errorf("at the instant: %+v", d)
		}
		s.check(t)
	})
	t.Run("a user without a key waits no longer than for the shared state", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 1}, c.now, c.epoch)
		allow(t, core.Must(core.New(s, core.FixedWindow(1, time.Hour))), "a")
		l := core.Must(core.New(s, core.Funnel(1, core.Every(time.Second))))
		allow(t, l, "b")
		if d := allow(t, l, "c"); d.Allowed || d.RetryAfter != time.Second {
			t.Errorf("right after another: %+v", d)
		}
		c.advance(time.Second)
		if d := allow(t, l, "c"); !d.Allowed {
			t.Errorf("a second later: %+v", d)
		}
	})
	t.Run("a user without a key cannot owe, and who owes keeps the key", func(t *testing.T) {
		c := &clock{}
		c.advance(time.Second)
		s := newStore(&Options{MaxKeys: 1}, c.now, c.epoch)
		l := core.Must(core.Must(core.New(s, core.Funnel(2, core.Every(time.Minute)))).With(core.Refundable{}))
		debtor, shared := allow(t, l, "debtor"), core.Decision{}
		if err := l.Settle(ctx, debtor, 4); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if d := allow(t, l, fmt.Sprint("new ", i)); d.Allowed {
				shared = d
			}
		}
		if d, _ := l.Peek(ctx, "debtor", "a"); d.Allowed || d.RetryAfter != 3*time.Minute {
			t.Errorf("the debtor: %+v", d)
		}
		if err := l.Settle(ctx, shared, 2); err == nil {
			t.Error("a debt was charged to what all new users share, or to nobody")
		}
	})
	t.Run("Status of a user without a key has every limit", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 2}, c.now, c.epoch)
		two := core.Must(core.New(s, core.FixedWindow(1, time.Hour), core.FixedWindow(1, 2*time.Hour)))
		for _, user := range []string{"a", "a", "b"} {
			allow(t, two, user)
		}
		got, err := two.Status(ctx, "c", "a")
		if err != nil || len(got.Limits) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, wait := range []time.Duration{time.Hour, 2 * time.Hour} {
			want := core.LimitStatus{Limit: two.Limits()[i], RetryAfter: wait, ResetAfter: wait}
			if got.Limits[i] != want {
				t.Errorf("%+v, want %+v", got.Limits[i], want)
			}
		}
	})
	t.Run("a ban by hand, and a turn, need a key", func(t *testing.T) {
		c := &clock{us: 1e9}
		s := newStore(&Options{MaxKeys: 2}, c.now, c.epoch)
		two := core.Must(core.New(s, core.FixedWindow(1, time.Hour), core.FixedWindow(1, 2*time.Hour)))
		allow(t, two, "a")
		l := core.Must(core.New(s, core.Funnel(1, core.Every(time.Second))))
		banning := core.Must(l.With(core.BanPolicy{Refusals: 9, Within: time.Second, Bans: []time.Duration{time.Hour}}))
		if err := banning.Ban(ctx, "b", "a", time.Hour); err == nil {
			t.Error("banned without a key")
		}
		if d := allow(t, banning, "c"); !d.Allowed {
			t.Errorf("after a ban that failed: %+v", d)
		}
		charge := core.Charge{User: "d", Action: "a", Limits: l.Limits(), Receipt: true, Ask: machine.Ask{Cost: 1, Ahead: 2e6}}
		if d, err := s.Take(ctx, charge); err != nil || d.Allowed || d.Reason != core.ReasonFull {
			t.Errorf("a turn without a key: %+v, %v", d, err)
		}
	})
	t.Run("the wait is no longer than the first of the refused keys is kept", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 2}, c.now, c.epoch)
		two := core.Must(core.New(s, core.FixedWindow(1, time.Second), core.FixedWindow(1, time.Hour)))
		allow(t, two, "a")
		allow(t, two, "a") // both windows are now kept from going for an hour
		l := core.Must(core.New(s, hour))
		allow(t, l, "shares")
		allow(t, l, "shares")
		d := allow(t, l, "new")
		if d.Reason != core.ReasonFull || d.RetryAfter != time.Second {
			t.Fatalf("the new key: %+v", d)
		}
		c.advance(d.RetryAfter)
		if d := allow(t, l, "new"); !d.Allowed {
			t.Errorf("at the instant: %+v", d)
		}
	})
	t.Run("a look at a new key finds what has expired as the action would", func(t *testing.T) {
		brief, long := core.FixedWindow(1, time.Second), core.FixedWindow(1, time.Hour)
		for range 100 { // each store's hashes are its own
			c := &clock{}
			s := newStore(&Options{MaxKeys: 200}, c.now, c.epoch)
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
	t.Run("nor one that a smaller tier, or a larger cost, was refused", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 100}, c.now, c.epoch)
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
	t.Run("nor one that was refused and then had an action of another limiter pass", func(t *testing.T) {
		for _, of := range []func(n int) core.Limit{
			func(n int) core.Limit { return core.FixedWindow(n, time.Hour) },
			func(n int) core.Limit { return core.ElasticWindow(n, time.Hour) },
			func(n int) core.Limit { return core.SlidingWindow(n, time.Hour) },
			func(n int) core.Limit { return core.MovingWindow(n, time.Hour) },
		} {
			c := &clock{}
			s := newStore(&Options{MaxKeys: 100}, c.now, c.epoch)
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
	t.Run("but one whose refused action could never pass", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 1}, c.now, c.epoch)
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
	t.Run("a shadow limit for whose key there is no room is left out", func(t *testing.T) {
		for _, shadow := range []core.Limit{hour, core.TokenBucket(2, core.Every(time.Hour)).Initial(2)} {
			c := &clock{}
			s := newStore(&Options{MaxKeys: 2}, c.now, c.epoch)
			l := core.Must(core.New(s, core.FixedWindow(9, time.Hour), shadow.Shadow()))
			once := core.Must(core.New(s, core.FixedWindow(1, time.Hour)))
			allow(t, once, "refused")
			for i := range 5 {
				if d := allow(t, l, "u"); !d.Allowed || d.Reason != "" || d.Remaining != 8-i {
					t.Fatalf("beside %s: action %d: %+v", shadow, i, d)
				}
			}
		}
	})
	t.Run("a limiter of more limits than keys is an error of New", func(t *testing.T) {
		_, err := core.New(core.Fallback(New(nil), New(&Options{MaxKeys: 1})), hour, core.SlidingWindow(1, time.Hour))
		if err == nil || !strings.Contains(err.Error(), "MaxKeys is 1") {
			t.Errorf("New: %v", err)
		}
	})
	t.Run("a new key does not displace one of its own", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 2}, c.now, c.epoch)
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
	t.Run("a user without a key charges all of its limits or none", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 2}, c.now, c.epoch)
		allow(t, core.Must(core.New(s, core.FixedWindow(1, time.Hour))), "a")
		window := core.FixedWindow(9, time.Minute)
		two := core.Must(core.New(s, window, core.Funnel(9, core.Every(time.Minute))))
		// The first limit takes the key that is left, and the second the shared state.
		if d, err := two.AllowN(ctx, "b", "a", 9); err != nil || !d.Allowed {
			t.Fatalf("two limits in one place: %+v, %v", d, err)
		}
		if d := allow(t, two, "c"); d.Reason != core.ReasonFull {
			t.Fatalf("the shared funnel is full: %+v", d)
		}
		if d := allow(t, core.Must(core.New(s, window)), "d"); d.Remaining != 8 {
			t.Errorf("the refusal has charged the shared window: %+v", d)
		}
		if s.used.Load() != 2 {
			t.Errorf("%d keys are kept", s.used.Load())
		}
		s.check(t)
	})
	t.Run("a bucket that is refused its first action, and cannot be kept, has no wait of its own", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 1}, c.now, c.epoch)
		once := core.Must(core.New(s, hour))
		allow(t, once, "a")
		allow(t, once, "a")
		bucket := core.Must(core.New(s, core.TokenBucket(10, core.Every(time.Second)).Initial(2)))
		if d, err := bucket.AllowN(ctx, "new", "a", 5); err != nil || d.Reason != core.ReasonFull || d.RetryAfter != time.Minute {
			t.Errorf("it does not fill while it is not kept: %+v, %v", d, err)
		}
	})
	t.Run("a bucket with Initial goes only when it is forgotten", func(t *testing.T) {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 1}, c.now, c.epoch)
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
}

// A decision by a shared state takes no longer than another one, however long its trail.
func TestASharedTrailIsNotCopied(t *testing.T) {
	const max = 100_000
	c := &clock{}
	s := newStore(&Options{MaxKeys: 1}, c.now, c.epoch)
	once := core.Must(core.New(s, core.FixedWindow(1, time.Hour)))
	allow(t, once, "a")
	allow(t, once, "a")
	l := core.Must(core.New(s, core.MovingWindow(max, time.Hour)))
	if d, err := l.AllowN(ctx, "new", "a", max-2); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, want := range []bool{true, true, false} {
		if d := allow(t, l, "new"); d.Allowed != want {
			t.Errorf("%+v", d)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > max {
		t.Errorf("three decisions have allocated %d bytes", n)
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
			c := &clock{}
			s := newStore(&Options{MaxKeys: maxKeys}, c.now, c.epoch)
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
		c := &clock{}
		s := newStore(&Options{MaxKeys: maxKeys}, c.now, c.epoch)
		fill(s, limiter(s), 2)
		for i := range 400 {
			if d := allow(t, limiter(s), fmt.Sprint(i)); d.Reason == core.ReasonFull && d.RetryAfter != time.Minute {
				t.Fatalf("user %d: %+v", i, d)
			}
		}
	})
}

// When the keys of a user of many actions have expired, those go, and not the live keys of the
// users of other shards, until all shards have their share.
func TestExpiredKeysOfOneUserGoBeforeLiveKeysOfOthers(t *testing.T) {
	const maxKeys = 8192
	const users = maxKeys * 3 / 4
	c := &clock{}
	s := newStore(&Options{MaxKeys: maxKeys}, c.now, c.epoch)
	l := core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
	for i := range maxKeys {
		if _, err := l.Allow(ctx, "hog", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(24 * time.Hour)
	for i := range users {
		allow(t, l, fmt.Sprint(i))
	}
	forgiven := 0
	for i := range users {
		if d, _ := l.Peek(ctx, fmt.Sprint(i), "a"); d.Remaining != 1 {
			forgiven++
		}
	}
	if forgiven > users/100 { // not every look elsewhere meets the shard
		t.Errorf("%d of %d users are forgiven", forgiven, users)
	}
	s.check(t)
}

// Where most keys are refused, new users go on finding room as easily as at first: what can
// be dropped does not become rare in one part of a table.
func TestNewUsersFindRoomAmongRefusedKeys(t *testing.T) {
	const maxKeys = 8192
	c := &clock{us: 1e9}
	s := newStore(&Options{MaxKeys: maxKeys}, c.now, c.epoch)
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
		tx := s.begin(&core.Charge{User: user, Action: "a", Limits: passing.Limits()})
		if !tx.refs[0].found && i >= newUsers-last {
			without++
		}
		s.end(tx)
	}
	if share := float64(without) / last; share > 0.01 {
		t.Errorf("%.1f %% of the last %d new users found no room", 100*share, last)
	}
	s.check(t)
}

// Many times as many keys as fit: the store stays within its bound, no decision waits
// long, and the users who were refused before the flood are refused after it.
func TestFlood(t *testing.T) {
	maxKeys, keys := int64(floodMax), floodKeys
	if testing.Short() {
		maxKeys, keys = 20_000, 200_000
	}
	for _, tt := range []struct {
		limit core.Limit
		bytes int64 // a key, at most
	}{
		{core.Funnel(2, core.Per(2, time.Hour)), 100},
		{core.SlidingWindow(2, time.Hour), 160},
	} {
		t.Run(tt.limit.Kind(), func(t *testing.T) {
			s, worst, grown := flood(t, tt.limit, int(maxKeys), keys)
			if got := s.used.Load(); got > maxKeys || got < maxKeys*9/10 {
				t.Errorf("%d keys are kept of %d", got, maxKeys)
			}
			if grown > maxKeys*tt.bytes {
				t.Errorf("%d bytes are kept for %d keys", grown, maxKeys)
			}
			if worst > 2*time.Second {
				t.Errorf("one decision took %s", worst)
			}
			s.check(t)
		})
	}
}

// flood has a thousand users use up their limit and then so many others act once.
func flood(t testing.TB, limit core.Limit, maxKeys, keys int) (s *Store, worst time.Duration, grown int64) {
	before := int64(heap())
	s = New(&Options{MaxKeys: maxKeys})
	l := core.Must(core.New(s, limit))
	take := func(name string, i, n int) core.Decision {
		key := fmt.Sprint(name, i)
		start := time.Now()
		d, err := l.AllowN(ctx, key, "a", n)
		if worst = max(worst, time.Since(start)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for i := range 1000 {
		take("victim", i, 2)
	}
	for i := range keys {
		if d := take("flood", i, 1); !d.Allowed {
			t.Fatalf("new key %d: %+v", i, d)
		}
	}
	for i := range 1000 {
		if d := take("victim", i, 1); d.Allowed {
			t.Fatalf("the flood forgave the refused user %d", i)
		}
	}
	grown = int64(heap()) - before
	runtime.KeepAlive(s)
	return s, worst, grown
}

// BenchmarkFlood is a flood of 1,000,000 keys into a store of 100,000.
func BenchmarkFlood(b *testing.B) {
	for _, limit := range []core.Limit{core.Funnel(2, core.Per(2, time.Hour)), core.SlidingWindow(2, time.Hour)} {
		b.Run("limit="+limit.Kind(), func(b *testing.B) {
			for b.Loop() {
				const keys = 1_000_000
				start := time.Now()
				_, worst, grown := flood(b, limit, 100_000, keys)
				b.ReportMetric(float64(time.Since(start))/keys, "ns/key")
				b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
				b.ReportMetric(float64(grown)/1e6, "MB")
			}
		})
	}
}

// What a queue takes, at the limit and under steady use.
func TestAQueueTakesEightAndAHalfBytesPerAction(t *testing.T) {
	for _, n := range []int{5, 33, 65, 100, 300, 1000, 4097, 10_000, 100_000} {
		c := &clock{}
		s := newStore(&Options{MaxKeys: 10_000}, c.now, c.epoch)
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

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
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
			if sl.form == inTrails && sl.expires <= c.us {
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

func TestTimeIsMonotonic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(New(nil), core.SlidingWindow(2, time.Minute)))
		allow(t, l, "u")
		time.Sleep(20 * time.Second)
		allow(t, l, "u")
		d := allow(t, l, "u")
		if d.Allowed || d.RetryAfter != 40*time.Second {
			t.Fatalf("%+v", d)
		}
		time.Sleep(d.RetryAfter - time.Microsecond)
		if d := allow(t, l, "u"); d.Allowed {
			t.Errorf("a microsecond early: %+v", d)
		}
		time.Sleep(time.Microsecond)
		if d := allow(t, l, "u"); !d.Allowed {
			t.Errorf("at RetryAfter: %+v", d)
		}
	})
}

func TestKnownKeyTakesNoAllocation(t *testing.T) {
	for name, l := range benchLimits {
		limiter := core.Must(core.New(New(nil), l...))
		for range 300 { // a queue has found its size
			allow(t, limiter, "user")
		}
		if n := testing.AllocsPerRun(1000, func() { _, _ = limiter.Allow(ctx, "user", "a") }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestConcurrentKeys(t *testing.T) {
	s := New(&Options{MaxKeys: 5000})
	funnel := core.Funnel(5, core.Every(time.Hour))
	alone, two := core.Must(core.New(s, funnel)), core.Must(core.New(s, core.SlidingWindow(3, time.Hour), funnel))
	brief := core.Must(core.New(s, core.Funnel(5, core.Every(time.Millisecond))))
	held := core.Must(alone.With(core.Refundable{}))
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 3000 {
				user, err := fmt.Sprint(rnd.IntN(6000)), error(nil)
				switch rnd.IntN(20) {
				case 0:
					err = two.Reset(ctx, user, "a")
				case 1:
					d, _ := held.Allow(ctx, user, "a")
					if d.Allowed && d.Reason != core.ReasonFull {
						err = held.Refund(ctx, d)
					}
				case 2, 3, 4, 5:
					_, err = brief.Allow(ctx, user, "a")
				case 6, 7, 8, 9:
					_, err = two.Allow(ctx, user, "a")
				default:
					_, err = alone.Allow(ctx, user, "a")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s.check(t)
}

// One funnel by four ways at once, while its table is made anew under it: not one action
// more passes than it has room for, and not one less.
func TestConcurrentChargesOfOneKey(t *testing.T) {
	const quota, users = 2000, 3
	s := New(nil)
	funnel := core.Funnel(quota, core.Every(time.Hour))
	alone, two := core.Must(core.New(s, funnel)), core.Must(core.New(s, funnel, core.FixedWindow(1_000_000, time.Hour)))
	ways := []*core.Limiter{alone, two, core.Must(core.New(core.Observe(s, func(context.Context, core.Observation) {}), funnel)), core.Must(alone.With(core.Refundable{}))}
	var admitted [users]atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range quota {
				for u := range users {
					d, err := ways[(g+i)%len(ways)].Allow(ctx, fmt.Sprint("user", u), "a")
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						admitted[u].Add(1)
					}
				}
				if _, err := alone.Allow(ctx, fmt.Sprint(g, i), "a"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for u := range admitted {
		if n := admitted[u].Load(); n != quota {
			t.Errorf("user %d: %d actions passed of %d", u, n, quota)
		}
	}
	s.check(t)
}

var benchLimits = map[string][]core.Limit{
	"sliding": {core.SlidingWindow(100, time.Minute)},
	"refused": {core.SlidingWindow(100, time.Minute).CountRefused()},
	"moving":  {core.MovingWindow(100, time.Minute)},
	"fixed":   {core.FixedWindow(1000, time.Minute)},
	"elastic": {core.ElasticWindow(1000, time.Minute)},
	"bucket":  {core.TokenBucket(1000, core.Per(1000, time.Minute))},
	"initial": {core.TokenBucket(1000, core.Per(1000, time.Minute)).Initial(500)},
	"funnel":  {core.Funnel(1000, core.Per(1000, time.Minute))},
	"plenty":  {core.Funnel(1_000_000_000, core.Per(1_000_000_000, 24*time.Hour))},
	"two":     {core.MovingWindow(100, time.Minute), core.FixedWindow(10_000, 24*time.Hour)},
	"three":   {core.Funnel(1000, core.Per(1000, time.Minute)), core.FixedWindow(1000, time.Hour), core.FixedWindow(10_000, 24*time.Hour)},
}

// BenchmarkAllow is one decision, of each limit and over so many keys.
func BenchmarkAllow(b *testing.B) {
	for _, limit := range []string{"sliding", "refused", "moving", "fixed", "elastic", "bucket", "initial", "funnel", "plenty", "two", "three"} {
		for _, keys := range []int{1, 10_000, 1_000_000} {
			if keys == 1_000_000 && limit != "funnel" {
				continue
			}
			b.Run(fmt.Sprintf("limit=%s/keys=%d", limit, keys), func(b *testing.B) {
				l := core.Must(core.New(New(nil), benchLimits[limit]...))
				users := make([]string, keys)
				for i := range users {
					users[i] = fmt.Sprintf("user%013d", i)
					_, _ = l.Allow(ctx, users[i], "like")
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.Uint64(); pb.Next(); {
						i = i*6364136223846793005 + 1442695040888963407
						if _, err := l.Allow(ctx, users[(i>>33)%uint64(keys)], "like"); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkMemory is what a key keeps alive, after each has been used once, and for
// windows until they were full.
func BenchmarkMemory(b *testing.B) {
	const keys = 100_000
	for _, tt := range []struct {
		name  string
		limit core.Limit
		cost  int
	}{
		{"fixed", core.FixedWindow(1000, time.Hour), 1},
		{"funnel", core.Funnel(1000, core.Per(1000, time.Hour)), 1},
		{"initial", core.TokenBucket(1000, core.Per(1000, time.Hour)).Initial(500), 1},
		{"sliding5", core.SlidingWindow(5, time.Hour), 5},
		{"sliding100", core.SlidingWindow(100, time.Hour), 100},
		{"flight5", core.InFlight(5), 5},
		{"flight100", core.InFlight(100), 100},
		{"moving1000", core.MovingWindow(1000, time.Hour), 1000},
	} {
		b.Run("limit="+tt.name, func(b *testing.B) {
			for b.Loop() {
				s := New(nil)
				l := core.Must(core.New(s, tt.limit))
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				n := keys
				if tt.cost > 100 {
					n /= 10
				}
				for i := range n {
					if _, err := l.AllowN(ctx, fmt.Sprintf("user%013d", i), "a", tt.cost); err != nil {
						b.Fatal(err)
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/float64(n), "B/key")
				runtime.KeepAlive(s)
			}
		})
	}
}

// A limiter asks the Take of a store that embeds this one, and does not go past it.
func TestAStoreThatEmbedsThisOneIsAsked(t *testing.T) {
	s := &takes{Store: New(nil)}
	l := core.Must(core.New(s, core.Funnel(2, core.Every(time.Hour))))
	for i, want := range []bool{true, true, false} {
		if d := allow(t, l, "u"); d.Allowed != want || s.n != i+1 {
			t.Errorf("action %d: allowed %v, and the store was asked %d times", i+1, d.Allowed, s.n)
		}
	}
}

type takes struct {
	*Store
	n int
}

func (s *takes) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	s.n++
	return s.Store.Take(ctx, c)
}

// A decorator of somebody else's may ask for what can never pass without a Peek.
func TestAChargeAboveTheQuotaCanNeverPass(t *testing.T) {
	s := New(nil)
	l := core.Must(core.New(s, core.Funnel(2, core.Every(time.Hour))))
	charge := core.Charge{User: "u", Action: "a", Limits: l.Limits(), Ask: machine.Ask{Cost: 3}}
	for _, known := range []bool{false, true} {
		d, err := s.Take(ctx, charge)
		if err != nil || d.Allowed || d.RetryAfter != core.Never {
			t.Errorf("known %v: %+v, %v", known, d, err)
		}
		allow(t, l, "u")
	}
}

// Users at their limit stay refused, though newcomers who are further from whole fill the
// store.
func TestAUserAtTheLimitIsNotDropped(t *testing.T) {
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

// A user who is refused a cost above 1 is protected too.
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

// The store reads the clock under the lock. Before it, another charge of the key could come in
// between at a later instant. The clock would seem to step back, and the debt would be cut.
func TestTheClockIsReadUnderTheLock(t *testing.T) {
	var s *Store
	reads := 0
	s = newStore(&Options{MaxKeys: 1}, func() int64 {
		if reads++; s.shards[0].mu.TryLock() {
			s.shards[0].mu.Unlock()
			t.Error("the lock is free")
		}
		return 1
	}, func() int64 { return 0 })
	l := core.Must(core.Must(core.New(s, core.Funnel(2, core.Every(time.Second)))).With(core.Refundable{}))
	d := allow(t, l, "u")
	if err := l.Refund(ctx, d); err != nil || reads != 2 {
		t.Errorf("the clock was read %d times for a charge and a refund, %v", reads, err)
	}
}

// A refund holds the lock until it has written, so it loses no charge that comes meanwhile. That of
// an early action of a long queue takes longest.
func TestARefundLosesNoCharge(t *testing.T) {
	const early, since, most, quota = 100, 40_000, 25_000, 1_000_000 // no refund after 65,536 actions
	var now atomic.Int64
	s := newStore(nil, now.Load, func() int64 { return 0 })
	l := core.Must(core.Must(core.New(s, core.MovingWindow(quota, time.Hour))).With(core.Refundable{}))
	now.Store(1)
	var made [early]core.Decision
	for i := range made {
		made[i] = allow(t, l, "u")
	}
	now.Store(2)
	if d, err := l.AllowN(ctx, "u", "a", since); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	charged := 0
	var refunded atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; !refunded.Load() && charged < most; charged++ {
			if _, err := l.Allow(ctx, "u", "a"); err != nil {
				t.Error(err)
			}
		}
	})
	for _, d := range made {
		if err := l.Refund(ctx, d); err != nil {
			t.Error(err)
		}
	}
	refunded.Store(true)
	wg.Wait()
	if d, err := l.Peek(ctx, "u", "a"); err != nil || d.Remaining != quota-since-charged {
		t.Errorf("%d are charged: %+v, %v", since+charged, d, err)
	}
}

// A look at a new key in a store that is full drops no key.
func TestAPeekDropsNoKey(t *testing.T) {
	c := &clock{}
	s := newStore(&Options{MaxKeys: 3}, c.now, c.epoch)
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
