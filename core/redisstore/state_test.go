package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A world is a server with its clock in the test's hands.
type world struct {
	name   string
	rdb    *redis.Client
	store  *redisstore.Store
	move   func(time.Duration)
	expiry func(key string) int64 // in Unix milliseconds; -1 if there is none
	now    int64                  // Unix microseconds
}

func (w *world) advance(d time.Duration) {
	w.move(d)
	w.now += d.Microseconds()
}

func miniWorld(t testing.TB, protocol int) *world {
	m := newMini(t)
	now := epoch
	m.ClockTTL(true)
	m.SetTime(now)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	rdb := connect(t, &redis.Options{Addr: m.Addr(), Protocol: protocol})
	store, move := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), func() time.Time { return now }, func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
		for _, k := range m.Keys() { // see mini
			if ttl := m.TTL(k); d < 0 && ttl > 0 {
				m.SetTTL(k, ttl-d)
			}
		}
	})
	return &world{
		name: "miniredis", rdb: rdb, now: now.UnixMicro(), move: move, store: store,
		expiry: func(key string) int64 {
			ttl := m.TTL(key)
			if ttl == 0 {
				return -1
			}
			at := now.Add(ttl)
			if at.UnixNano()%1e6 != 0 {
				t.Errorf("%s expires at %s", key, at)
			}
			return at.UnixMilli()
		},
	}
}

func realWorld(t testing.TB, protocol int) *world {
	server, clock := redistest.StartAt(t, epoch)
	rdb := connect(t, &redis.Options{Addr: server.Addr, Protocol: protocol})
	store, move := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), clock.Now, clock.Advance)
	return &world{
		name: "redis", rdb: rdb, now: epoch.UnixMicro(), move: move, store: store,
		expiry: func(key string) int64 {
			at, err := rdb.Do(context.Background(), "pexpiretime", key).Int64()
			if err != nil {
				t.Error(err)
			}
			return at
		},
	}
}

// worlds are both servers, with both protocols; with -short only RESP3.
func worlds(t *testing.T, test func(t *testing.T, w *world)) {
	protocols := []int{3, 2}
	if testing.Short() {
		protocols = protocols[:1]
	}
	for _, protocol := range protocols {
		t.Run(fmt.Sprint("miniredis, RESP", protocol), func(t *testing.T) { test(t, miniWorld(t, protocol)) })
		t.Run(fmt.Sprint("redis, RESP", protocol), func(t *testing.T) { test(t, realWorld(t, protocol)) })
	}
}

// dump is all that a server holds: keys, types, values and expiries.
func (w *world) dump(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	// Unlike KEYS, SCAN has what is past its end be gone for good, also if the clock
	// steps back.
	keys, _, err := w.rdb.Scan(ctx, 0, "*", 10_000).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		at := w.expiry(k)
		if at > 0 && at*1000 <= w.now { // Redis keeps it for the rest of the millisecond
			w.rdb.Del(ctx, k)
			continue
		}
		fmt.Fprintf(&b, "%s %s %d\n", k, w.value(t, k), at)
	}
	return b.String()
}

func (w *world) value(t testing.TB, key string) string {
	t.Helper()
	ctx := context.Background()
	kind, err := w.rdb.Type(ctx, key).Result()
	var value any
	switch kind {
	case "string":
		value, err = w.rdb.Get(ctx, key).Result()
		value = fmt.Sprintf("%q", value)
	case "zset":
		var z []redis.Z
		z, err = w.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		parts := []string{}
		for _, e := range z {
			parts = append(parts, fmt.Sprintf("%v@%.6f", e.Member, e.Score))
		}
		value = parts
	case "list":
		value, err = w.rdb.LRange(ctx, key, 0, -1).Result()
	case "hash":
		value, err = w.rdb.HGetAll(ctx, key).Result()
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(kind, " ", value)
}

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

// bare is a decision without its receipt.
func bare(d core.Decision) core.Decision {
	return core.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter,
		Binding: d.Binding, Reason: d.Reason, Source: d.Source, Shadow: d.Shadow, BanLevel: d.BanLevel, Subject: d.Subject,
	}
}

