package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"
	"pgregory.net/rapid"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
)

// A luaServer runs the programs in this process. It has the commands that they use, and no network.
type luaServer struct {
	vm     *lua.LState
	patch  *strings.Replacer // of the programs
	loaded map[string]*lua.LFunction
	now    int64 // Unix microseconds
	values map[string]*luaValue
	store  *redisstore.Store // whose words and keys the programs get
}

// A luaValue is a string, or a sorted set if that is not nil.
type luaValue struct {
	text    []byte
	set     map[string]float64
	expires int64 // Unix milliseconds; 0 is never
}

func newLuaServer(t testing.TB, patch ...string) *luaServer {
	s := &luaServer{vm: lua.NewState(), patch: strings.NewReplacer(patch...), loaded: map[string]*lua.LFunction{}, now: epoch.UnixMicro(), values: map[string]*luaValue{}}
	t.Cleanup(s.vm.Close)
	call := s.vm.NewFunction(func(vm *lua.LState) int {
		words := make([]string, vm.GetTop())
		for i := range words {
			words[i] = string(vm.CheckString(i + 1))
		}
		vm.Push(s.value(s.command(words)))
		return 1
	})
	s.vm.SetGlobal("redis", s.vm.SetFuncs(s.vm.NewTable(), map[string]lua.LGFunction{"call": call.GFunction}))
	s.store = redisstore.New(connect(t, &redis.Options{Addr: closed}), nil)
	s.store.SetTime(func() time.Time { return time.UnixMicro(s.now) })
	return s
}

// value is a reply as Lua gets it.
func (s *luaServer) value(reply any) lua.LValue {
	switch reply := reply.(type) {
	case int:
		return lua.LNumber(reply)
	case string:
		return lua.LString(reply)
	case []string:
		list := s.vm.NewTable()
		for _, text := range reply {
			list.Append(lua.LString(text))
		}
		return list
	}
	return lua.LFalse
}

// run runs a program, and returns its reply as go-redis does.
func (s *luaServer) run(p redisstore.Program) ([]any, error) {
	f := s.loaded[p.Source]
	if f == nil {
		var err error
		if f, err = s.vm.LoadString(s.patch.Replace(p.Source)); err != nil {
			return nil, err
		}
		s.loaded[p.Source] = f
	}
	s.vm.SetGlobal("KEYS", s.value(p.Keys))
	s.vm.SetGlobal("ARGV", s.value(p.Args))
	if err := s.vm.CallByParam(lua.P{Fn: f, NRet: 1, Protect: true}); err != nil {
		return nil, err
	}
	defer s.vm.SetTop(0)
	list, ok := s.vm.Get(-1).(*lua.LTable)
	if !ok {
		return []any{golang(s.vm.Get(-1))}, nil
	}
	var reply []any
	list.ForEach(func(_, v lua.LValue) { reply = append(reply, golang(v)) })
	return reply, nil
}

func golang(v lua.LValue) any {
	if n, ok := v.(lua.LNumber); ok {
		return int64(n)
	}
	return v.String()
}

// advance moves the clock, and drops what has expired, as Redis does too if an expiry is in the past.
func (s *luaServer) advance(us int64) {
	s.now += us
	maps.DeleteFunc(s.values, func(_ string, v *luaValue) bool { return v.expires > 0 && v.expires <= s.now/1000 })
}

// command runs one command of Redis.
func (s *luaServer) command(words []string) any {
	name, key := words[0], ""
	if len(words) > 1 {
		key = words[1]
	}
	v, args := s.values[key], words[min(2, len(words)):]
	number := func(i int) int {
		n, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil {
			panic(err)
		}
		return int(n)
	}
	if v == nil {
		v = &luaValue{set: map[string]float64{}}
		if name == "SET" || name == "SETRANGE" || name == "ZADD" && args[0] != "XX" {
			s.values[key] = v
		}
	}
	defer s.advance(0)
	switch name {
	case "TIME":
		return []string{fmt.Sprint(s.now / 1e6), fmt.Sprint(s.now % 1e6)}
	case "GET":
		if s.values[key] == nil {
			return nil
		}
		return string(v.text)
	case "SET":
		v.text = []byte(args[0])
		if args[1] == "PXAT" {
			v.expires = int64(number(2))
		} else if args[1] != "KEEPTTL" {
			panic(words)
		}
	case "DEL":
		delete(s.values, key)
	case "STRLEN":
		return len(v.text)
	case "GETRANGE":
		from, to := number(0), min(number(1)+1, len(v.text))
		return string(v.text[min(from, to):to])
	case "SETRANGE":
		from := number(0)
		if grow := from + len(args[1]) - len(v.text); grow > 0 {
			v.text = append(v.text, make([]byte, grow)...)
		}
		copy(v.text[from:], args[1])
	case "PEXPIREAT":
		if v.expires = int64(number(0)); s.values[key] == nil {
			panic("the key is gone")
		}
	default:
		return s.sorted(words, key, v)
	}
	return "OK"
}

