//go:build !race

package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"pgregory.net/rapid"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
)

const foreign = "foreign" // a user whose keys hold something else

// Each machine decides the same in Go and in Lua: all modes, shadow limits, bans, turns ahead, refunds, releases and
// renewals, whatever the clocks do, in batches of any shape. The readings of all limits are the same, and so are the
// expiries of the states. An error concerns its own charge only.
func TestGoAndLuaDecideAlike(t *testing.T) {
	t.Parallel()
	t.Run("as they are", func(t *testing.T) { goAndLua(t, newLuaServer(t)) })
	t.Run("few instants are a long ring", func(t *testing.T) {
		goAndLua(t, newLuaServer(t, "maxList = 32", "maxList = 9", "inPlace = 500000", "inPlace = 25", "piece = 8192", "piece = 3"))
	})
}

func goAndLua(t *testing.T, server *luaServer) {
	all, bans := limitsOf(t)
	giver := core.Must(core.New(server.store, plenty)) // any limiter gives back
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		clear(server.values)
		o := &oracle{now: &server.now, states: map[string]machine.State{}}
		type charged struct {
			cost        int64
			inGo, inLua core.Decision
		}
		limits := []core.Limit{all[rapid.IntRange(0, len(all)/2-1).Draw(rt, "limit")]} // the second half are shadow limits
		for range 4 {
			limits = append(limits, rapid.SampledFrom(all).Draw(rt, "limit"))
		}
		var given []charged
		var log strings.Builder
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			d := rapid.SampledFrom([]int64{0, 0, 0, 1, 999, 50_000, 142_858, 333_334, 999_999, 1_000_000, 2_500_000, 54_321_099, 60_000_000, -1, -30_000, -700_000}).Draw(rt, "move")
			server.advance(d)
			for k := range o.states {
				o.forget(k)
			}
			off := time.Duration(rapid.SampledFrom([]int{0, 0, -59, 59}).Draw(rt, "off")) * time.Second
			server.store.SetTime(func() time.Time { return time.UnixMicro(server.now).Add(off) })
			fmt.Fprintf(&log, "%+d us\n", d)
			if n := len(given); n > 0 && rapid.IntRange(0, 2).Draw(rt, "amend") == 0 {
				i := rapid.IntRange(0, n-1).Draw(rt, "which")
				g, what := given[i], rapid.SampledFrom([]string{"refund", "refund", "release", "renew"}).Draw(rt, "how")
				units := rapid.IntRange(1, int(g.cost)).Draw(rt, "units")
				var errs [2]error
				for i, d := range []core.Decision{g.inGo, g.inLua} {
					switch what {
					case "refund":
						errs[i] = giver.RefundN(t.Context(), d, units)
					case "release":
						errs[i] = giver.Release(t.Context(), d)
					case "renew":
						errs[i] = giver.Renew(t.Context(), d)
					}
				}
				fmt.Fprintf(&log, "%s %d of decision %d, %d of %d units: %v\n", what, i, n, units, g.cost, errs)
				if errs[0] != errs[1] || errs[0] != nil && !errors.Is(errs[0], core.ErrLeaseEnded) {
					rt.Fatal(log.String())
				}
				seen[what]++
			}
			shapes := make([]core.Charge, rapid.IntRange(1, 3).Draw(rt, "shapes"))
			for i := range shapes {
				shapes[i] = drawCharge(rt, limits, bans)
			}
			var charges []core.Charge
			for range rapid.SampledFrom([]int{1, 1, 1, 5}).Draw(rt, "charges") {
				c := rapid.SampledFrom(shapes).Draw(rt, "shape")
				c.User, c.Action = "alice", rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(rt, "action")
				if rapid.IntRange(0, 15).Draw(rt, "foreign") == 15 {
					c.User = foreign
					for _, l := range c.Limits {
						server.values[server.store.Key(c.User, c.Action, l)] = &luaValue{foreign: true}
					}
				}
				charges = append(charges, slices.Repeat([]core.Charge{c}, rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(rt, "times"))...)
			}
			inGo, want := make([]core.Decision, len(charges)), make([]*core.Record, len(charges))
			for i, c := range charges {
				if c.User == foreign {
					continue
				}
				inGo[i], want[i] = o.decide(c)
				fmt.Fprintf(&log, "%s %v costs %d, %+v, a receipt: %t: %+v\n", c.Action, c.Limits, c.Cost, c.Ask, c.Receipt, want[i].Readings)
			}
			inLua, got, errs := server.decide(charges...)
			for i, c := range charges {
				if c.User == foreign {
					if errs[i] == nil || !strings.Contains(errs[i].Error(), "WRONGTYPE") {
						rt.Fatalf("%scharge %d of the last %d, of a foreign value: %v", &log, i+1, len(charges), errs[i])
					}
					seen[foreign]++
					continue
				}
				if errs[i] != nil || bare(inLua[i]) != bare(inGo[i]) {
					rt.Fatalf("%scharge %d of the last %d\nin Go  %+v\nin Lua %+v, %v", &log, i+1, len(charges), bare(inGo[i]), bare(inLua[i]), errs[i])
				}
				for j, l := range c.Limits {
					if g, w := said(&l, c, got[i].Readings[j], inGo[i]), said(&l, c, want[i].Readings[j], inGo[i]); g != w {
						rt.Fatalf("%scharge %d of the last %d, %s\nin Go  %+v\nin Lua %+v", &log, i+1, len(charges), l, w, g)
					}
					expires, v := int64(0), server.values[server.store.Key(c.User, c.Action, l)]
					if v != nil {
						expires = v.expires
					}
					if want := (o.states[oracleKey(c.User, c.Action, l)].Expires + 999) / 1000; expires != want {
						rt.Fatalf("%s%s expires in Go at %d and in Lua at %d", &log, l, want, expires)
					}
				}
				if inGo[i].Allowed && c.Receipt && c.Mode.NeedsRoom() && c.Ask.Ban == 0 {
					given = append(given, charged{c.Cost, kept(t, inGo[i], want[i]), kept(t, inLua[i], got[i])})
				}
				seen[string(inGo[i].Reason)]++
				if c.Ask.Ahead > 0 && inGo[i].Allowed {
					seen["ahead"]++
				}
			}
		}
	})
	t.Log(seen)
	for _, what := range []string{"", "limited", "banned", "shadowed", "near", "ahead", "refund", "release", "renew", "in-flight", foreign} {
		if seen[what] == 0 && !t.Failed() && !testing.Short() { // -short draws a fifth of the histories
			t.Errorf("nothing was %q", what)
		}
	}
}

