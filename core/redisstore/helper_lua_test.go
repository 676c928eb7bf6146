package redisstore_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"

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

// A luaValue is a string, or a sorted set if that is not nil, or something else.
type luaValue struct {
	foreign bool
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
			words[i] = vm.CheckString(i + 1)
		}
		if v := s.values[words[min(1, len(words)-1)]]; v != nil && v.foreign {
			vm.RaiseError("WRONGTYPE Operation against a key holding the wrong kind of value")
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

// decide decides charges in one run.
func (s *luaServer) decide(charges ...core.Charge) ([]core.Decision, []*core.Record, []error) {
	reply, err := s.run(s.store.TakeProgram(charges...))
	if err != nil {
		return nil, nil, slices.Repeat([]error{err}, len(charges))
	}
	decisions, records, errs := redisstore.Decode(charges, reply)
	for _, r := range records {
		if r != nil {
			r.By = s
		}
	}
	return decisions, records, errs
}

// Take, Amend and Reset make the server a core.Amender.
func (s *luaServer) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	decisions, records, errs := s.decide(c)
	return decisions[0], records[0], errs[0]
}

func (*luaServer) Reset(context.Context, string, string, []core.Limit) error { return nil }

func (s *luaServer) Amend(_ context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	reply, err := s.run(s.store.AmendProgram(r, a))
	if err != nil {
		return false, err
	}
	return reply[0] == int64(1), nil
}
