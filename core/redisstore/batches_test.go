package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
	"pgregory.net/rapid"
)

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

func (o *oracle) decide(c core.Charge) (d core.Decision) {
	keys, entries := o.load(c.User, c.Action, c.Limits())
	d = c.Commit(entries, *o.now, c.Check(entries, *o.now))
	o.save(keys, entries)
	d.Issue(o)
	return d
}

func (o *oracle) Take(_ context.Context, c core.Charge) (core.Decision, error) {
	return o.decide(c), nil
}

func (o *oracle) Amend(_ context.Context, r *core.Receipt, a machine.Amendment) (done bool, err error) {
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
		return c.With(terms)
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
	if terms.Receipt = rapid.IntRange(0, 2).Draw(t, "receipt") == 2; terms.Receipt && terms.Mode.Asks() {
		terms.Ahead = max(0, rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, "ahead"))
	}
	return c.With(terms)
}

// The script decides batches of any shape as the Go machines do charge by charge: equal
// charges in a row and others, shadow limits, bans, turns ahead and refunds in between.
// An error concerns its own charge only. Both servers then hold the same bytes.
func TestBatchesDecideAsTheMachines(t *testing.T) {
	redistest.Need(t, true)
	worlds := []*world{miniWorld(t, 3), realWorld(t, 3)}
	limits, bans := limitsOf(t)
	giver := core.Must(core.New(worlds[0].store, plenty)) // any limiter gives back
	run, seen, corrupt := 0, map[string]int{}, "corrupt"
	rapid.Check(t, func(rt *rapid.T) {
		run++
		o := &oracle{now: &worlds[1].now, states: map[string]machine.State{}}
		for _, w := range worlds {
			w.rdb.FlushAll(t.Context())
		}
		type charged struct {
			cost int64
			by   [3]core.Decision // the machines, and each server
		}
		var given []charged
		var log strings.Builder
		for range rapid.IntRange(1, 12).Draw(rt, "batches") {
			d := time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 999, 50_000, 142_858, 333_334, 999_999, 1_000_000, 2_500_000, 54_321_099, 60_000_000, -1, -30_000, -700_000}).Draw(rt, "move")) * time.Microsecond
			for _, w := range worlds {
				w.advance(d)
				w.dump(t) // what is past its end is gone
			}
			for k := range o.states {
				o.forget(k)
			}
			if n := len(given); n > 0 && rapid.Bool().Draw(rt, "refund") {
				g := given[rapid.IntRange(0, n-1).Draw(rt, "which")]
				units := int(rapid.Int64Range(1, g.cost).Draw(rt, "units"))
				for _, d := range g.by {
					if err := giver.RefundN(t.Context(), d, units); err != nil {
						rt.Fatal(err)
					}
				}
				fmt.Fprintf(&log, "give back %d of %d\n", units, g.cost)
				seen["refund"]++
			}
			if n := len(given); n > 0 && rapid.Bool().Draw(rt, "slots") {
				g, do, what := given[rapid.IntRange(0, n-1).Draw(rt, "which")], giver.Renew, "renew"
				if rapid.Bool().Draw(rt, "release") {
					do, what = giver.Release, "release"
				}
				var errs [3]error
				for i, d := range g.by {
					errs[i] = do(t.Context(), d)
				}
				fmt.Fprintf(&log, "%s the last %d: %v\n", what, n, errs)
				if errs[1] != errs[0] || errs[2] != errs[0] || errs[0] != nil && errs[0] != core.ErrLeaseEnded {
					rt.Fatal(log.String())
				}
				seen[what]++
			}
			fmt.Fprintf(&log, "%+d us\n", d.Microseconds())
			var charges []core.Charge
			shapes := make([]core.Charge, rapid.IntRange(1, 3).Draw(rt, "shapes"))
			for i := range shapes {
				shapes[i] = drawCharge(rt, limits, bans)
			}
			for range rapid.IntRange(1, 8).Draw(rt, "charges") {
				c := shapes[rapid.IntRange(0, len(shapes)-1).Draw(rt, "shape")]
				c.User = fmt.Sprint("user ", run, rapid.IntRange(0, 1).Draw(rt, "user"))
				c.Action = rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "action")
				if rapid.IntRange(0, 15).Draw(rt, "corrupt") == 15 { // a key of it is no state
					c.User = corrupt
					l := c.Limits()[rapid.IntRange(0, len(c.Limits())-1).Draw(rt, "key")]
					for _, w := range worlds {
						w.rdb.Del(t.Context(), w.store.Key(c.User, c.Action, l))
						w.rdb.HSet(t.Context(), w.store.Key(c.User, c.Action, l), "a", 1)
					}
				}
				for range rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(rt, "times") {
					charges = append(charges, c)
				}
			}
			got := make([]charged, len(charges))
			for i, c := range charges {
				if c.User == corrupt {
					continue
				}
				got[i].by[0] = o.decide(c)
				got[i].cost = c.Cost
				fmt.Fprintf(&log, "%s %s %v %+v, a receipt: %t: %+v\n", c.User, c.Action, c.Limits(), c.Ask(), c.Receipt(), bare(got[i].by[0]))
			}
			var dumps [2]string
			for i, w := range worlds {
				reply, err := w.store.Run(charges...)
				if err != nil {
					rt.Fatal(err)
				}
				decisions, errs := redisstore.Decode(charges, reply)
				for j := range charges {
					if charges[j].User == corrupt {
						if errs[j] == nil || !strings.Contains(errs[j].Error(), "WRONGTYPE") {
							rt.Fatalf("%s%s says of charge %d of the last %d, of a corrupt key: %v", &log, w.name, j+1, len(charges), errs[j])
						}
						seen["corrupt"]++
						continue
					}
					decisions[j].Issue(w.store)
					got[j].by[1+i] = decisions[j]
					if want := bare(got[j].by[0]); errs[j] != nil || bare(decisions[j]) != want {
						rt.Fatalf("%s%s says of charge %d of the last %d: %+v, %v", &log, w.name, j+1, len(charges), bare(decisions[j]), errs[j])
					}
				}
				dumps[i] = w.dump(t)
			}
			if dumps[0] != dumps[1] {
				rt.Fatalf("%sminiredis\n%s\nredis\n%s", &log, dumps[0], dumps[1])
			}
			for _, w := range worlds {
				for _, k := range w.rdb.Keys(t.Context(), "*"+corrupt+"*").Val() {
					w.rdb.Del(t.Context(), k)
				}
			}
			for i, c := range charges {
				if c.User == corrupt {
					continue
				}
				if d := got[i].by[0]; d.Allowed && c.Receipt() && c.Ask().Mode.Asks() && c.Ask().Ban == 0 {
					given = append(given, got[i])
				}
				seen[string(got[i].by[0].Reason)]++
				if c.Ask().Ahead > 0 && got[i].by[0].Allowed {
					seen["ahead"]++
				}
			}
		}
	})
	t.Logf("%d runs: %v", run, seen)
	for _, what := range []string{"", "limited", "banned", "shadowed", "near", "ahead", "refund", "release", "renew", "in-flight", "corrupt"} {
		if seen[what] == 0 && !t.Failed() {
			t.Errorf("nothing was %q", what)
		}
	}
}