// said is a reading of a decision without what means nothing in its case.
func said(l *core.Limit, c core.Charge, v machine.Reading, d core.Decision) machine.Reading {
	if v.Fits || c.Cost > l.Rule().Max {
		v.Wait = 0
	}
	amendable := d.Allowed && v.Fits && c.Receipt && c.Mode.NeedsRoom()
	switch r := l.Rule(); {
	case r.TakesSlots(), r.Parts > 0 && !amendable, r.Calendar != nil && c.Mode != machine.ModePeek:
		v.Detail = 0 // slots have random numbers on Redis
	}
	return v
}

// Processes have different time zone data, and so different boundaries. The script decides what the machine does,
// whoever asks.
func TestCalendarWindowsInGoAndLuaDecideAlike(t *testing.T) {
	t.Parallel()
	server, state := newLuaServer(t), machine.State{}
	zones := []*time.Location{time.UTC, time.FixedZone("", 3600), time.FixedZone("", -7*3600)}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, tt := range []struct {
		unit   string
		from   int
		length int64
	}{{"minute", 1, 60e6}, {"hour", 1, 3600e6}, {"day", 1, 86400e6}, {"week", 1, 7 * 86400e6}, {"month", 1, 28 * 86400e6}, {"month", 31, 28 * 86400e6}} {
		for i := range 500 {
			rule := machine.NewCalendarWindow(4+r.Int64N(2), machine.NewCalendar(tt.unit, tt.from, zones[r.IntN(len(zones))]))
			cost, e := 1+r.Int64N(2), machine.Entry{State: state}
			rule.Check(&e, server.now, cost, &machine.Ask{})
			if e.Fits {
				rule.Charge(&e, server.now, cost, &machine.Ask{})
			} else {
				rule.Refuse(&e, server.now, cost, true, false)
			}
			if e.Dirty {
				state = e.State
			}
			numbers := strings.Fields(strings.Trim(fmt.Sprint(redisstore.Args(&rule, cost, server.now+r.Int64N(tt.length)-tt.length/2)), "[]"))
			word := "c calendar " + strings.Join(numbers, ",")
			reply, err := server.run(redisstore.Program{Source: redisstore.Script, Keys: []string{fmt.Sprint(tt.unit, tt.from)}, Args: []string{word}})
			want := []any{2 * e.Count, e.Rest.Whole}
			if e.Fits {
				want[0] = 2*e.Count + 1
			}
			if err != nil || fmt.Sprint(reply) != fmt.Sprint(want) {
				t.Fatalf("step %d, at %s: %s: %v, %v; in Go %v", i, time.UnixMicro(server.now).UTC(), word, reply, err, want)
			}
			server.advance([]int64{-r.Int64N(2e6), e.Rest.Whole, max(0, e.Rest.Whole-1), r.Int64N(tt.length / 4), r.Int64N(tt.length / 4)}[r.IntN(5)])
		}
		state = machine.State{}
	}
}