// sorted runs a command of a sorted set.
func (s *luaServer) sorted(words []string, key string, v *luaValue) any {
	members := slices.SortedFunc(maps.Keys(v.set), func(a, b string) int {
		return cmp.Or(cmp.Compare(v.set[a], v.set[b]), cmp.Compare(a, b))
	})
	bound := func(text string) (at float64, open bool) {
		text, open = strings.CutPrefix(text, "(")
		at, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		return at, open
	}
	within := func(low, high string) (found []string) {
		from, open := bound(low)
		to, _ := bound(high)
		for _, m := range members {
			if at := v.set[m]; (at > from || at == from && !open) && at <= to {
				found = append(found, m)
			}
		}
		return found
	}
	ranked := func(low, high string) []string {
		from, _ := bound(low)
		to, _ := bound(high)
		n := len(members)
		index := func(i float64) int {
			if i < 0 {
				return n + int(i)
			}
			return int(i)
		}
		first, end := max(0, index(from)), min(n, index(to)+1)
		return members[min(first, n):max(min(first, n), end)]
	}
	score := func(m string) string { return strconv.FormatFloat(v.set[m], 'f', -1, 64) }
	remove := func(gone []string) int {
		n := len(v.set)
		for _, m := range gone {
			delete(v.set, m)
		}
		if n -= len(v.set); len(v.set) == 0 {
			delete(s.values, key)
		}
		return n
	}
	switch words[0] {
	case "ZADD":
		pairs, change := words[2:], pairsOnly(words[2:])
		if change {
			pairs = pairs[1:]
		}
		for i := 0; i < len(pairs); i += 2 {
			if _, has := v.set[pairs[i+1]]; has || !change {
				v.set[pairs[i+1]], _ = bound(pairs[i])
			}
		}
		return "OK"
	case "ZREM":
		return remove(words[2:])
	case "ZSCORE":
		if _, has := v.set[words[2]]; !has {
			return nil
		}
		return score(words[2])
	case "ZCOUNT":
		return len(within(words[2], words[3]))
	case "ZREMRANGEBYSCORE":
		return remove(within(words[2], words[3]))
	case "ZREMRANGEBYRANK":
		return remove(ranked(words[2], words[3]))
	case "ZRANGE":
		if words[len(words)-1] == "BYSCORE" {
			return within(words[2], words[3])
		}
		reply := []string{}
		for _, m := range ranked(words[2], words[3]) {
			reply = append(reply, m, score(m)) // WITHSCORES
		}
		return reply
	}
	panic(words)
}

func pairsOnly(words []string) bool { return words[0] == "XX" }

// Take and Amend make the server a core.Amender.
func (s *luaServer) Take(_ context.Context, c core.Charge) (core.Decision, error) {
	reply, err := s.run(s.store.TakeProgram(c))
	if err != nil {
		return core.Decision{}, err
	}
	decisions, errs := redisstore.Decode([]core.Charge{c}, reply)
	decisions[0].Issue(s)
	return decisions[0], errs[0]
}

func (s *luaServer) Amend(_ context.Context, r *core.Receipt, a machine.Amendment) (done bool, err error) {
	reply, err := s.run(s.store.AmendProgram(r, a))
	if err != nil {
		return false, err
	}
	return reply[0] == int64(1), nil
}

