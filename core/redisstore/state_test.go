//go:build !race

package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// What is in Redis, for people and for versions to come: a change of it is a change of
// the key.
func TestStateFormat(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		if w.now != 1767323045678901 {
			t.Fatal(w.now)
		}
		zset := func(members ...string) string { return fmt.Sprint("zset ", members) }
		for _, tc := range []struct {
			limit core.Limit
			costs []int
			want  string
			until time.Duration // whole again
		}{
			{core.SlidingWindow(3, time.Minute), []int{1, 2, 1}, zset("1767323045678901@1767323045678901.000000", "1767323045678902@1767323045678901.000000", "1767323045678903@1767323045678901.000000"), time.Minute},
			{core.SlidingWindow(2, time.Minute).CountRefused(), []int{1, 2}, zset("1767323045678902r@1767323045678901.000000", "1767323045678903r@1767323045678901.000000"), time.Minute},
			{core.MovingWindow(3, time.Minute), []int{1, 2, 1}, `string "` + strings.Repeat(`\x06G^\xf6WO5`, 3) + `"`, time.Minute},
			{core.MovingWindow(40, time.Minute).Named("long"), []int{31, 2}, `string "0 1767323045678901 0 33` + strings.Repeat(" ", 33) + strings.Repeat(`\x06G^\xf6WO5`, 33) + strings.Repeat(`\x00`, 49) + `"`, time.Minute},
			{core.FixedWindow(3, time.Minute), []int{1, 2, 1}, `string "3 1767323105678901"`, time.Minute},
			{core.ElasticWindow(3, time.Minute), []int{1, 2, 1}, `string "3 1767323105678901"`, time.Minute},
			{core.Funnel(3, core.Per(1, time.Second)), []int{1, 2, 1}, `string "1767323048678901"`, 3 * time.Second},
			{core.Funnel(3, core.Per(7, time.Second)).Named("seven"), []int{1, 1}, `string "1767323045964615+2"`, 285715 * time.Microsecond},
			{core.TokenBucket(3, core.Per(1, time.Second)).Named("plain"), []int{1}, `string "1767323046678901"`, time.Second},
			{core.TokenBucket(3, core.Per(1, time.Second)).Initial(2), []int{1}, `string "1767323047678901 1767409448678901"`, 24*time.Hour + 3*time.Second},
		} {
			lim := core.Must(core.New(w.store, tc.limit))
			for _, n := range tc.costs {
				if _, err := lim.AllowN(t.Context(), "alice", "reply", n); err != nil {
					t.Fatal(err)
				}
			}
			key := w.store.Key("alice", "reply", tc.limit)
			if got := w.value(t, key); got != tc.want {
				t.Errorf("%s: %s\nwant %s", tc.limit, got, tc.want)
			}
			end := w.now + tc.until.Microseconds()
			if got := w.expiry(key); got != (end+999)/1000 {
				t.Errorf("%s expires at %d, which is not %d rounded up", tc.limit, got, end)
			}
		}

		// A debt of Settle is marked by "=" with its instant, a turn by "@".
		for _, tc := range []struct {
			limit core.Limit
			want  string
		}{
			{core.Funnel(3, core.Per(1, time.Second)).Named("debt"), `string "1767323050678901=1767323045678901"`},
			{core.TokenBucket(3, core.Per(7, time.Second)).Initial(3).Named("debt"), `string "1767323046393186+5=1767323045678901 1767409446393188"`},
			{core.FixedWindow(3, time.Minute).Named("debt"), `string "5 1767323105678901"`},
			{core.MovingWindow(3, time.Minute).Named("debt"), `string "` + strings.Repeat(`\x06G^\xf6WO5`, 5) + `"`},
		} {
			lim := core.Must(core.Must(core.New(w.store, tc.limit)).With(core.Refundable{}))
			d, err := lim.AllowN(t.Context(), "alice", "reply", 2)
			if err == nil {
				err = lim.Settle(t.Context(), d, 5)
			}
			if got := w.value(t, w.store.Key("alice", "reply", tc.limit)); err != nil || got != tc.want {
				t.Errorf("%s: %s, %v\nwant %s", tc.limit, got, err, tc.want)
			}
		}

		policy := core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{time.Second}, ForgetAfter: time.Hour}
		ban := w.store.Key("alice", "reply", limitOf(t, policy))
		banned := core.Must(core.Must(core.New(w.store, core.FixedWindow(1, time.Minute).Named("banned"))).With(policy))
		for _, want := range []string{"", `string "1767323105678901 1767323045678901 0 0 1767323045678901"`, `string "1767326646678901 1767323045678901 1767323046678901 1"`} {
			if _, err := banned.Allow(t.Context(), "alice", "reply"); err != nil {
				t.Fatal(err)
			}
			if got := w.value(t, ban); want != "" && got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		if got := w.expiry(ban); got != 1767326646679 {
			t.Errorf("the ban expires at %d", got)
		}

		// If the clock steps back the instants of a ring stay, and its header says by how much.
		ring := core.MovingWindow(40, time.Minute).Named("back")
		lim := core.Must(core.New(w.store, ring))
		for range 2 {
			if _, err := lim.AllowN(t.Context(), "alice", "reply", 20); err != nil {
				t.Fatal(err)
			}
			w.advance(-5 * time.Second)
		}
		want := `string "5000000 1767323040678901 0 40` + strings.Repeat(" ", 27) + strings.Repeat(`\x06G^\xf6WO5`, 40) + `"`
		if got := w.value(t, w.store.Key("alice", "reply", ring)); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	})
}

