package redisstore_test

import (
	"encoding/hex"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// offline is a store that only tells its keys.
func offline(t testing.TB, opts *redisstore.Options) *redisstore.Store {
	t.Helper()
	return redisstore.New(connect(t, &redis.Options{Addr: closed}), opts)
}

func TestKeys(t *testing.T) {
	sliding := core.SlidingWindow(5, time.Minute)
	plain := offline(t, nil)
	long := strings.Repeat("x", 10<<10)
	for _, tc := range []struct {
		user, action string
		limit        core.Limit
		want         string
	}{
		{"alice", "reply", sliding, "tailcut:{alice}:reply:sliding:1m"},
		{"alice", "reply", sliding.CountRefused(), "tailcut:{alice}:reply:refused:1m"},
		{"alice", "reply", core.MovingWindow(5, 3*time.Second), "tailcut:{alice}:reply:moving:3s"},
		{"alice", "reply", core.FixedWindow(5, 24*time.Hour).Named("daily"), "tailcut:{alice}:reply:fixed:24h:daily"},
		{"alice", "reply", core.ElasticWindow(5, time.Millisecond), "tailcut:{alice}:reply:elastic:1ms"},
		{"alice", "like", core.TokenBucket(5, hourly), "tailcut:{alice}:like:bucket:5:1/1h"},
		{"alice", "like", core.TokenBucket(5, hourly).Initial(2), "tailcut:{alice}:like:bucket:2/5:1/1h"},
		{"alice", "like", core.Funnel(15, hourly), "tailcut:{alice}:like:funnel:15:1/1h"},
		{"alice", "like", core.Throttle(15, hourly).Named("a.b_c-d"), "tailcut:{alice}:like:funnel:16:1/1h:a.b_c-d"},
		{"老钱", "回复", sliding, "tailcut:{老钱}:回复:sliding:1m"},
		{"lao qian", "GET /posts/:id", sliding, "tailcut:{lao%20qian}:GET%20/posts/%3Aid:sliding:1m"},
		{"GET /posts/{id}", "POST /posts/{id...}", sliding, "tailcut:{GET%20/posts/%7Bid%7D}:POST%20/posts/%7Bid...%7D:sliding:1m"},
		{"a:b", "c", sliding, "tailcut:{a%3Ab}:c:sliding:1m"},
		{"a", "b:c", sliding, "tailcut:{a}:b%3Ac:sliding:1m"},
		{"{x}", "}{", sliding, "tailcut:{%7Bx%7D}:%7D%7B:sliding:1m"},
		{"\x00", "\r\n\t\x7f", sliding, "tailcut:{%00}:%0D%0A%09%7F:sliding:1m"},
		{"\xff\xfe", "a\xe8\x80", sliding, "tailcut:{%FF%FE}:a%E8%80:sliding:1m"},
		{"\u202e\u200b", "\ufffd", sliding, "tailcut:{%E2%80%AE%E2%80%8B}:\ufffd:sliding:1m"},
		{"100%", "%25", sliding, "tailcut:{100%25}:%2525:sliding:1m"},
		{"~2:203.0.113.9", "^", sliding, "tailcut:{%7E2%3A203.0.113.9}:%5E:sliding:1m"},
		{"a~b^", "c~", sliding, "tailcut:{a~b^}:c~:sliding:1m"},
		{`*?[]\"'`, "*", sliding, "tailcut:{%2A%3F%5B%5D%5C%22%27}:%2A:sliding:1m"},
		{"alice@example.org", "reply", sliding, "tailcut:{alice@example.org}:reply:sliding:1m"},
		{strings.Repeat("u", 128), "reply", sliding, "tailcut:{" + strings.Repeat("u", 128) + "}:reply:sliding:1m"},
		{strings.Repeat("u", 129), "reply", sliding, "tailcut:{~TZIhvYj-f6PxzcfYHHC5SE83YV-SF46vo_bFJeb6eG8}:reply:sliding:1m"},
		{long, long, sliding, "tailcut:{~BPj4avLNFP_pu-jaFRjOnJgK4T-6h_6zhrEDVE6cTGs}:~BPj4avLNFP_pu-jaFRjOnJgK4T-6h_6zhrEDVE6cTGs:sliding:1m"},
	} {
		if got := plain.Key(tc.user, tc.action, tc.limit); got != tc.want {
			t.Errorf("%.20q, %.20q: %s\nwant %s", tc.user, tc.action, got, tc.want)
		}
	}

	if got, want := offline(t, &redisstore.Options{Prefix: "shop:eu-1"}).Key("u", "a", sliding), "shop:eu-1:{u}:a:sliding:1m"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	one, two := offline(t, &redisstore.Options{Secret: "one"}), offline(t, &redisstore.Options{Secret: "two"})
	if got, want := one.Key("alice", "reply", sliding), "tailcut:{^YMjaoHDL2aW7Ilxci0VSjh_kx8dBEsXhRMDIciUxRZw}:reply:sliding:1m"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if one.Key("alice", "reply", sliding) == two.Key("alice", "reply", sliding) {
		t.Error("two secrets make one key")
	}
	// Nobody passes for a digest.
	digest := regexp.MustCompile(`{(.*)}`).FindStringSubmatch(plain.Key(long, "a", sliding))[1]
	if plain.Key(digest, "a", sliding) == plain.Key(long, "a", sliding) {
		t.Error("a user named as a digest has the key of whose it is")
	}
}

// slot is the part of a key that a cluster hashes: between the first { and the next }.
func slot(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

// unescape is an independent reading of a part of a key; a digest has none.
func unescape(part string) (string, bool) {
	if strings.HasPrefix(part, "~") || strings.HasPrefix(part, "^") {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] != '%' {
			b.WriteByte(part[i])
			continue
		}
		if i+3 > len(part) {
			return "", false
		}
		c, err := hex.DecodeString(part[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), true
}

var keyShape = regexp.MustCompile(`(?s)^tailcut:{([^{}:]+)}:([^{}:]+):(.+)$`)

// So any two users have different keys, and all of a user's keys are in one slot.
func FuzzKey(f *testing.F) {
	for _, s := range [][4]string{
		{"a:b", "c", "a", "b:c"}, {"alice", "reply", "alice", "reply"}, {"{x}", "}", "%7Bx%7D", "%7D"},
		{"~a", "^b", "%7Ea", "%5Eb"}, {"\xff", "\xc3\x28", "%FF", "%C3("}, {"老钱", "\u202e", "老", "钱"},
		{strings.Repeat("a", 129), "b", "~", "b"}, {strings.Repeat("老", 43), strings.Repeat("%", 43), "x", strings.Repeat("%", 42)},
		{"\x00", "\r\n", "\x00\x00", "\n"}, {" ", "\u00a0", "\u3000", "\u2028"},
	} {
		f.Add(s[0], s[1], s[2], s[3], uint8(0), uint8(1))
	}
	plain := offline(f, nil)
	secret := offline(f, &redisstore.Options{Secret: "secret"})
	f.Fuzz(func(t *testing.T, user1, action1, user2, action2 string, l1, l2 uint8) {
		if user1 == "" || user2 == "" || action1 == "" || action2 == "" {
			return // errors of core
		}
		limit1, limit2 := kinds[int(l1)%len(kinds)], kinds[int(l2)%len(kinds)]
		for _, s := range []*redisstore.Store{plain, secret} {
			key1, key2 := s.Key(user1, action1, limit1), s.Key(user2, action2, limit2)
			same := user1 == user2 && action1 == action2 && limit1.Identity() == limit2.Identity()
			if (key1 == key2) != same {
				t.Errorf("%q %q %s: %q\n%q %q %s: %q", user1, action1, limit1, key1, user2, action2, limit2, key2)
			}
			// The slot is the user's, whatever he does.
			if (slot(key1) == slot(key2)) != (user1 == user2) || slot(key1) != slot(s.Key(user1, action2, limit2)) {
				t.Errorf("%q %q, %q %q: %q, %q", user1, action1, user2, action2, key1, key2)
			}
			parts := keyShape.FindStringSubmatch(key1)
			if parts == nil || parts[3] != limit1.Identity() || !utf8.ValidString(key1) || strings.Count(key1, "{") != 1 || strings.Count(key1, "}") != 1 {
				t.Fatalf("%q %q: %q", user1, action1, key1)
			}
			if len(key1) > 300 {
				t.Errorf("%q %q: a key of %d bytes", user1, action1, len(key1))
			}
			if strings.ContainsFunc(key1, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
				t.Errorf("%q %q: %q", user1, action1, key1)
			}
			if got, ok := unescape(parts[2]); ok && got != action1 {
				t.Errorf("%q reads as %q", action1, got)
			}
			if got, ok := unescape(parts[1]); ok && (got != user1 || s == secret) {
				t.Errorf("%q reads as %q", user1, got)
			}
		}
	})
}

// With a Secret Redis learns no user, and another Secret has other keys.
func TestSecret(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	for i, secret := range []string{"one", "two"} {
		store := redisstore.New(rdb, &redisstore.Options{Secret: secret, Timeout: patient})
		lim := core.Must(core.New(store, kinds...))
		if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Remaining != 4 {
			t.Fatalf("%s: %+v, %v", secret, d, err)
		}
		keys, err := rdb.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) != (i+1)*len(kinds) {
			t.Fatalf("%q, %v", keys, err)
		}
		for _, k := range keys {
			if strings.Contains(k, "geheim") || strings.Contains(k, "example") {
				t.Errorf("%s names the user", k)
			}
		}
	}
}

func TestPrefixSeparates(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	for _, prefix := range []string{"", "a", "a:b"} {
		lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Prefix: prefix, Timeout: patient}), kinds[0]))
		if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Remaining != 4 {
			t.Fatalf("%q: %+v, %v", prefix, d, err)
		}
	}
}

// Two stores of one server share the count, and so do tiers.
func TestStoresShare(t *testing.T) {
	server := redistest.Start(t)
	for _, l := range kinds {
		passed := 0
		for i := range 8 {
			d, err := core.Must(core.New(reliable(t, server.Addr), l)).Allow(t.Context(), user, action)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed != (i < 5) {
				t.Errorf("%s: action %d: %+v", l, i+1, d)
			}
			if d.Allowed {
				passed++
			}
		}
		if passed != 5 {
			t.Errorf("%s: %d of 8 passed", l, passed)
		}
	}
}

// A user is hostile input: its length costs time to hash, and no memory.
func TestALongUserIsNotCopied(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	limit := core.FixedWindow(1, time.Hour)
	for name, opts := range map[string]*redisstore.Options{"plain": nil, "secret": {Secret: "s"}} {
		store := redisstore.New(redis.NewClient(&redis.Options{Addr: closed}), opts)
		const calls = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			_ = store.Key(long, "a", limit)
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) / calls; n > 4096 {
			t.Errorf("%s: %d bytes allocated for a key, more than 4096", name, n)
		}
	}
}