// A random history of all kinds leaves both servers with the same bytes, and every
// key at every time with an expiry: not before the state is whole, and if it was just
// charged within a millisecond of it.
func TestSameBytesAndExpiry(t *testing.T) {
	redistest.Need(t, true)
	const steps = 180
	done := map[string]int{}
	policy := core.BanPolicy{Refusals: 3, Within: time.Second, Bans: []time.Duration{100 * time.Millisecond, 700 * time.Millisecond}, ForgetAfter: 900 * time.Millisecond}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			mini, real := miniWorld(t, 3), realWorld(t, 3)
			both := []*world{mini, real}
			r := rand.New(rand.NewPCG(seed, 7))
			limits := []core.Limit{
				core.SlidingWindow(3, time.Second), core.SlidingWindow(2, time.Second),
				core.SlidingWindow(3, time.Second).CountRefused(), core.SlidingWindow(5, time.Second).CountRefused(),
				core.MovingWindow(4, time.Second), core.MovingWindow(40, time.Second),
				core.FixedWindow(4, time.Second), core.FixedWindow(7, time.Second),
				core.ElasticWindow(3, time.Second),
				core.TokenBucket(5, core.Per(7, time.Second)), core.TokenBucket(5, core.Per(11, time.Second)).Named("i").Initial(2).ForgetAfter(1500 * time.Millisecond),
				core.Funnel(3, core.Per(3, time.Second)), core.Funnel(9, core.Per(1e9, time.Second)), core.Throttle(4, core.Per(7, time.Second)),
				core.FixedWindow(2, time.Second).Shadow(), core.SlidingWindow(2, time.Second).CountRefused().Shadow(), core.Funnel(2, core.Per(3, time.Second)).Shadow(),
			}
			var charged [2][]core.Decision // what can be given back
			for step := range steps {
				if r.IntN(2) == 0 {
					d := time.Duration(r.IntN(400_000)) * time.Microsecond
					if r.IntN(6) == 0 {
						d = -d
					}
					for _, w := range both {
						w.advance(d)
						w.dump(t) // what is past its end is gone from both
					}
				}
				set := slices.Clone(limits)
				r.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
				set = set[:1+r.IntN(3)]
				punish, what := r.IntN(2) == 0, []string{"allow", "allow", "allow", "allow", "peek", "surcharge", "ahead", "refund", "refund", "settle"}[r.IntN(10)]
				user, cost, which := fmt.Sprint("user ", r.IntN(2)), 1+r.IntN(4)*r.IntN(2), r.IntN(1000)
				if _, err := core.New(real.store, set...); err != nil {
					continue // two of one state, or only shadow ones
				}
				var d [2]core.Decision
				var befores, dumps [2]string
				for i, w := range both {
					befores[i] = w.dump(t)
					lim := core.Must(core.Must(core.New(&eager{w.store, what == "ahead"}, set...)).With(core.Refundable{}))
					if punish {
						lim = core.Must(lim.With(policy))
					}
					var err error
					switch what {
					case "peek":
						d[i], err = lim.Peek(t.Context(), user, action)
					case "surcharge":
						d[i], err = lim.Surcharge(t.Context(), user, action, cost)
					case "refund":
						if n := len(charged[i]); n > 0 {
							d[i] = charged[i][which%n]
							err = lim.RefundN(t.Context(), d[i], 1)
						}
					case "settle":
						if n := len(charged[i]); n > 0 {
							d[i] = charged[i][which%n]
							err = lim.Settle(t.Context(), d[i], which%12)
						}
					default:
						if d[i], err = lim.AllowN(t.Context(), user, action, cost); d[i].Allowed {
							charged[i] = append(charged[i], d[i])
						}
					}
					if err != nil {
						t.Fatal(err)
					}
					dumps[i] = w.dump(t)
				}
				if d[0], d[1] = bare(d[0]), bare(d[1]); d[0] != d[1] || dumps[0] != dumps[1] {
					t.Fatalf("step %d, %s, %v, cost %d, a ban policy: %t:\nminiredis %+v\n%s\nredis %+v\n%s\nbefore\n%s", step, what, set, cost, punish, d[0], dumps[0], d[1], dumps[1], befores[1])
				}
				if what == "peek" && dumps[1] != befores[1] {
					t.Fatalf("step %d: a Peek wrote:\n%s\nnot\n%s", step, dumps[1], befores[1])
				}
				if dumps[1] != befores[1] {
					done[what]++
				}
				for line := range strings.Lines(dumps[1]) {
					if strings.HasSuffix(line, " -1\n") {
						t.Fatalf("step %d: no expiry: %s", step, line)
					}
				}
				for _, l := range set {
					key := real.store.Key(user, action, l)
					if l.IsShadow() || real.rdb.Exists(t.Context(), key).Val() == 0 {
						continue
					}
					whole, err := core.Must(core.New(real.store, l)).Peek(t.Context(), user, action)
					if err != nil {
						t.Fatal(err)
					}
					end, charged := real.now+whole.ResetAfter.Microseconds(), what == "allow" && d[1].Allowed
					if l.Rule().ForgetAfter > 0 && charged {
						end = real.now + l.Rule().ForgetAfter
					}
					if at := real.expiry(key) * 1000; at < end || charged && at >= end+1000 {
						t.Fatalf("step %d, %s: %s expires at %d us and is whole at %d", step, what, l, at, end)
					}
				}
			}
		})
	}
	for _, what := range []string{"allow", "surcharge", "ahead", "refund", "settle"} {
		if done[what] < 10 {
			t.Errorf("%s changed something %d times", what, done[what])
		}
	}
}