// limitOf is a ban policy as a store is given it.
func limitOf(t testing.TB, l core.BanPolicy) core.Limit {
	t.Helper()
	var seen asked
	if _, err := core.Must(core.Must(core.New(&seen, plenty)).With(l)).Status(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	return seen.charge.Limits()[1]
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
		c := core.Charge{User: user, Action: action, Cost: 1}.With(core.Terms{Limits: []core.Limit{core.Funnel(5, rate)}})
		peek := c.With(core.Terms{Limits: c.Limits(), Ask: machine.Ask{Mode: machine.ModePeek}})
		values, err := s.Run(c, c, c, peek)
		if err != nil || len(values) < 4 {
			t.Fatal(values, err)
		}
		for _, v := range values[:3] {
			if text, _ := v.(string); !strings.HasPrefix(text, "!OOM") {
				t.Errorf("%v", v)
			}
		}
		whole, err := s.Run(peek)
		if err != nil || !slices.Equal(values[3:], whole) {
			t.Errorf("a peek after them: %v, and alone %v, %v", values[3:], whole, err)
		}
	}
}

// Who queues behind others does not wait for their answers from far away.
func TestManyCallsOverASlowNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const away = 30 * time.Millisecond
		answer := errors.New("an answer")
		rdb, hangUp := mute()
		defer hangUp()
		rdb.AddHook(before(func(redis.Cmder) error { time.Sleep(away); return answer }))
		for _, n := range []int{1, 3, 8, 2000} {
			lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
			begun := time.Now()
			together(n, func(i int) {
				if _, err := lim.Allow(t.Context(), fmt.Sprint(user, i), action); !errors.Is(err, answer) {
					t.Errorf("%d of %d: %v", i, n, err)
				}
			})
			if took := time.Since(begun); took > away*3/2 {
				t.Errorf("%d at once took %s", n, took)
			}
		}
	})
}

