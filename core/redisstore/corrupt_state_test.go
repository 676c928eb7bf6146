//go:build !race

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
	t.Parallel()
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
	t.Parallel()
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

// What looks like a number to Lua is not thereby a state.
func TestNumbersThatAreNotAState(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient})
	l := core.Funnel(5, core.Every(time.Minute))
	lim := core.Must(core.New(store, l))
	for _, value := range []string{"0x06660000000000", "1.8000000000e+15", "0000000000018e14", "-000000000000001"} {
		key := store.Key(user, action, l)
		server.Do("SET", key, value)
		if d, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrState) {
			t.Errorf("%q: %+v, %v", value, d, err)
		}
		if got := server.Do("GET", key); got != value {
			t.Errorf("%q has become %q", value, got)
		}
	}
}

// Whatever a ring holds, a charge that fails has charged nothing.
func TestACorruptRingChargesNothing(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient})
	fixed, moving := core.FixedWindow(100, time.Hour), core.MovingWindow(100, time.Hour)
	both := core.Must(core.New(store, fixed, moving))
	for range 3 {
		if _, err := both.Allow(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
	}
	server.Do("SETRANGE", store.Key(user, action, moving), "0", "\x1f\xff\xff\xff\xff\xff\xff")
	for range 3 {
		if d, err := both.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrState) {
			t.Errorf("%+v, %v", d, err)
		}
	}
	d, err := core.Must(core.New(store, fixed)).Peek(t.Context(), user, action)
	if err != nil || d.Remaining != 97 {
		t.Errorf("the other limit: %+v, %v; want what three actions left", d, err)
	}
}