// eager asks of buckets and funnels up to a second ahead.
type eager struct {
	*redisstore.Store
	ahead bool
}

func (s *eager) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	if s.ahead && c.Mode != machine.ModePeek {
		c.Ahead = 1e6
	}
	return s.Store.Take(ctx, c)
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

// nonsense is what a key may hold that is no state, by kind.
func nonsense(l core.Limit, now int64) map[string][]any {
	bad := map[string][]any{
		"a list":    {"rpush", 1},
		"a hash":    {"hset", "a", 1},
		"a set":     {"sadd", 1},
		"a stream":  nil,
		"text":      {"set", "abc"},
		"nothing":   {"set", ""},
		"a space":   {"set", " "},
		"negative":  {"set", "-5"},
		"a float":   {"set", fmt.Sprintf("%d.5", now)},
		"huge":      {"set", strings.Repeat("9", 400)},
		"17 digits": {"set", fmt.Sprintf("%d0", now)},
		"exponent":  {"set", "1e15"},
		"hex":       {"set", "0x10"},
		"inf":       {"set", "inf"},
		"nan":       {"set", "nan"},
		"a NUL":     {"set", "5\x00"},
		"a newline": {"set", fmt.Sprintf("%d\n", now)},
		"UTF-8":     {"set", "\xff老"},
		"JSON":      {"set", `{"count":1}`},
	}
	delete(bad, "a stream")
	window := func(s string) { bad[s] = []any{"set", s} }
	zset := func(name string, pairs ...any) { bad[name] = append([]any{"zadd"}, pairs...) }
	header := func(back, newest, head, n any, body int) []any {
		return []any{"set", fmt.Sprintf("%-56s", fmt.Sprint(back, " ", newest, " ", head, " ", n)) + strings.Repeat("\x00", body)}
	}
	instants := func(at ...int64) []any {
		var b []byte
		for _, at := range at {
			b = append(b, binary.BigEndian.AppendUint64(nil, uint64(at))[1:]...)
		}
		return []any{"set", b}
	}
	switch l.Rule().Kind {
	case machine.KindFixedWindow, machine.KindElasticWindow:
		bad["a zset"] = []any{"zadd", 1, 1}
		for _, s := range []string{"5", "5 ", " 5 5", "5 -5", "-5 5", "5 5 5", "5.0 5", "5  5", "5 1e15", "x 5"} {
			window(s)
		}
		bad["a far end"] = []any{"set", fmt.Sprintf("1 %d0", now)}
		bad["a huge count"] = []any{"set", fmt.Sprintf("%s %d", strings.Repeat("9", 17), now+1e6)}
	case machine.KindFunnel, machine.KindTokenBucket:
		bad["a zset"] = []any{"zadd", 1, 1}
		whole, used := "5", "" // of a bucket with Initial there is no state without the instant at which it is forgotten
		if l.Rule().ForgetAfter > 0 {
			whole, used = "5 5", " 5"
			window("5")
		} else {
			window("5 5")
		}
		for _, s := range []string{"+1", "+", "+0.5", "+-1", "@", "@x", "@-5", "@55555555555555555"} {
			window("5" + s + used)
		}
		for _, s := range []string{" 5", " x", " -1", "!", "!5", "!5 5", "! 5 5", "!5 5 5!", "!-5 5 5", "!5 -5 5", "!5 5 5 x", "!5 5 +1", "!5 5 5+x", "!55555555555555555 5 5", "!5 55555555555555555 5"} {
			window(whole + s)
		}
		window("+1" + used)
		bad["a huge last"] = []any{"set", fmt.Sprintf("%d %d0", now, now)}
	case machine.KindSlidingWindow, machine.KindSlidingRefused:
		zset("a foreign member", now, "abc")
		zset("an empty member", now, "")
		zset("another mark", now, fmt.Sprintf("%dx", now))
		zset("a float score", float64(now)+0.5, fmt.Sprint(now))
		zset("a negative score", -1, fmt.Sprint(now))
		zset("an infinite score", "inf", fmt.Sprint(now))
		zset("minus infinite", "-inf", fmt.Sprint(now))
		zset("a huge score", "1e300", fmt.Sprint(now))
		zset("a score above 2^53", "1e16", fmt.Sprint(now))
		zset("a huge member", now, strings.Repeat("9", 17))
	case machine.KindMovingWindow:
		bad["a zset"] = []any{"zadd", 1, 1}
		delete(bad, "nothing") // no instants are a state
		bad["half an instant"] = []any{"set", "\x06G^"}
		bad["an instant and a half"] = []any{"set", "\x06G^\xf6WO5\x06G^"}
		bad["an instant after the newest"] = instants(now+1, now)
		bad["an instant above 2^53"] = instants(now, 1<<53)
		bad["a short header"] = []any{"set", strings.Repeat("1", 55)}
		bad["a header of spaces"] = header("", "", "", "", 70)
		bad["a header with a gap"] = header("12 34", now, 0, 1, 56)
		bad["a header without newest"] = header(0, "", 0, 1, 56)
		bad["a header without head"] = header(0, now, "", 1, 56)
		bad["a header with a foreign byte"] = header(0, now, 0, "1x", 56)
		bad["no capacity"] = header(0, now, 0, 0, 0)
		bad["more than its capacity"] = header(0, now, 0, 9, 56)
		bad["a head outside"] = header(0, now, 8, 1, 56)
		bad["no ring"] = header(0, now, 0, 1, 0)
		bad["a truncated ring"] = header(0, now, 0, 3, 22)
		bad["a ring cut behind what is in it"] = header(0, now, 0, 3, 55)
		bad["a ring that is too long"] = header(0, now, 0, 3, 57)
	}
	return bad
}

