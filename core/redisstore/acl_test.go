package redisstore_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// documentedUser is the line of the package's documentation that makes a user, and
// what it says that a client of that kind needs besides.
func documentedUser(t *testing.T, client string) []string {
	return append(documented(t, "ACL"), documented(t, client)[1:]...)
}

// documented is the line of the package's documentation that begins so.
func documented(t *testing.T, first string) []string {
	text, err := os.ReadFile(redisstore.Source)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "//\t"+first); ok {
			return strings.Fields(first + rest)
		}
	}
	t.Fatalf("the documentation has no line for %s", first)
	return nil
}

// everything is what a store does: all kinds, past their limits and after a step back
// of the clock, Reset, History, a ban, and what is given back.
func everything(t *testing.T, store *redisstore.Store, clock *redistest.Clock) error {
	other := core.FixedWindow(1, time.Hour).Named("other")
	for i, l := range append([]core.Limit{other}, kinds...) {
		for _, limits := range [][]core.Limit{{l}, {l, other}} {
			if i == 0 {
				limits = limits[:1]
			}
			lim := core.Must(core.New(store, limits...))
			for _, n := range []int{1, 3, 3, 3, 0} {
				if _, err := lim.AllowN(t.Context(), user, action, n); err != nil {
					return err
				}
				clock.Advance(time.Second)
			}
			clock.Advance(-time.Minute)
			for range 2 {
				if _, err := lim.Allow(t.Context(), user, action); err != nil {
					return err
				}
			}
			if _, err := lim.Peek(t.Context(), user, action); err != nil {
				return err
			}
		}
		if _, err := store.History(t.Context(), user, action, kinds[i%2]); err != nil {
			return err
		}
		lim := core.Must(core.Must(core.New(store, l)).With(core.Refundable{}, core.BanPolicy{Refusals: 1, Within: time.Hour, Bans: []time.Duration{time.Minute}}))
		if err := lim.Reset(t.Context(), user, action); err != nil {
			return err
		}
		var taken [2]core.Decision
		for i, n := range []int{3, 1, 5} { // the last is refused and leads to a ban
			d, err := lim.AllowN(t.Context(), user, action, n)
			if err != nil {
				return err
			}
			if i < len(taken) {
				taken[i] = d
			}
			clock.Advance(time.Millisecond)
		}
		for _, d := range taken {
			if err := lim.Refund(t.Context(), d); err != nil {
				return err
			}
			if err := lim.Renew(t.Context(), d); err != nil {
				return err
			}
			if err := lim.Release(t.Context(), d); err != nil {
				return err
			}
		}
		if err := lim.Unban(t.Context(), user, action); err != nil {
			return err
		}
	}
	long := core.Must(core.New(store, core.MovingWindow(100, time.Hour)))
	for range 2 {
		if _, err := long.AllowN(t.Context(), user, action, 40); err != nil {
			return err
		}
	}
	return nil
}

// denied matches what servers say to who lacks a permission. In a script, Redis 7.0 and earlier
// say that the user can't, and later ones and Valkey speak of an ACL failure.
var denied = regexp.MustCompile(`^NOPERM |executing the script can't |ACL failure in script: `)

// The documented user can do what the store does, nothing that it does not, and would
// not do with less.
func TestDocumentedUser(t *testing.T) {
	words := documented(t, "ACL")
	server, clock := redistest.StartAt(t, epoch)
	if reply := server.Do(words...); reply != "+OK" {
		t.Fatal(reply)
	}
	login := &redis.Options{Addr: server.Addr, Username: words[2], Password: "password"}
	rdb := connect(t, login)
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient}).AlwaysAsk()
	store.SetTime(clock.Now)
	if err := everything(t, store, clock); err != nil {
		t.Fatal(err)
	}

	for _, line := range [][]any{
		{"keys", "*"}, {"scan", 0}, {"config", "get", "*"}, {"flushall"}, {"info"}, {"script", "flush"}, {"monitor"}, {"acl", "list"},
		{"get", "other"}, {"set", "other", 1}, {"del", "other"}, {"get", "tailcu"}, {"publish", "a", "b"}, {"subscribe", "a"}, {"client", "list"},
		{"eval", "return redis.call('GET', KEYS[1])", 1, "other"}, {"eval", "return redis.call('GET', 'other')", 0},
		{"eval", "return redis.call('KEYS', '*')", 0}, {"function", "flush"}, {"function", "load", "#!lua name=tailcut"}, {"replicaof", "no", "one"}, {"incr", "tailcut:{a}"},
	} {
		err := rdb.Do(t.Context(), line...).Err()
		if err == nil || !denied.MatchString(err.Error()) {
			t.Errorf("%v: %v", line, err)
		}
	}

	// What a client opens a connection with is not missed by a store. Scripts replace functions.
	optional := []string{"+hello", "+client|setname", "+ping"}
	for _, way := range [][]string{{"+fcall", "+function|list"}} {
		fewer := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(way, w) })
		for i, w := range fewer {
			if i > 0 && (!strings.HasPrefix(w, "+") || slices.Contains(optional, w)) {
				continue
			}
			server.Do("ACL", "DELUSER", words[2])
			server.Do("SCRIPT", "FLUSH")
			server.Do("FUNCTION", "FLUSH")
			server.Do("FLUSHALL")
			line := slices.Clone(fewer)
			if i > 0 { // at first nothing more is missing
				line = slices.Delete(line, i, i+1)
			}
			if reply := server.Do(line...); reply != "+OK" {
				t.Fatal(reply)
			}
			less := connect(t, login)
			store := redisstore.New(less, &redisstore.Options{Timeout: patient}).AlwaysAsk()
			store.SetTime(clock.Now)
			err := everything(t, store, clock)
			switch {
			case i == 0 && err != nil:
				t.Errorf("without %v: %v", way, err)
			case i > 0 && err == nil:
				t.Errorf("%s is not needed without %v", w, way)
			case i > 0:
				discreet(t, fmt.Errorf("%w", err))
			}
		}
	}
}

// A Ring's shards are there for its client only if they answer what it asks them.
func TestDocumentedUserOfARing(t *testing.T) {
	words := documented(t, "ACL")
	addrs := map[string]string{}
	for _, name := range []string{"one", "two"} {
		server := redistest.Start(t)
		if reply := server.Do(words...); reply != "+OK" {
			t.Fatal(reply)
		}
		addrs[name] = server.Addr
	}
	rdb := redis.NewRing(&redis.RingOptions{Addrs: addrs, Username: words[2], Password: "password", HeartbeatFrequency: 10 * time.Millisecond})
	t.Cleanup(func() { _ = rdb.Close() })
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	for i := range 10 { // three times in a row without an answer a shard is gone
		everyKind(t, store, fmt.Sprint(user, i))
		time.Sleep(20 * time.Millisecond)
	}
}

func TestDocumentedUserOfADatabase(t *testing.T) {
	server := redistest.Start(t)
	login := &redis.Options{Addr: server.Addr, DB: 1, Username: documented(t, "ACL")[2], Password: "password"}
	for _, words := range [][]string{documented(t, "ACL"), documentedUser(t, "DB:")} { // the first lacks a permission
		if reply := server.Do(words...); reply != "+OK" {
			t.Fatal(reply)
		}
		store := redisstore.New(connect(t, login), &redisstore.Options{Timeout: patient})
		_, err := core.Must(core.New(store, kinds...)).Allow(t.Context(), user, action)
		if (err == nil) != slices.Contains(words, "+select") {
			t.Errorf("%v: %v", words, err)
		}
	}
}
