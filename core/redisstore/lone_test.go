package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
)

// The script decides a lone meter by a part of its own, which answers and writes as the one for
// all others does, whatever the state is.
func TestALoneMeterIsDecidedAsInABatch(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		limit := core.Funnel(10, core.Per(1, time.Second)) // 10 s
		other := core.Charge{User: "other", Action: action, Limits: []core.Limit{core.FixedWindow(9, time.Hour)}, Ask: machine.Ask{Cost: 1}}
		at := func(d time.Duration) string { return fmt.Sprint(w.now + d.Microseconds()) }
		states := []string{
			"", at(-time.Hour), at(-time.Microsecond), at(0), at(time.Microsecond), at(4 * time.Second), at(9 * time.Second), at(9*time.Second + time.Microsecond),
			at(10*time.Second - time.Microsecond), at(10 * time.Second), at(10*time.Second + time.Microsecond), at(time.Hour), // the clock has stepped back
			at(time.Second) + "+0", at(time.Second) + "+1", at(12*time.Second) + "@" + at(0), at(time.Second) + "!" + at(time.Minute) + " 1 " + at(0),
			"1", "9" + at(0), "-" + at(0), "nonsense", "1767323045678.01", " 176732304567890", "0x17673230456789", "list",
		}
		for _, cost := range []int64{1, 2, 10, 11, 1 << 40} {
			for _, state := range states {
				var got [2]string
				for i := range got {
					c := core.Charge{User: user, Action: action, Limits: []core.Limit{limit}, Ask: machine.Ask{Cost: cost}}
					charges := []core.Charge{c}
					if i == 1 {
						charges = append(charges, other)
					}
					key := w.store.Key(user, action, limit)
					w.rdb.Del(ctx, key)
					switch state {
					case "":
					case "list":
						w.rdb.RPush(ctx, key, "x")
					default:
						w.rdb.Set(ctx, key, state, 0)
					}
					reply, err := w.store.Run(charges...)
					if err != nil {
						t.Fatal(err)
					}
					decisions, errs := redisstore.Decode(charges, reply)
					got[i] = fmt.Sprintf("%+v %v %s %d", decisions[0], errs[0], w.value(t, key), w.expiry(key))
				}
				if got[0] != got[1] {
					t.Errorf("cost %d, state %q:\nalone      %s\nin a batch %s", cost, state, got[0], got[1])
				}
				if strings.Contains(got[0], "%!") {
					t.Fatal(got[0])
				}
			}
		}
	})
}

// Only a plain meter's charge has the short form: everything else needs what it leaves out.
func TestOnlyALoneMeterHasTheShortForm(t *testing.T) {
	_, proxy := proxied(t)
	store := reliable(t, proxy.Addr)
	plain := core.Charge{User: user, Action: action, Limits: []core.Limit{core.Funnel(10, core.Per(1, time.Second))}, Ask: machine.Ask{Cost: 1}}
	with := func(change func(c *core.Charge)) core.Charge {
		c := plain
		change(&c)
		return c
	}
	limits := func(l ...core.Limit) core.Charge { return with(func(c *core.Charge) { c.Limits = l }) }
	for name, tc := range map[string]struct {
		charge core.Charge
		want   int // arguments after the keys
	}{
		"a funnel":               {plain, 2},
		"a bucket":               {limits(core.TokenBucket(5, core.Every(time.Minute))), 2},
		"a throttle":             {limits(core.Throttle(4, core.Per(1, 7*time.Second))), 2},
		"a peek":                 {with(func(c *core.Charge) { c.Mode = machine.Peek }), 1},
		"a surcharge":            {with(func(c *core.Charge) { c.Mode = machine.Force }), 1},
		"with a receipt":         {with(func(c *core.Charge) { c.Receipt = true }), 1},
		"a waiting caller":       {with(func(c *core.Charge) { c.Ahead = 5 }), 1},
		"rehearsed":              {limits(plain.Limits[0].Shadow()), 1},
		"parts of a microsecond": {limits(core.Funnel(5, core.Per(7, time.Minute))), 1},
		"a bucket with Initial":  {limits(core.TokenBucket(8, core.Every(time.Minute)).Initial(5)), 1},
		"a window":               {limits(core.FixedWindow(5, time.Minute)), 1},
		"two meters":             {limits(plain.Limits[0], core.Funnel(5, core.Every(time.Minute))), 1},
	} {
		proxy.Commands()
		if _, err := store.Run(tc.charge); err != nil {
			t.Fatal(err)
		}
		sent := proxy.Commands()
		if last := sent[len(sent)-1]; len(last)-3-len(tc.charge.Limits) != tc.want {
			t.Errorf("%s is sent as %q, want %d arguments", name, last, tc.want)
		}
	}
}
