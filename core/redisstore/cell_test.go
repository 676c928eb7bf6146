//go:build !race

package redisstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

type vector struct {
	Seq   string
	T     int64 `json:"t_ns"`
	Args  []int64
	Reply json.RawMessage
}

func vectors(t testing.TB) []vector {
	text, err := os.ReadFile("../storetest/testdata/throttle.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Rows) != 803 {
		t.Fatalf("%d rows", len(file.Rows))
	}
	return file.Rows
}

// The store passes on what the module recorded.
func TestCellStoreVectors(t *testing.T) {
	m := startModule(t)
	store := redisstore.NewCellStore(connect(t, &redis.Options{Addr: m.Addr()}), &redisstore.Options{Timeout: patient})
	const start = 1_767_000_000_000_000_000
	compared, seq := 0, map[string]bool{} // sequences that a limiter cannot play to here
	for i, v := range vectors(t) {
		m.set(start + v.T)
		quantity := int64(1)
		if len(v.Args) == 4 {
			quantity = v.Args[3]
		}
		var want [5]int64
		lim, err := core.New(store, core.Throttle(int(v.Args[0]), core.Per(int(v.Args[1]), time.Duration(v.Args[2])*time.Second)))
		if seq[v.Seq] || err != nil || quantity < 0 || v.Args[0]+1 < quantity && quantity > 1<<40 || json.Unmarshal(v.Reply, &want) != nil {
			seq[v.Seq] = true
			continue
		}
		d, err := lim.AllowN(t.Context(), v.Seq, action, int(quantity))
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		if want[0] == 1 && want[3] == 0 {
			want[3] = 1 // less than a millisecond: a wait all the same
		}
		want[2] = min(want[2], want[1])
		if quantity == 0 { // asks nothing that could be refused
			want[0], want[3] = 0, -1
		}
		if quantity > want[1] { // a peek of ours, in which the module counts the debt alike
			want[0], want[3] = 1, -1
		}
		if d.Cell() != want {
			t.Errorf("row %d, %s %v at %d: %v, want %v", i, v.Seq, v.Args, v.T, d.Cell(), want)
		}
		if d.Source != core.SourceStore {
			t.Errorf("row %d: from %s", i, d.Source)
		}
		compared++
	}
	if compared < 750 {
		t.Errorf("%d rows were compared", compared)
	}
}