// So many calls wait that there is no room for another. Those who leave make room at once.
func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rdb, hangUp := mute()
		store := redisstore.New(rdb, &redisstore.Options{Timeout: time.Second})
		lim := core.Must(core.New(store, plenty))
		ctx, leave := context.WithCancel(t.Context())
		for range 8192 {
			go func() {
				if _, err := lim.Allow(ctx, user, action); err != context.Canceled {
					t.Errorf("%v, not the caller's own", err)
				}
			}()
		}
		synctest.Wait()
		if n, _ := store.Calls(); n != 8192 {
			t.Errorf("%d wait", n)
		}
		for range 100 {
			d, err := lim.Allow(t.Context(), user, action)
			if !errors.Is(err, redisstore.ErrBusy) || d != (core.Decision{}) {
				t.Fatalf("%+v, %v; not ErrBusy", d, err)
			}
			discreet(t, err)
		}
		leave()
		synctest.Wait()
		if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) {
			t.Errorf("%v", err)
		}
		time.Sleep(10 * time.Second)
		hangUp()
	})
}

// A run of the script is bounded by its work: dear charges do not pile up in one, as
// cheap ones do.
func TestCostlyChargesDoNotPileUp(t *testing.T) {
	server, proxy := proxied(t)
	store := reliable(t, proxy.Addr)
	lim := core.Must(core.New(store, core.SlidingWindow(10_000, time.Hour)))
	fullest := func(cost int) (most int) {
		proxy.Commands()
		together(60, func(i int) {
			if _, err := lim.AllowN(t.Context(), fmt.Sprint("user", i), fmt.Sprint(cost), cost); err != nil {
				t.Error(err)
			}
		})
		for _, c := range proxy.Commands() {
			if c[0] == "fcall" {
				n, _ := strconv.Atoi(c[2])
				most = max(most, n)
			}
		}
		server.Do("FLUSHALL")
		return most
	}
	within(t, "cheap charges go together", func() bool { return fullest(1) > 10 })
	if n := fullest(5000); n != 1 {
		t.Errorf("%d charges of 5,000 units each were in one run", n)
	}
}

// shared is how many charges, of so many limits each, were in the fullest run of the
// script that had key in it.
func shared(commands [][]string, key string, limits int) (most int) {
	for _, c := range commands {
		if slices.Contains(c, key) {
			n := 0
			_, _ = fmt.Sscan(c[2], &n)
			n /= limits
			last := c[len(c)-1]
			if takes(c) {
				last = c[len(c)-2]
			}
			for _, repeats := range strings.Split(last, "*")[1:] {
				_, times, _ := strings.Cut(repeats, ":")
				again, _ := strconv.Atoi(times)
				n += again
			}
			most = max(most, n)
		}
	}
	return most
}

// A user who is many times in one run is decided each time after the last.
func TestSameUserManyTimesInARun(t *testing.T) {
	noLeak(t)
	_, proxy := proxied(t)
	store := reliable(t, proxy.Addr)
	sets := [][]core.Limit{kinds}
	for _, l := range kinds {
		sets = append(sets, []core.Limit{l})
	}
	for s, set := range sets {
		lim := core.Must(core.New(store, set...))
		round := 0
		within(t, "he is many times in a run", func() bool {
			round++
			who := fmt.Sprint(user, s, " ", round)
			proxy.Commands()
			var mu sync.Mutex
			var left []int
			together(64, func(int) {
				d, err := lim.Allow(t.Context(), who, action)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					mu.Lock()
					defer mu.Unlock()
					left = append(left, d.Remaining)
				}
			})
			slices.Sort(left)
			if !slices.Equal(left, []int{0, 1, 2, 3, 4}) {
				t.Errorf("%v: those who passed have %v left", set, left)
			}
			return t.Failed() || shared(proxy.Commands(), store.Key(who, action, set[0]), len(set)) > 5
		})
	}
}
