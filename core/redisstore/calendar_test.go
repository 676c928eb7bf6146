package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// Both servers and memory decide alike, over boundaries of all units and a month at a time.
func TestCalendarWindowsDecideAsInMemory(t *testing.T) {
	newYork := zone(t, "America/New_York")
	worlds(t, func(t *testing.T, w *world) {
		now := epoch
		memory := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
		move := func(d time.Duration) {
			now = now.Add(d)
			w.advance(d)
		}
		var both [][2]*core.Limiter
		for _, limits := range [][]core.Limit{
			{core.CalendarWindow(5, core.Minute, nil)}, {core.CalendarWindow(5, core.Hour, newYork)},
			{core.CalendarWindow(5, core.Day, newYork)}, {core.CalendarWindow(5, core.Week, newYork)},
			{core.CalendarWindow(5, core.Month, newYork)}, {core.CalendarWindow(9, core.Month.From(31), newYork)},
			{core.CalendarWindow(20, core.Year, zone(t, "Etc/GMT+5"))},
			{core.CalendarWindow(5, core.Day, nil), core.CalendarWindow(9, core.Month, newYork), core.SlidingWindow(3, time.Hour)},
			{core.CalendarWindow(5, core.Day, nil).PerUser(), core.CalendarWindow(1, core.Week, newYork).Shadow()},
		} {
			refundable := func(s core.Store) *core.Limiter {
				return core.Must(core.Must(core.New(s, limits...)).With(core.Refundable{}))
			}
			both = append(both, [2]*core.Limiter{refundable(w.store), refundable(memory)})
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		last := time.Duration(0)
		for i := range 400 {
			pair := both[r.IntN(len(both))]
			act := [](func(l *core.Limiter) (core.Decision, error)){
				func(l *core.Limiter) (core.Decision, error) { return l.AllowN(t.Context(), "alice", "call", 1+i%3) },
				func(l *core.Limiter) (core.Decision, error) { return l.Surcharge(t.Context(), "alice", "call", 1+i%3) },
				func(l *core.Limiter) (core.Decision, error) { return l.Peek(t.Context(), "alice", "call") },
			}[max(0, r.IntN(5)-2)]
			got, err := act(pair[0])
			want, err2 := act(pair[1])
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if g, w := show(got), show(want); g != w {
				t.Fatalf("step %d, %s, at %s:\n%s, and in memory\n%s", i, pair[0].Limits(), now, g, w)
			}
			if r.IntN(8) == 0 && got.Allowed {
				if err := errors.Join(pair[0].Refund(t.Context(), got), pair[1].Refund(t.Context(), want)); err != nil && !errors.Is(err, core.ErrNoReceipt) {
					t.Fatal(err)
				}
			}
			last = max(last, got.ResetAfter)
			switch r.IntN(8) {
			case 0:
				move(last) // exactly to a boundary
				last = 0
			case 1:
				move(max(0, last-time.Microsecond))
			case 2:
				move(time.Duration(r.Int64N(int64(3 * time.Hour))).Truncate(time.Microsecond))
			case 3:
				move(-time.Duration(r.Int64N(int64(3 * time.Second))).Truncate(time.Microsecond))
			}
		}
	})
}

// show is what a decision says, wherever it comes from.
func show(d core.Decision) string {
	return fmt.Sprint(d.Allowed, d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter, d.Binding, d.Reason, d.Shadow)
}

// The process's clock is off by up to a period, and no decision changes. If it is off by more, the charge
// is an error, and others in the batch are decided.
func TestTheClockOfTheProcessIsOff(t *testing.T) {
	day := core.CalendarWindow(3, core.Day, nil)
	worlds(t, func(t *testing.T, w *world) {
		server := func() time.Time { return time.UnixMicro(w.now) }
		midnight := server().Truncate(24 * time.Hour).Add(24 * time.Hour)
		n := 0
		for _, now := range []time.Duration{-time.Microsecond, 0} { // of the server, from midnight
			w.advance(midnight.Add(now).Sub(server()))
			for _, off := range []time.Duration{-24 * time.Hour, -time.Hour, -time.Microsecond, 0, time.Microsecond, time.Hour, 24*time.Hour - time.Microsecond} {
				n++
				w.store.SetTime(func() time.Time { return server().Add(off) })
				l := core.Must(core.New(w.store, day))
				for i := range 4 {
					d, err := l.Allow(t.Context(), fmt.Sprint(user, n), action)
					left := midnight.Sub(server())
					if left <= 0 {
						left += 24 * time.Hour
					}
					if err != nil || d.Allowed != (i < 3) || d.ResetAfter != left {
						t.Errorf("off by %s, %s after midnight: %+v, %v", off, now, d, err)
					}
				}
			}
		}
		for _, off := range []time.Duration{-48 * time.Hour, 48 * time.Hour, -40 * 365 * 24 * time.Hour, time.Duration(-w.now) * 1000, -100 * 365 * 24 * time.Hour} {
			w.store.SetTime(func() time.Time { return server().Add(off) })
			l := core.Must(core.New(w.store, day))
			_, err := l.Allow(t.Context(), user, action)
			if discreet(t, err); !errors.Is(err, redisstore.ErrClock) || !errors.Is(err, core.ErrKey) {
				t.Errorf("off by %s: %v", off, err)
			}
			charge := func(limits ...core.Limit) core.Charge {
				return core.Charge{User: fmt.Sprint(user, off), Action: action, Cost: 1}.With(core.Terms{Limits: limits})
			}
			fixed := core.FixedWindow(3, time.Hour)
			charges := []core.Charge{charge(fixed), charge(fixed, day), charge(fixed)}
			reply, err := w.store.Run(charges...)
			if err != nil {
				t.Fatal(err)
			}
			decisions, errs := redisstore.Decode(charges, reply)
			if errs[0] != nil || errs[1] == nil || errs[2] != nil || decisions[2].Remaining != 1 {
				t.Errorf("off by %s: in a batch: %+v, %v", off, decisions, errs)
			}
		}
		w.store.SetTime(server)
	})
}

// What is sent is made anew when a boundary passes, in both directions, and only then.
func TestARequestIsRenewedAtABoundary(t *testing.T) {
	now := epoch
	store := redisstore.New(connect(t, &redis.Options{Addr: closed}), nil)
	store.SetTime(func() time.Time { return now })
	hours, days := core.CalendarWindow(3, core.Hour, nil), core.CalendarWindow(3, core.Day, nil)
	c := core.Charge{User: user, Action: action, Cost: 1}.With(core.Terms{Limits: []core.Limit{days, hours}})
	first := store.Sent(c)
	for _, tt := range []struct {
		name  string
		to    time.Time
		again bool
	}{
		{"a second later", now.Add(time.Second), true},
		{"at the end of the hour", now.Truncate(time.Hour).Add(time.Hour - time.Microsecond), true},
		{"in the next hour", now.Truncate(time.Hour).Add(time.Hour), false},
		{"in the first hour again", now, true},
		{"on the next day", now.Add(24 * time.Hour), false},
		{"an hour earlier", now.Add(-time.Hour), false},
	} {
		now = tt.to
		if got := store.Sent(c); (got == first) != tt.again || got != store.Word(c) {
			t.Errorf("%s: %s, at first %s", tt.name, got, first)
		}
	}
}

// The key is kept for a second after the window's end, and not for longer.
func TestTheKeyOfACalendarWindowExpires(t *testing.T) {
	month := core.CalendarWindow(3, core.Month, nil)
	worlds(t, func(t *testing.T, w *world) {
		l := core.Must(core.New(w.store, month))
		for range 4 {
			if _, err := l.Allow(t.Context(), user, action); err != nil {
				t.Fatal(err)
			}
			february := time.Date(2026, 2, 1, 0, 0, 1, 0, time.UTC)
			if at := w.expiry(w.store.Key(user, action, month)); at != february.UnixMilli() {
				t.Errorf("the key expires at %s", time.UnixMilli(at).UTC())
			}
		}
	})
}

// Two processes have different time zone data, and so different boundaries. The script decides what the
// machine does, whoever asks.
func TestTwoVersionsOfTimeZoneDataDecideAsInGo(t *testing.T) {
	calendars := []*machine.Calendar{
		machine.NewCalendar("day", 1, time.UTC), machine.NewCalendar("day", 1, time.FixedZone("", 3600)), machine.NewCalendar("day", 1, time.FixedZone("", -7*3600)),
	}
	worlds(t, func(t *testing.T, w *world) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		var s machine.State
		for i := range 300 {
			rule := machine.NewCalendarWindow(4+r.Int64N(2), calendars[r.IntN(len(calendars))])
			cost, ask, e := 1+r.Int64N(2), machine.Ask{}, machine.Entry{State: s}
			rule.Check(&e, w.now, cost, &ask)
			if e.Fits {
				rule.Charge(&e, w.now, cost, &ask)
			} else {
				rule.Refuse(&e, w.now, cost, true, false)
			}
			v := e.Reading
			want := []any{2 * v.Count, v.Rest.Whole}
			if v.Fits {
				want[0] = 2*v.Count + 1
			}
			if e.Dirty {
				s = e.State
			}

			unix := w.now + r.Int64N(20*3600e6) - 10*3600e6
			word := "c calendar "
			for n, number := range rule.Args(nil, cost, 0, unix) {
				if n > 0 {
					word += ","
				}
				word += fmt.Sprint(number)
			}
			got, err := w.rdb.Eval(t.Context(), redisstore.Script, []string{"key"}, word).Result()
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("step %d, at %s: %s: %v, %v; in Go %v", i, time.UnixMicro(w.now).UTC(), word, got, err, want)
			}
			switch r.IntN(6) {
			case 0:
				w.advance(-time.Duration(r.Int64N(2e6)) * time.Microsecond)
			case 1:
				w.advance(time.Duration(v.Rest.Whole) * time.Microsecond)
			case 2:
				w.advance(time.Duration(max(0, v.Rest.Whole-1)) * time.Microsecond)
			default:
				w.advance(time.Duration(r.Int64N(5*3600e6)) * time.Microsecond)
			}
		}
	})
}