// An operator's PERSIST lasts until the next write, for a FixedWindow or CalendarWindow that of its
// next window.
func TestPersist(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		for _, l := range kinds {
			lim := core.Must(core.New(w.store, l))
			key := w.store.Key(user, action, l)
			for i := range 2 {
				w.advance(time.Microsecond)
				if i > 0 && l.Rule().Kind == machine.KindFixedWindow {
					w.advance(time.Hour)
				}
				if i > 0 && l.Rule().Calendar != nil {
					w.advance(366 * 24 * time.Hour)
				}
				if _, err := lim.Allow(t.Context(), user, action); err != nil {
					t.Fatal(err)
				}
				if w.expiry(key) <= w.now/1000 {
					t.Errorf("%s expires at %d", l, w.expiry(key))
				}
				if err := w.rdb.Persist(t.Context(), key).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if w.expiry(key) != -1 {
				t.Fatalf("%s: PERSIST did nothing", l)
			}
			if l.Rule().Calendar != nil {
				continue // a step back within the year puts nothing right
			}
			// So it does where a step back of the clock is put right.
			w.advance(-time.Minute)
			other := core.FixedWindow(1, time.Hour).Named("other")
			full := core.Must(core.New(w.store, other))
			for range 2 {
				if _, err := full.Allow(t.Context(), user, action); err != nil {
					t.Fatal(err)
				}
			}
			if d, err := core.Must(core.New(w.store, l, other)).Allow(t.Context(), user, action); err != nil || d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			windowed := l.Rule().Kind != machine.KindFunnel && l.Rule().Kind != machine.KindTokenBucket || l.Rule().ForgetAfter > 0
			if windowed && w.expiry(key) <= w.now/1000 {
				t.Errorf("%s, put right, expires at %d", l, w.expiry(key))
			}
			w.advance(time.Minute)
		}
	})
}

// Numbers that a clock may have made are no nonsense: they are put right.
func TestFarFutureIsClamped(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		far := "9999999999999999"
		for _, tc := range []struct {
			limit core.Limit
			value string
		}{
			{core.FixedWindow(5, time.Hour), "5 " + far},
			{core.ElasticWindow(5, time.Hour), "5 " + far},
			{core.Funnel(5, hourly), far},
			{core.Funnel(5, core.Per(7, time.Hour)).Named("parts"), far + "+1"},
			{core.TokenBucket(10, hourly).Initial(5), far + " " + far},
		} {
			lim := core.Must(core.New(w.store, tc.limit))
			key := w.store.Key(user, action, tc.limit)
			if err := w.rdb.Set(t.Context(), key, tc.value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			d, err := lim.Allow(t.Context(), user, action)
			if err != nil || d.Allowed || d.RetryAfter > tc.limit.Period() || d.RetryAfter <= 0 {
				t.Errorf("%s: %+v, %v", tc.limit, d, err)
			}
			if w.expiry(key) <= 0 {
				t.Errorf("%s: no expiry", tc.limit)
			}
		}
	})
}

// A refund's instant of garbled bytes keeps a key for a century, and not for two.
func TestFarRefundIsKeptACentury(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		l := core.Funnel(5, hourly)
		lim := core.Must(core.Must(core.New(w.store, l)).With(core.Refundable{}))
		key, century := w.store.Key(user, action, l), 36525*24*time.Hour
		spoil := func() {
			tat, _, _ := strings.Cut(w.rdb.Get(t.Context(), key).Val(), "!")
			if err := w.rdb.Set(t.Context(), key, tat+"!9999999999999999 0 1", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		d, err := lim.Allow(t.Context(), user, action)
		if err != nil {
			t.Fatal(err)
		}
		spoil()
		if _, err = lim.Allow(t.Context(), user, action); err != nil || w.expiry(key) > (w.now+century.Microseconds()+999)/1000 {
			t.Errorf("after a charge: it expires at %d, %v", w.expiry(key), err)
		}
		spoil()
		if err = lim.Refund(t.Context(), d); err != nil || w.expiry(key) <= 0 || w.expiry(key) > (w.now+century.Microseconds()+999)/1000 {
			t.Errorf("after a refund: it expires at %d, %v", w.expiry(key), err)
		}
	})
}

// The numbers of refunds run ahead of a clock that stands still. A charge that knew of such a refund does not
// take a later one for known.
func TestManyRefundsAtOnce(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		lim := core.Must(core.Must(core.New(w.store, core.Funnel(100, core.Per(1000, time.Millisecond)))).With(core.Refundable{}))
		charge := func(n int) core.Decision {
			t.Helper()
			d, err := lim.AllowN(t.Context(), user, action, n)
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			return d
		}
		refund := func(d core.Decision) {
			t.Helper()
			if err := lim.Refund(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			refund(charge(1))
		}
		a, b := charge(3), charge(5)
		w.advance(time.Microsecond)
		charge(1)
		refund(a) // 2 us of it are left, so b's end is no later than 7 us after the start
		charge(10)
		w.advance(3 * time.Microsecond)
		refund(b)
		if d, err := lim.Peek(t.Context(), user, action); err != nil || d.ResetAfter != 10*time.Microsecond {
			t.Errorf("%s, %v, want 10µs", d.ResetAfter, err)
		}
	})
}