// Each file of Lua is Lua by itself.
func TestEachFileIsLua(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	vm := lua.NewState()
	defer vm.Close()
	for _, file := range files {
		if _, err := vm.LoadFile(file); err != nil {
			t.Error(err)
		}
	}
}

// oracle keeps the states of the Go machines.
type oracle struct {
	now    *int64 // Unix microseconds
	states map[string]machine.State
}

func (o *oracle) load(user, action string, limits []core.Limit) (keys []string, entries []machine.Entry) {
	for _, l := range limits {
		k := oracleKey(user, action, l)
		keys, entries = append(keys, k), append(entries, machine.Entry{State: o.states[k]})
	}
	return keys, entries
}

func oracleKey(user, action string, l core.Limit) string {
	if l.IsPerUser() {
		action = "*"
	}
	return fmt.Sprint(user, " ", action, " ", l.Identity())
}

func (o *oracle) save(keys []string, entries []machine.Entry) {
	for i, e := range entries {
		if e.Dirty {
			o.states[keys[i]] = e.State
			o.forget(keys[i])
		}
	}
}

// forget drops a state whose key has expired: Redis keeps it for the rest of the millisecond.
func (o *oracle) forget(key string) {
	if (o.states[key].Expires+999)/1000*1000 <= *o.now {
		delete(o.states, key)
	}
}

func (o *oracle) decide(c core.Charge) (core.Decision, *core.Record) {
	keys, entries := o.load(c.User, c.Action, c.Limits)
	var d core.Decision
	r := c.Commit(&d, entries, *o.now, c.Check(entries, *o.now))
	o.save(keys, entries)
	if r == nil { // for the readings
		r = &core.Record{Charge: c}
		for _, e := range entries {
			r.Readings = append(r.Readings, e.Reading)
		}
	}
	r.By = o
	return d, r
}

func (o *oracle) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r := o.decide(c)
	return d, r, nil
}

func (*oracle) Reset(context.Context, string, string, []core.Limit) error { return nil }

func (o *oracle) Amend(_ context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	keys, entries := o.load(r.User, r.Action, r.Limits)
	done = r.Amend(entries, *o.now, a)
	o.save(keys, entries)
	return done, nil
}

