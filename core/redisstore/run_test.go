package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// One run for many charges, equal ones in a row among them, decides and leaves what a
// run for each would.
func TestRunDecidesAsOneByOne(t *testing.T) {
	sevenths := core.Per(7, time.Minute)
	ladder := limitOf(t, core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{5 * time.Second, time.Minute}, ForgetAfter: 2 * time.Minute})
	sets := [][]core.Limit{
		{core.Funnel(5, sevenths)},
		{core.Funnel(3, core.Every(time.Second))},
		{core.TokenBucket(5, sevenths)},
		{core.TokenBucket(5, sevenths).Initial(2)},
		{core.FixedWindow(5, time.Minute)},
		{core.ElasticWindow(5, time.Minute)},
		{core.MovingWindow(5, time.Minute)},
		{core.SlidingWindow(5, time.Minute).CountRefused()},
		{core.Funnel(5, sevenths), core.FixedWindow(4, time.Minute)},
		{core.FixedWindow(2, time.Minute).Named("a"), core.FixedWindow(2, time.Minute).Named("b"), core.Funnel(5, sevenths)},
		{core.FixedWindow(4, time.Minute), core.SlidingWindow(3, time.Minute), core.TokenBucket(5, sevenths).Initial(2)},
		{core.Funnel(5, sevenths), core.Funnel(3, sevenths).Shadow(), core.SlidingWindow(2, time.Minute).CountRefused().Shadow(), ladder},
		{core.MovingWindow(5, time.Minute), core.ElasticWindow(3, time.Minute), ladder},
		{ladder},
	}
	test := func(t *testing.T, w, other *world) {
		rng := rand.New(rand.NewPCG(4, 7))
		for step := range 150 {
			var charges []core.Charge
			for range 1 + rng.IntN(6) {
				c := core.Charge{
					User: fmt.Sprint(rng.IntN(2)), Action: action, Limits: sets[rng.IntN(len(sets))],
					Ask: machine.Ask{Cost: 1 + int64(rng.IntN(8)/7)},
				}
				if rng.IntN(6) == 0 {
					c.Mode = machine.Peek
				}
				switch n := len(c.Limits); rng.IntN(6) {
				case 0:
					c.Receipt = true
				case 1:
					c.Receipt, c.Ahead = true, rng.Int64N(20_000_000)
				case 2:
					if c.Limits[n-1].Rule().Kind == machine.KindBan {
						n--
					}
					if n > 0 && c.Mode == machine.Charge {
						c.Limits, c.Mode = c.Limits[:n], machine.Force
					}
				}
				if c.Limits[0].Rule().Kind == machine.KindBan && c.Mode == machine.Charge { // a ban by hand
					c.Ban = rng.Int64N(5_000_000) + 1000
				}
				for range 1 + rng.IntN(4) {
					charges = append(charges, c)
				}
			}
			all, err := w.store.Run(t.Context(), charges...)
			if err != nil {
				t.Fatal(err)
			}
			var each []any
			for _, c := range charges {
				one, err := other.store.Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				each = append(each, one.([]any)...)
			}
			if got, want := fmt.Sprint(all), fmt.Sprint(each); got != want {
				t.Fatalf("step %d, %v:\n%s, one by one\n%s", step, charges, got, want)
			}
			if got, want := w.dump(t), other.dump(t); got != want {
				t.Fatalf("step %d, %v:\n%s\none by one\n%s", step, charges, got, want)
			}
			d := time.Duration(rng.IntN(20_000_000)) * time.Microsecond
			w.advance(d)
			other.advance(d)
		}
	}
	t.Run("miniredis", func(t *testing.T) { test(t, miniWorld(t, 3), miniWorld(t, 3)) })
	t.Run("redis", func(t *testing.T) { test(t, realWorld(t, 3), realWorld(t, 3)) })
}

// limitOf is a ladder as a store is given it.
func limitOf(t testing.TB, l core.BanPolicy) core.Limit {
	t.Helper()
	var seen asked
	if _, err := core.Must(core.Must(core.New(&seen, plenty)).With(l)).Status(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	return seen.charge.Limits[1]
}

type asked struct {
	core.Store
	charge core.Charge
}

func (s *asked) Take(_ context.Context, c core.Charge) (core.Decision, error) {
	s.charge = c
	return core.Decision{}, nil
}

// Equal charges in a row are written at once, so what befalls the write befalls all.
func TestFailedWriteFailsAllThatItIsFor(t *testing.T) {
	server := redistest.Start(t)
	s := reliable(t, server.Addr)
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory", "1")
	for _, rate := range []core.Rate{hourly, core.Per(7, time.Hour)} { // the second with parts
		c := core.Charge{User: user, Action: action, Limits: []core.Limit{core.Funnel(5, rate)}, Ask: machine.Ask{Cost: 1}}
		peek := c
		peek.Mode = machine.Peek
		reply, err := s.Run(t.Context(), c, c, c, peek)
		if err != nil {
			t.Fatal(err)
		}
		values, ok := reply.([]any)
		if !ok || len(values) < 4 {
			t.Fatalf("%v", reply)
		}
		for _, v := range values[:3] {
			if text, _ := v.(string); !strings.HasPrefix(text, "!OOM") {
				t.Errorf("%v", v)
			}
		}
		whole, err := s.Run(t.Context(), peek)
		if err != nil || fmt.Sprint(values[3:]) != fmt.Sprint(whole) {
			t.Errorf("a peek after them: %v, and alone %v, %v", values[3:], whole, err)
		}
	}
}
