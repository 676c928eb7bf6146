package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// What the script decides by a short way it decides as by the long one: the same replies,
// and the same bytes and expiries, whatever the states and whatever comes together.
func TestShortWaysAreTheLongWay(t *testing.T) {
	// Its Lua loses track of locals once an error is caught.
	t.Run("miniredis", func(t *testing.T) { shortWays(t, miniWorld(t, 3), 300, false) })
	t.Run("redis", func(t *testing.T) {
		redistest.Need(t, true)
		shortWays(t, realWorld(t, 3), 800, true)
	})
}

func shortWays(t *testing.T, w *world, steps int, spoilt bool) {
	r := rand.New(rand.NewPCG(1, 2))
	limits := []core.Limit{
		core.FixedWindow(4, time.Second), core.FixedWindow(4, time.Minute), core.FixedWindow(1e9, time.Hour),
		core.ElasticWindow(3, time.Second), core.ElasticWindow(11, time.Second).Named("eleven"),
		core.Funnel(3, core.Per(3, time.Second)), core.Funnel(9, core.Per(1e9, time.Second)).Named("fast"), core.Throttle(4, core.Per(7, time.Second)).Named("seven"),
		core.TokenBucket(5, core.Per(7, time.Second)), core.TokenBucket(5, core.Per(11, time.Second)).Named("eleven"),
	}
	dear := []core.Limit{
		core.SlidingWindow(3, time.Second), core.MovingWindow(3, time.Second),
		core.TokenBucket(5, core.Per(11, time.Second)).Named("i").Initial(2).ForgetAfter(1500 * time.Millisecond),
		core.FixedWindow(2, time.Second).Named("s").Shadow(),
	}
	// state is what a limit's key may hold, and what it may not if it is to be spoilt.
	state := func(l core.Limit) string {
		now, at, of := w.now, w.now+r.Int64N(3e6)-1e6, func(sound, all int) int { return r.IntN(all) }
		if !spoilt {
			of = func(sound, all int) int { return r.IntN(sound) }
		}
		if l.Kind() == core.KindFixedWindow || l.Kind() == core.KindElasticWindow {
			return []string{
				fmt.Sprint(r.IntN(12), " ", at), fmt.Sprint(r.IntN(12), " ", at), fmt.Sprint(r.IntN(5), " ", now+l.Period().Microseconds()+r.Int64N(2)),
				fmt.Sprint([]int{9, 10, 99, 999}[r.IntN(4)], " ", at+1e6), "0003 " + fmt.Sprint(at), "5 " + fmt.Sprint(now), "999999999 " + fmt.Sprint(at),
				"", "x", "1", "1 ", "-1 5", "1e1 " + fmt.Sprint(at), "1 99999999999999999",
			}[of(7, 14)]
		}
		return []string{
			fmt.Sprint(at), fmt.Sprint(at), fmt.Sprint(at, "+1/7"), fmt.Sprint(at, "+4/11"), fmt.Sprint(now, "+2/7"), fmt.Sprint(at, "+0/3"), fmt.Sprint(now + l.Numbers(1).Full), fmt.Sprint(now+l.Numbers(1).Full, "+6/7"),
			fmt.Sprint(at, "@", at), fmt.Sprint(at, " ", now-5), fmt.Sprint(at, "!", at+1e6, " 5 7 1+0/1"),
			"", "x", "17", "0x06660000000000", fmt.Sprint(at, "+7/7"), fmt.Sprint(at, "+1/0"), "1.8000000000e+15",
		}[of(11, 18)]
	}
	on := func(ways string, charges []core.Charge) []core.Charge { // an equal user of each way's own
		charges = slices.Clone(charges)
		for i := range charges {
			charges[i].User += ways
		}
		return charges
	}
	refused, failed := 0, 0
	for step := range steps {
		if w.rdb.FlushAll(t.Context()); r.IntN(2) == 0 {
			w.advance(time.Duration(r.IntN(400_000)) * time.Microsecond)
		}
		var charges []core.Charge
		for range 1 + r.IntN(12) {
			c := core.Charge{User: fmt.Sprint(r.IntN(2)), Action: action, Cost: r.Int64N(5)}
			c.Peek, c.Receipt = r.IntN(5) == 0, r.IntN(4) == 0
			r.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
			c.Limits = slices.Clone(limits[:1+r.IntN(3)])
			if r.IntN(8) == 0 {
				c.Limits = append(c.Limits, dear[r.IntN(len(dear))])
			}
			for range 1 + r.IntN(3) {
				charges = append(charges, c)
			}
		}
		for _, c := range charges {
			for _, l := range c.Limits {
				if l.Kind() == core.KindSlidingWindow || l.Kind() == core.KindMovingWindow || r.IntN(3) > 0 {
					continue
				}
				value, list := state(l), spoilt && r.IntN(20) == 0
				for _, way := range []string{"short", "long"} {
					key := w.store.Key(c.User+way, c.Action, l)
					if w.rdb.Del(t.Context(), key); list {
						w.rdb.RPush(t.Context(), key, "x")
					} else {
						w.rdb.Do(t.Context(), "set", key, value, "pxat", w.now/1000+3_600_000)
					}
				}
			}
		}
		before := w.dump(t)
		full := spoilt && r.IntN(10) == 0 // no write succeeds
		if full {
			w.rdb.ConfigSet(t.Context(), "maxmemory", "1")
		}
		short, err := w.store.Run(t.Context(), on("short", charges)...)
		if err != nil {
			t.Fatal(err)
		}
		long, err := w.store.RunLong(t.Context(), on("long", charges)...)
		if err != nil {
			t.Fatal(err)
		}
		if full {
			w.rdb.ConfigSet(t.Context(), "maxmemory", "0")
		}
		var dumps [2]string
		for line := range strings.Lines(w.dump(t)) {
			if s := strings.Replace(line, "short}", "}", 1); s != line {
				dumps[0] += s
			} else {
				dumps[1] += strings.Replace(line, "long}", "}", 1)
			}
		}
		if !reflect.DeepEqual(short, long) || dumps[0] != dumps[1] {
			t.Fatalf("step %d, %+v\nbefore\n%s\nshort %v\n%s\nlong %v\n%s", step, charges, before, short, dumps[0], long, dumps[1])
		}
		for _, v := range short.([]any) {
			if s, ok := v.(string); ok && s[0] == '!' {
				failed++
			} else if n, ok := v.(int64); ok && n%2 == 0 {
				refused++
			}
		}
	}
	if refused < steps || spoilt && failed < steps {
		t.Errorf("%d numbers were even and %d charges failed", refused, failed)
	}
}