// What is no state is ErrState: no verdict, nothing written, and once it is deleted
// the limit works.
func TestForeignValues(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		good := core.FixedWindow(100, time.Hour).Named("good")
		for _, l := range kinds {
			for name, command := range nonsense(l, w.now) {
				t.Run(fmt.Sprint(l, " ", name), func(t *testing.T) {
					w.rdb.FlushAll(t.Context())
					key := w.store.Key(user, action, l)
					line := append([]any{command[0], key}, command[1:]...)
					if err := w.rdb.Do(t.Context(), line...).Err(); err != nil {
						t.Fatal(err)
					}
					before := w.dump(t)
					lim, both := core.Must(core.New(w.store, l)), core.Must(core.New(w.store, good, l))
					for what, call := range map[string]func() (core.Decision, error){
						"Allow":          func() (core.Decision, error) { return lim.Allow(t.Context(), user, action) },
						"AllowN(3)":      func() (core.Decision, error) { return lim.AllowN(t.Context(), user, action, 3) },
						"AllowN(5)":      func() (core.Decision, error) { return lim.AllowN(t.Context(), user, action, 5) },
						"AllowN(0)":      func() (core.Decision, error) { return lim.AllowN(t.Context(), user, action, 0) },
						"Peek":           func() (core.Decision, error) { return lim.Peek(t.Context(), user, action) },
						"Allow with one": func() (core.Decision, error) { return both.Allow(t.Context(), user, action) },
					} {
						d, err := call()
						if !errors.Is(err, redisstore.ErrState) || !errors.Is(err, core.ErrKey) || d != (core.Decision{}) {
							t.Errorf("%s: %+v, %v; want ErrState", what, d, err)
						}
						discreet(t, err)
						if got := w.dump(t); got != before {
							t.Fatalf("%s wrote:\n%s\nover\n%s", what, got, before)
						}
					}
					if err := lim.Reset(t.Context(), user, action); err != nil {
						t.Fatal(err)
					}
					if d, err := lim.Allow(t.Context(), user, action); err != nil || !d.Allowed || d.Remaining != 4 {
						t.Errorf("after Reset: %+v, %v", d, err)
					}
				})
			}
		}
	})
}

