package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// refusedBy holds a charge to an error of Redis's own that begins with prefix.
func refusedBy(t *testing.T, s core.Store, prefix string, limits ...core.Limit) {
	t.Helper()
	d, err := core.Must(core.New(s, limits...)).Allow(t.Context(), user, action)
	discreet(t, err)
	if d != (core.Decision{}) {
		t.Errorf("%v: a verdict: %+v", limits, d)
	}
	var own redis.Error
	if !errors.As(err, &own) || !strings.HasPrefix(own.Error(), prefix) {
		t.Errorf("%v: %v, which does not wrap Redis's own %s", limits, err, prefix)
	}
}

func keysOf(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(keys, " ")
}

// A server without memory to spare takes no charge, whatever the kind, but tells what
// it knows.
func TestOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	store := reliable(t, server.Addr)
	charged(t, store, user, kinds[0])
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	for _, l := range kinds {
		server.Do("CONFIG", "SET", "maxmemory", "1")
		refusedBy(t, store, "OOM", l)
		refusedBy(t, store, "OOM", l, core.FixedWindow(9, time.Hour).Named("other"))
		refusedBy(t, store, "OOM", core.SlidingWindow(9, time.Hour).Named("other"), l)
		if got := keysOf(t, rdb); got != "" {
			t.Errorf("%s: there is %s", l, got)
		}
		if n := charged(t, store, user, l); n != 0 {
			t.Errorf("%s: %d are charged", l, n)
		}
		server.Do("CONFIG", "SET", "maxmemory", "0")
		// With a state that is there.
		lim := core.Must(core.New(store, l))
		if _, err := lim.Allow(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
		server.Do("CONFIG", "SET", "maxmemory", "1")
		refusedBy(t, store, "OOM", l)
		if n := charged(t, store, user, l); n != 1 {
			t.Errorf("%s: %d are charged, not 1", l, n)
		}
		if err := lim.Reset(t.Context(), user, action); err != nil { // frees
			t.Error(err)
		}
	}
}

// What a server says of a user of that name is no word of a replica.
func TestAUserNamedReadonly(t *testing.T) {
	const text = "NOPERM User READONLY has no permissions to run the 'set' command"
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		if command == "SET" {
			c.WriteError(text)
		}
		return command == "SET"
	})
	store := redisstore.New(connect(t, &redis.Options{Addr: m.Addr()}), &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, core.Funnel(5, hourly)))
	_, err := lim.Allow(t.Context(), user, action)
	if discreet(t, err); !strings.Contains(err.Error(), text) {
		t.Errorf("%v", err)
	}
}

func TestReplica(t *testing.T) {
	server := redistest.Start(t)
	store := reliable(t, server.Addr)
	charged(t, store, user, kinds[0])
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for _, l := range kinds {
		refusedBy(t, store, "READONLY", l)
	}
	server.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
	refusedBy(t, store, "MASTERDOWN", kinds[0])
	server.Do("REPLICAOF", "NO", "ONE")
	if d, err := core.Must(core.New(store, kinds...)).Allow(t.Context(), user, action); err != nil || d.Remaining != 4 {
		t.Errorf("master again: %+v, %v", d, err)
	}
}

func TestAccess(t *testing.T) {
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "clerk", "on", ">pass", "~*", "+@all", "-eval", "-evalsha", "-fcall")
	server.Do("ACL", "SETUSER", "narrow", "on", ">pass", "~other:*", "+@all")
	server.Do("ACL", "SETUSER", "blind", "on", ">pass", "~*", "+@all", "-time")
	// blind's error comes from within the script: ERR or NOPERM, as the server's version has it.
	for name, prefix := range map[string]string{"clerk": "NOPERM", "narrow": "NOPERM", "blind": ""} {
		rdb := connect(t, &redis.Options{Addr: server.Addr, Username: name, Password: "pass"})
		refusedBy(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}), prefix, kinds[0])
	}
	wrong := connect(t, &redis.Options{Addr: server.Addr, Username: "clerk", Password: "wrong"})
	refusedBy(t, redisstore.New(wrong, &redisstore.Options{Timeout: patient}), "WRONGPASS", kinds[0])
	server.Do("CONFIG", "SET", "requirepass", "secret")
	refusedBy(t, redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient}), "NOAUTH", kinds[0])
}

// What Redis says is passed on, and is no verdict.
func TestErrorsOfRedis(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := connect(t, &redis.Options{Addr: m.Addr()})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	charged(t, store, user, kinds[0])
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"CLUSTERDOWN The cluster is down", "TRYAGAIN Multiple keys request during rehashing of slot",
		"ERR max number of clients reached", "CROSSSLOT Keys in request don't hash to the same slot",
		"EXECABORT Transaction discarded because of previous errors.",
	} {
		m.SetError(text)
		word, _, _ := strings.Cut(text, " ")
		refusedBy(t, store, word, kinds[0])
		if err := store.Reset(t.Context(), user, action, kinds[:1]); err == nil {
			t.Errorf("%s: Reset says nothing", word)
		} else {
			discreet(t, err)
		}
		_, err := store.History(t.Context(), user, action, kinds[0])
		discreet(t, err)
	}
	// Some servers say in their errors what they were sent.
	args := "with args beginning with: 'tailcut:{" + user + "}:" + action + ":cell' '4'"
	m.SetError("ERR unknown command `evalsha`, " + args)
	refusedBy(t, store, "ERR unknown command", kinds[0])
	m.SetError("ERR unknown command `evalsha`, with args beginning with: 'tailcut:{WRONGTYPE}:'")
	if _, err := core.Must(core.New(store, kinds[0])).Allow(t.Context(), "WRONGTYPE", action); errors.Is(err, core.ErrKey) {
		t.Errorf("a user's name makes it an error of one key: %v", err)
	}
	m.SetError("")
	if n := charged(t, store, user, kinds[0]); n != 0 {
		t.Errorf("%d are charged", n)
	}
}

// A Peek is answered where nothing can be written.
func TestRefusalsOfAReplica(t *testing.T) {
	server := redistest.Start(t)
	store := reliable(t, server.Addr)
	for i, l := range kinds {
		if n := charged(t, store, fmt.Sprint(user, i), l); n != 0 {
			t.Error(n)
		}
	}
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for i, l := range kinds {
		if n := charged(t, store, fmt.Sprint(user, i), l); n != 0 {
			t.Error(n)
		}
	}
}