// limitsOf are limits of all kinds that share states under other numbers where they can.
func limitsOf(t testing.TB) (limits, bans []core.Limit) {
	second, sevenths := time.Second, core.Per(7, time.Second)
	limits = []core.Limit{
		core.SlidingWindow(3, second), core.SlidingWindow(5, second),
		core.SlidingWindow(3, second).CountRefused(), core.SlidingWindow(6, second).CountRefused(),
		core.MovingWindow(3, second), core.MovingWindow(40, second),
		core.FixedWindow(4, second), core.FixedWindow(11, second), core.FixedWindow(3, second).PerUser(),
		core.ElasticWindow(3, second), core.ElasticWindow(9, second),
		core.Funnel(5, sevenths), core.Throttle(2, core.Per(3, second)), core.Funnel(9, core.Per(1e9, second)),
		core.TokenBucket(5, sevenths), core.TokenBucket(4, core.Every(second)).PerUser(),
		core.TokenBucket(5, sevenths).Initial(2), core.TokenBucket(5, sevenths).Initial(2).ForgetAfter(1500 * time.Millisecond),
		core.TokenBucket(3, core.Every(300*time.Millisecond)).Initial(3),
		core.InFlight(1).Lease(second), core.InFlight(3).Lease(second), core.InFlight(6).Lease(second).PerUser(),
		core.CalendarWindow(3, core.Minute, nil), core.CalendarWindow(7, core.Minute, nil),
	}
	for _, l := range limits[:len(limits):len(limits)] {
		limits = append(limits, l.Shadow())
	}
	for _, p := range []core.BanPolicy{
		{Refusals: 2, Within: second, Bans: []time.Duration{300 * time.Millisecond, second}, ForgetAfter: 2 * second},
		{Refusals: 3, Within: 2 * second, Bans: []time.Duration{100 * time.Millisecond}, ForgetAfter: 3 * second},
		{Refusals: 1, Within: second, Bans: []time.Duration{50 * time.Millisecond}, PerUser: true},
	} {
		bans = append(bans, limitOf(t, p))
	}
	return allKinds(t, limits), bans
}

// drawCharge draws a charge of any shape that a store may be given, but for whose it is.
func drawCharge(t *rapid.T, limits, bans []core.Limit) core.Charge {
	c, terms := core.Charge{Cost: 1}, core.Terms{}
	if rapid.IntRange(0, 3).Draw(t, "dear") == 3 {
		c.Cost = rapid.Int64Range(1, 7).Draw(t, "cost")
	}
	terms.Mode = rapid.SampledFrom([]machine.Mode{machine.ModeCharge, machine.ModeCharge, machine.ModePatient, machine.ModePeek, machine.ModeForce, machine.ModeOwe}).Draw(t, "mode")
	ban := rapid.IntRange(-4, len(bans)).Draw(t, "ban")
	if ban == len(bans) { // by hand, or a look at it
		terms.Limits = bans[:1]
		if terms.Mode != machine.ModePeek {
			terms.Mode = machine.ModeCharge
			terms.Ban = rapid.Int64Range(1000, 2_000_000).Draw(t, "length")
		}
		c.Terms = &terms
		return c
	}
	states := map[string]bool{}
	for _, l := range rapid.SliceOfN(rapid.SampledFrom(limits), 1, rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "most")).Draw(t, "limits") {
		if len(terms.Limits) == 0 && l.IsShadow() || states[l.Identity()] {
			continue
		}
		states[l.Identity()] = true
		if n := len(terms.Limits); l.IsShadow() || n == 0 || !terms.Limits[n-1].IsShadow() {
			terms.Limits = append(terms.Limits, l)
		}
	}
	if len(terms.Limits) == 0 {
		terms.Limits, states = append(terms.Limits, limits[0]), map[string]bool{limits[0].Identity(): true}
	}
	if l := rapid.SampledFrom(limits).Draw(t, "shadow"); l.IsShadow() && !states[l.Identity()] {
		terms.Limits = append(terms.Limits, l)
	}
	if terms.Mode != machine.ModeForce && terms.Mode != machine.ModeOwe && ban >= 0 {
		terms.Limits = append(terms.Limits, bans[ban])
	}
	if terms.Receipt = rapid.IntRange(0, 2).Draw(t, "receipt") == 2; terms.Receipt && terms.Mode.NeedsRoom() {
		terms.Ahead = max(0, rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, "ahead"))
	}
	c.Terms = &terms
	return c
}

// kept is a decision as a limiter keeps it, if a store has answered so.
func kept(t testing.TB, d core.Decision, r *core.Record) core.Decision {
	t.Helper()
	d, err := core.Must(core.New(answered{d, r}, plenty)).Allow(t.Context(), user, action)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

type answered struct {
	d core.Decision
	r *core.Record
}

func (s answered) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return s.d, s.r, nil
}

func (answered) Reset(context.Context, string, string, []core.Limit) error { return nil }