// Where the module is exact, which it is in whole milliseconds, its answers are those
// of the scripts to the second.
func TestCellStoreAgreesWithScripts(t *testing.T) {
	for _, l := range []core.Limit{
		core.Throttle(15, core.Per(30, time.Minute)), core.Funnel(15, core.Per(30, time.Minute)), core.Throttle(0, core.Every(time.Second)),
		core.Funnel(3, core.Per(1000, time.Second)), core.Throttle(4, core.Per(8, time.Second)), core.Funnel(100, core.Per(5, 3*time.Second)),
	} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			m := startModule(t)
			rdb := connect(t, &redis.Options{Addr: m.Addr()})
			m.set(epoch.UnixNano() / 1e6 * 1e6)
			cell := core.Must(core.New(redisstore.NewCellStore(rdb, &redisstore.Options{Timeout: patient}), l))
			script := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: patient}).AlwaysAsk(), l))
			n, d := l.Rate()
			emission := int64(d) / int64(n)
			r := rand.New(rand.NewPCG(1, 2))
			refused := 0
			for range 150 {
				if r.IntN(2) == 0 {
					m.set(m.now + r.Int64N(3*emission/1e6+1)*1e6)
				}
				a, err1 := cell.Peek(t.Context(), user, action)
				b, err2 := script.Peek(t.Context(), user, action)
				late := a.RetryAfter - b.RetryAfter
				if err1 != nil || err2 != nil || a.Allowed != b.Allowed || a.Remaining != b.Remaining || late < 0 || late >= 2*time.Second {
					t.Fatalf("Peek: %+v, %v\nscripts %+v, %v", a, err1, b, err2)
				}
				if b.RetryAfter%time.Second == 0 && b.ResetAfter%time.Second == 0 && a.RetryAfter != b.RetryAfter {
					t.Fatalf("Peek: %+v\nscripts %+v", a, b)
				}
				cost := 1 + r.IntN(3)*r.IntN(2)
				if r.IntN(20) == 0 {
					cost = l.Quota() + r.IntN(3)
				}
				if r.IntN(20) == 0 {
					cost = 0
				}
				a, err1 = cell.AllowN(t.Context(), user, action, cost)
				b, err2 = script.AllowN(t.Context(), user, action, cost)
				want := b.Cell()
				if err1 != nil || err2 != nil || a.Cell() != want || a.Allowed != b.Allowed || (a.RetryAfter == core.Never) != (b.RetryAfter == core.Never) || a.Reason != b.Reason || a.Limit != b.Limit {
					t.Fatalf("AllowN(%d): %+v, %v\nscripts %+v, %v", cost, a, err1, b, err2)
				}
				if !a.Allowed {
					refused++
				}
				if r.IntN(40) == 0 {
					if err := errors.Join(cell.Reset(t.Context(), user, action), script.Reset(t.Context(), user, action)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

func TestCellStoreKeys(t *testing.T) {
	m := startModule(t)
	rdb := connect(t, &redis.Options{Addr: m.Addr()})
	cell := redisstore.NewCellStore(rdb, &redisstore.Options{Timeout: patient})
	script := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	for _, s := range []core.Store{cell, script} {
		d, err := core.Must(core.New(s, core.Funnel(5, core.Every(time.Minute)))).Allow(t.Context(), "\xff老 {", "like")
		if err != nil || d.Remaining != 4 { // apart
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if got := keysOf(t, rdb); got != "tailcut:{%FF老%20%7B}:like:cell:5:1/1m tailcut:{%FF老%20%7B}:like:funnel:5:1/1m" {
		t.Error(got)
	}
	l := core.Throttle(4, core.Every(time.Minute)).Named("tier")
	if got := cell.Key("u", "a", l); got != "tailcut:{u}:a:cell:5:1/1m:tier" {
		t.Error(got)
	}
	// A direct Peek of any cost does not overflow.
	wide := core.Funnel(1_000_000, core.Per(1_000_000, 365*24*time.Hour))
	if _, err := core.Must(core.New(cell, wide)).AllowN(t.Context(), "u", "wide", 1_000_000); err != nil {
		t.Fatal(err)
	}
	d, _, err := cell.Take(t.Context(), core.Charge{User: "u", Action: "wide", Cost: 900_000, Terms: &core.Terms{Limits: []core.Limit{wide}, Ask: machine.Ask{Mode: machine.ModePeek}}})
	hi, lo := bits.Mul64(900_000, uint64(365*24*time.Hour))
	want, _ := bits.Div64(hi, lo, 1_000_000)
	if err != nil || d.Allowed || (d.RetryAfter-time.Duration(want)).Abs() > 2*time.Second {
		t.Errorf("%+v, %v; want %s", d, err, time.Duration(want))
	}
}

// To the module a cost that overflows is a refund.
func TestCellStoreRefusesAnyCostAboveTheQuota(t *testing.T) {
	m := startModule(t)
	store := redisstore.NewCellStore(connect(t, &redis.Options{Addr: m.Addr()}), &redisstore.Options{Timeout: patient})
	widest := core.Funnel(1, core.Every(365*24*time.Hour))
	for _, l := range []core.Limit{core.Funnel(5, core.Every(time.Minute)), widest} {
		lim := core.Must(core.New(store, l))
		if _, err := lim.AllowN(t.Context(), user, action, l.Quota()); err != nil {
			t.Fatal(err)
		}
		wraps := int64(math.MaxUint64 / uint64(l.Period()/time.Duration(l.Quota())))
		for _, cost := range []int64{int64(l.Quota()) + 1, wraps, math.MaxInt64} {
			d, _, err := store.Take(t.Context(), core.Charge{User: user, Action: action, Cost: cost, Terms: &core.Terms{Limits: []core.Limit{l}}})
			if err != nil || d.Allowed || d.RetryAfter != core.Never || d.Remaining != 0 {
				t.Errorf("%s, cost %d: %+v, %v", l, cost, d, err)
			}
		}
	}
}

// core.New says what a CellStore cannot serve, also through decorators, and core.All that it decides about one user.
func TestCellStoreAccepts(t *testing.T) {
	rdb := connect(t, &redis.Options{Addr: closed})
	store := redisstore.NewCellStore(rdb, nil)
	plain := redisstore.New(rdb, nil)
	lim := core.Must(core.New(store, core.Funnel(5, core.Every(time.Second))))
	if _, err := core.All(t.Context(), lim.For("alice", "post"), lim.For("bob", "post")); !errors.Is(err, core.ErrConfig) {
		t.Errorf("core.All: %v", err)
	}
	memory := memorystore.New(nil)
	see := func(context.Context, core.Observation) {}
	for _, s := range []core.Store{
		store, core.Fallback(store, memory), core.Fallback(memory, store), core.FailOpen(store), core.Shadow(store), core.Observe(store, see),
		core.Observe(core.FailOpen(core.Fallback(core.Shadow(store), memory)), see),
	} {
		for _, tc := range []struct {
			limits []core.Limit
			want   string
		}{
			{[]core.Limit{core.Funnel(5, core.Every(time.Second)), core.Throttle(5, core.Every(time.Second)).Named("b")}, "2"},
			{[]core.Limit{core.SlidingWindow(5, time.Minute)}, "SlidingWindow(5, 1m)"},
			{[]core.Limit{core.TokenBucket(5, core.Every(time.Minute))}, "TokenBucket"},
			{[]core.Limit{core.Funnel(5, core.Every(time.Millisecond))}, "1ms"},
			{[]core.Limit{core.Funnel(5, core.Every(1500*time.Millisecond))}, "1.5s"},
			{[]core.Limit{core.Throttle(5, core.Per(1001, time.Second))}, "1,000"},
		} {
			_, err := core.New(s, tc.limits...)
			if !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "CellStore") {
				t.Errorf("%T, %v: %v", s, tc.limits, err)
			}
		}
		if _, err := core.New(s, core.Throttle(5, core.Per(60_000, time.Minute))); err != nil {
			t.Error(err)
		}
	}
	if _, err := core.New(plain, kinds...); err != nil {
		t.Error(err)
	}
}

func TestCellStoreIsNotThere(t *testing.T) {
	l := core.Funnel(5, core.Every(time.Second))
	real, mini := redistest.Start(t), miniredis.RunT(t)
	for _, addr := range []string{real.Addr, mini.Addr()} {
		store := redisstore.NewCellStore(connect(t, &redis.Options{Addr: addr}), &redisstore.Options{Timeout: patient})
		refusedBy(t, store, "ERR unknown command", l)
		_, err := core.Must(core.New(store, l)).Peek(t.Context(), user, action)
		discreet(t, err)
		if !strings.Contains(strings.ToLower(err.Error()), "cl.throttle") {
			t.Errorf("%v does not say what is missing", err)
		}
	}
}

// Replies that are not the module's are no verdict, nor is the command sent twice.
func TestCellStoreCorruptReplies(t *testing.T) {
	t.Parallel()
	m := startModule(t)
	proxy := redistest.StartProxy(t, m.Addr())
	l := core.Throttle(4, core.Every(time.Hour))
	for i, f := range append(faults[:len(faults):len(faults)], []spoiling{
		{"four integers", say("*4\r\n:0\r\n:5\r\n:4\r\n:-1\r\n"), redisstore.ErrReply},
		{"no verdict", say("*5\r\n:2\r\n:5\r\n:4\r\n:-1\r\n:1\r\n"), redisstore.ErrReply},
		{"a negative rest", say("*5\r\n:0\r\n:5\r\n:-4\r\n:-1\r\n:1\r\n"), redisstore.ErrReply},
		{"a negative reset", say("*5\r\n:0\r\n:5\r\n:4\r\n:-1\r\n:-1\r\n"), redisstore.ErrReply},
		{"a negative retry", say("*5\r\n:1\r\n:5\r\n:0\r\n:-2\r\n:1\r\n"), redisstore.ErrReply},
		{"a huge retry", say("*5\r\n:1\r\n:5\r\n:0\r\n:9223372036854775807\r\n:1\r\n"), redisstore.ErrReply},
		{"a huge reset", say("*5\r\n:0\r\n:5\r\n:0\r\n:-1\r\n:9223372036854775807\r\n"), redisstore.ErrReply},
	}...) {
		t.Run(f.name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr})
			defer rdb.Close()
			store := redisstore.NewCellStore(rdb, &redisstore.Options{Timeout: f.timeout()})
			who := fmt.Sprint(user, i)
			if sent := f.spoil(t, proxy, store, core.Must(core.New(store, l)), who); sent != "cl.throttle" {
				t.Errorf("the client sent %s", sent)
			}
			tat, ok := m.tat(store.Key(who, action, l))
			if !ok || tat-m.now != int64(time.Hour) {
				t.Errorf("%s are charged, not one hour", time.Duration(tat-m.now))
			}
		})
	}
}

// What CL.THROTTLE cannot do says nothing of the server: it stays the one that decides.
func TestCellStoreWithoutSurchargeIsNotAnOutage(t *testing.T) {
	m := startModule(t)
	store := redisstore.NewCellStore(connect(t, &redis.Options{Addr: m.Addr()}), &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), core.Funnel(5, hourly)))
	for range 5 {
		if d, err := lim.Surcharge(t.Context(), user, action, 1); err != nil || d.Source != core.SourceFallback {
			t.Errorf("Surcharge: %+v, %v", d, err)
		}
	}
	if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Source != core.SourceStore {
		t.Errorf("Allow: %+v, %v", d, err)
	}
}