// A ban that cannot be read is an error, and the limits charged with it are not written.
func TestForeignValuesInABan(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		plain := core.Must(core.New(w.store, core.FixedWindow(100, time.Hour)))
		lim := core.Must(plain.With(core.BanPolicy{Refusals: 3, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
		key := strings.TrimSuffix(w.store.Key(user, action, plain.Limits()[0]), plain.Limits()[0].Identity()) + "ban"
		later := w.now + 1e6
		for _, value := range []string{
			"", "abc", "5", "5 5 5", "5 5 5 x", "5 5 5 5 x", " 5 5 5 5", "-5 5 5 5", "5 5 5 5.5", "5  5 5 5",
			fmt.Sprintf("%d0 5 5 5", later), fmt.Sprintf("%d %d0 5 5", later, later), fmt.Sprintf("%d 5 %d0 5", later, later),
			fmt.Sprintf("%d 5 5 5555555555", later), fmt.Sprintf("%d 5 5 5 %d0", later, later), fmt.Sprintf("%d 5 5 5\n", later),
		} {
			if err := w.rdb.Set(t.Context(), key, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			_, allow := lim.Allow(t.Context(), user, action)
			_, peek := lim.Peek(t.Context(), user, action)
			_, status := lim.Status(t.Context(), user, action)
			for what, err := range map[string]error{"Allow": allow, "Peek": peek, "Status": status, "Ban": lim.Ban(t.Context(), user, action, time.Hour)} {
				if !errors.Is(err, redisstore.ErrState) {
					t.Errorf("%q: %s: %v; want ErrState", value, what, err)
				}
			}
			if got := w.rdb.Get(t.Context(), key).Val(); got != value {
				t.Errorf("%q has become %q", value, got)
			}
			if err := lim.Unban(t.Context(), user, action); err != nil {
				t.Fatal(err)
			}
			if d, err := lim.Peek(t.Context(), user, action); err != nil || d.Remaining != 100 {
				t.Errorf("%q: after Unban: %+v, %v", value, d, err)
			}
		}
	})
}

// States that are corrupt at random are ErrState or read as a state that there may be:
// whatever they hold, no error of another kind, which would look like an outage, and no
// number out of bounds.
func TestCorruptStates(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	store := reliable(t, server.Addr)
	spoil := func(r *rand.Rand, key string) {
		if rdb.Type(t.Context(), key).Val() == "zset" {
			z, err := rdb.ZRangeWithScores(t.Context(), key, 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			e := z[r.IntN(len(z))]
			rdb.Do(t.Context(), "zadd", key, []any{"inf", "-inf", "1e300", 0, -5, 1.5, float64(1 << 53), e.Score - 1e9, e.Score + 1e15}[r.IntN(9)], []any{e.Member, "x", "9999999999999999"}[r.IntN(3)])
			return
		}
		v := []byte(rdb.Get(t.Context(), key).Val())
		for range 1 + r.IntN(3) {
			if i := r.IntN(min(len(v), 80) + 1); i < len(v) {
				const chars = "0123456789 @=!+/-.ex\x00\xff9999"
				c := chars[r.IntN(len(chars))]
				switch r.IntN(4) {
				case 0:
					v = slices.Delete(v, i, i+1)
				case 1:
					v = slices.Insert(v, i, c)
				case 2:
					v[i] = c
				case 3:
					v = v[:i]
				}
			}
		}
		rdb.Set(t.Context(), key, v, redis.KeepTTL)
	}
	bad, rules := 0, append([]core.Limit{uneven}, kinds...)
	for seed := range uint64(700) {
		r := rand.New(rand.NewPCG(seed, 99))
		l, who := rules[r.IntN(len(rules))], fmt.Sprint(user, seed)
		lim := core.Must(core.Must(core.New(&eager{store, r.IntN(2) == 0}, l)).With(core.Refundable{}, core.BanPolicy{Refusals: 3, Within: time.Hour, Bans: []time.Duration{time.Hour}}))
		var taken core.Decision
		for range 1 + r.IntN(7) {
			if d, err := lim.AllowN(t.Context(), who, action, 1+r.IntN(2)); err != nil {
				t.Fatal(err)
			} else if d.Allowed {
				taken = d
			}
		}
		if r.IntN(3) == 0 {
			settle := lim.Refund
			if r.IntN(2) == 0 {
				settle = func(ctx context.Context, d core.Decision) error { return lim.Settle(ctx, d, 7) }
			}
			if err := settle(t.Context(), taken); err != nil {
				t.Fatal(err)
			}
			if rdb.Exists(t.Context(), store.Key(who, action, l)).Val() == 0 {
				continue // all is whole
			}
		}
		key := store.Key(who, action, l)
		if policy := strings.TrimSuffix(key, l.Identity()) + "ban"; r.IntN(4) == 0 && rdb.Exists(t.Context(), policy).Val() > 0 {
			key = policy
		}
		spoil(r, key)
		value := (&world{rdb: rdb}).value(t, key)
		if r.IntN(3) == 0 {
			if err := lim.Refund(t.Context(), taken); err != nil {
				t.Errorf("%s: %s: %s: Refund: %v", who, l, value, err)
			}
		}
		for range 4 {
			var d core.Decision
			var err error
			switch r.IntN(4) {
			case 0:
				d, err = lim.Allow(t.Context(), who, action)
			case 1:
				d, err = lim.AllowN(t.Context(), who, action, 1+r.IntN(6))
			case 2:
				d, err = lim.Peek(t.Context(), who, action)
			case 3:
				d, err = lim.Surcharge(t.Context(), who, action, 1+r.IntN(6))
			}
			switch {
			case errors.Is(err, redisstore.ErrState):
				bad++
			case err != nil || d.Remaining < 0 || d.Remaining > d.Limit || d.RetryAfter < 0 || d.ResetAfter < 0:
				t.Errorf("%s: %s: %s: %+v, %v", who, l, value, d, err)
			}
		}
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl == -1 {
			t.Errorf("%s: %s: %s: no expiry", who, l, value)
		}
	}
	if bad < 500 {
		t.Errorf("%d were no states", bad)
	}
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

// A long ring grows where it is, also if its end is within, and forgets nothing: what is
// counted is at every time what was admitted in the last period.
func TestLongRingGrows(t *testing.T) {
	test := func(t *testing.T, w *world) {
		const most = 2_000_000
		lim := core.Must(core.New(w.store, core.MovingWindow(most, time.Second)))
		admitted := map[int64]int{}
		capacities := []int64{}
		for step, n := range []int{ // in thousands, every 100 ms
			600, 60, 0, 10, 0, 0, 0, 0, 0, 0,
			500, 200, 0, 30, 0, 0, 0, 0, 0, 0, // the first are gone, so the end is within; then it grows
			100, 50, 400, 200, 0, 0, 1, 300, 0, 0,
			0, 0, 0, 900, 300, 499, 0, 0, 0, 0,
		} {
			n *= 1000
			d, err := lim.AllowN(t.Context(), user, action, n)
			if d.Allowed {
				admitted[w.now] = n
			}
			live := 0
			for at, n := range admitted {
				if w.now < at+1e6 {
					live += n
				}
			}
			if err != nil || !d.Allowed || d.Remaining != most-live {
				t.Fatalf("step %d: %+v, %v; %d are left", step, d, err, most-live)
			}
			c := (w.rdb.StrLen(t.Context(), w.store.Key(user, action, lim.Limits()[0])).Val() - 56) / 7
			if k := len(capacities); k == 0 || capacities[k-1] != c {
				capacities = append(capacities, c)
			}
			w.advance(100 * time.Millisecond)
		}
		if want := []int64{675_000, 798_750, 202_500, 652_500, 843_750, 1_182_375, 1_351_125, 1_688_625, 2_000_000}; !slices.Equal(capacities, want) {
			t.Errorf("it had room for %d, want %d", capacities, want)
		}
	}
	t.Run("miniredis", func(t *testing.T) { test(t, miniWorld(t, 3)) })
	t.Run("redis", func(t *testing.T) { test(t, realWorld(t, 3)) })
}

// History says what is wrong with its arguments, as every method of a Limiter does.
func TestHistoryOfNobody(t *testing.T) {
	w, window := miniWorld(t, 3), core.SlidingWindow(5, time.Hour)
	if _, err := w.store.History(t.Context(), "", action, window); err != core.ErrNoUser {
		t.Errorf("no user: %v", err)
	}
	if _, err := w.store.History(t.Context(), user, "", window); err != core.ErrNoAction {
		t.Errorf("no action: %v", err)
	}
	var none context.Context
	if _, err := w.store.History(none, user, action, window); err == nil || !strings.Contains(err.Error(), "the context is nil") {
		t.Errorf("no context: %v", err)
	}
}

func TestHistory(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		start := time.UnixMicro(w.now)
		history := func(l core.Limit) []redisstore.Entry {
			t.Helper()
			h, err := w.store.History(t.Context(), user, action, l)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		act := func(l core.Limit, n int) {
			t.Helper()
			if _, err := core.Must(core.New(w.store, l)).AllowN(t.Context(), user, action, n); err != nil {
				t.Fatal(err)
			}
		}
		same := func(got []redisstore.Entry, want ...redisstore.Entry) {
			t.Helper()
			if !slices.EqualFunc(got, want, func(a, b redisstore.Entry) bool { return a.Time.Equal(b.Time) && a.Admitted == b.Admitted }) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		plain, counting := core.SlidingWindow(2, time.Minute), core.SlidingWindow(3, time.Minute).CountRefused()
		same(history(plain))
		act(plain, 1)
		act(counting, 2)
		w.advance(1500 * time.Microsecond)
		later := start.Add(1500 * time.Microsecond)
		for range 3 {
			act(plain, 1)
		}
		act(counting, 2) // refused, and both are kept
		same(history(plain), redisstore.Entry{Time: start, Admitted: true}, redisstore.Entry{Time: later, Admitted: true})
		same(history(core.SlidingWindow(7, time.Minute)), history(plain)...)
		same(history(counting), redisstore.Entry{Time: start, Admitted: true}, redisstore.Entry{Time: later}, redisstore.Entry{Time: later})
		same(history(core.SlidingWindow(2, time.Hour))) // another state
		for _, l := range kinds[2:] {
			h, err := w.store.History(t.Context(), user, action, l)
			if h != nil || err == nil || !strings.Contains(err.Error(), "SlidingWindow") {
				t.Errorf("%s: %v, %v", l, h, err)
			}
			discreet(t, err)
		}

		// Many, in order.
		many := core.SlidingWindow(10_000, time.Hour)
		for range 4 {
			act(many, 2500)
			w.advance(time.Microsecond)
		}
		h := history(many)
		if len(h) != 10_000 || !slices.IsSortedFunc(h, func(a, b redisstore.Entry) int { return a.Time.Compare(b.Time) }) {
			t.Errorf("%d entries", len(h))
		}

		for name, command := range nonsense(plain, w.now) {
			key := w.store.Key("else", action, plain)
			if err := w.rdb.Do(t.Context(), append([]any{command[0], key}, command[1:]...)...).Err(); err != nil {
				t.Fatal(err)
			}
			if h, err := w.store.History(t.Context(), "else", action, plain); !errors.Is(err, redisstore.ErrState) {
				t.Errorf("%s: %v, %v; want ErrState", name, h, err)
			}
			w.rdb.Del(t.Context(), key)
		}
	})
}