// Each machine decides the same in Go and in Lua: all modes, shadow limits, bans, turns ahead, refunds, releases and
// renewals, whatever the clocks do. The readings of all limits are the same, and so are the expiries of the states.
func TestGoAndLuaDecideAlike(t *testing.T) {
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
			c := drawCharge(rt, limits, bans)
			c.User, c.Action = "alice", rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(rt, "action")
			var want, got []machine.Reading
			terms := c.Terms()
			terms.Readings = &want
			inGo := o.decide(c.With(terms))
			fmt.Fprintf(&log, "%s %s %v costs %d, %+v, a receipt: %t: %+v\n", c.User, c.Action, c.Limits(), c.Cost, c.Ask(), c.Receipt(), want)
			terms.Readings = &got
			c = c.With(terms)
			inLua, err := server.Take(t.Context(), c)
			if err != nil || bare(inLua) != bare(inGo) {
				rt.Fatalf("%sin Go  %+v\nin Lua %+v, %v", &log, bare(inGo), bare(inLua), err)
			}
			for i, l := range c.Limits() {
				if g, w := said(&l, c, got[i], inGo), said(&l, c, want[i], inGo); g != w {
					rt.Fatalf("%s%s in Go  %+v\nin Lua %+v", &log, l, w, g)
				}
				key := server.store.Key(c.User, c.Action, l)
				expires, v := int64(0), server.values[key]
				if v != nil {
					expires = v.expires
				}
				if want := (o.states[oracleKey(c.User, c.Action, l)].Expires + 999) / 1000; expires != want {
					rt.Fatalf("%s%s expires in Go at %d and in Lua at %d", &log, l, want, expires)
				}
			}
			if inGo.Allowed && c.Receipt() && c.Ask().Mode.Asks() && c.Ask().Ban == 0 {
				given = append(given, charged{c.Cost, inGo, inLua})
			}
			seen[string(inGo.Reason)]++
			if c.Ask().Ahead > 0 && inGo.Allowed {
				seen["ahead"]++
			}
		}
	})
	t.Log(seen)
	for _, what := range []string{"", "limited", "banned", "shadowed", "near", "ahead", "refund", "release", "renew", "in-flight"} {
		if seen[what] == 0 && !t.Failed() {
			t.Errorf("nothing was %q", what)
		}
	}
}

// said is a reading of a decision without what means nothing in its case.
func said(l *core.Limit, c core.Charge, v machine.Reading, d core.Decision) machine.Reading {
	if v.Fits || c.Cost > l.Rule().Max {
		v.Wait = 0
	}
	amendable := d.Allowed && v.Fits && c.Receipt() && c.Ask().Mode.Asks()
	switch r := l.Rule(); {
	case r.TakesSlots(), r.Parts > 0 && !amendable, r.Calendar != nil && c.Ask().Mode != machine.ModePeek:
		v.Detail = 0 // slots have random numbers on Redis
	}
	return v
}

// Processes have different time zone data, and so different boundaries. The script decides what the machine does,
// whoever asks.
func TestCalendarWindowsInGoAndLuaDecideAlike(t *testing.T) {
	server, state := newLuaServer(t), machine.State{}
	zones := []*time.Location{time.UTC, time.FixedZone("", 3600), time.FixedZone("", -7*3600)}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for unit, length := range map[string]int64{"minute": 60e6, "hour": 3600e6, "day": 86400e6, "week": 7 * 86400e6, "month": 28 * 86400e6} {
		for i := range 1000 {
			rule := machine.NewCalendarWindow(4+r.Int64N(2), machine.NewCalendar(unit, zones[r.IntN(len(zones))]))
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
			numbers := strings.Fields(strings.Trim(fmt.Sprint(rule.Args(nil, cost, 0, server.now+r.Int64N(length)-length/2)), "[]"))
			word := "c calendar " + strings.Join(numbers, ",")
			reply, err := server.run(redisstore.Program{Source: redisstore.Script, Keys: []string{unit}, Args: []string{word}})
			want := []any{2 * e.Count, e.Rest.Whole}
			if e.Fits {
				want[0] = 2*e.Count + 1
			}
			if err != nil || fmt.Sprint(reply) != fmt.Sprint(want) {
				t.Fatalf("step %d, at %s: %s: %v, %v; in Go %v", i, time.UnixMicro(server.now).UTC(), word, reply, err, want)
			}
			server.advance([]int64{-r.Int64N(2e6), e.Rest.Whole, max(0, e.Rest.Whole-1), r.Int64N(length / 4), r.Int64N(length / 4)}[r.IntN(5)])
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
