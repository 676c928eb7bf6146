package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// everyKind uses all there is of a store once.
func everyKind(t *testing.T, store *redisstore.Store, user string) {
	t.Helper()
	lim := core.Must(core.New(store, kinds...))
	if err := lim.Reset(t.Context(), user, action); err != nil { // all of a user's keys are in one slot
		t.Fatal(err)
	}
	for i := range 6 {
		if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Allowed != (i < 5) {
			t.Fatalf("%s: %+v, %v", user, d, err)
		}
	}
	if h, err := store.History(t.Context(), user, action, kinds[0]); err != nil || len(h) != 5 {
		t.Fatalf("%v, %v", h, err)
	}
	if err := lim.Reset(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	for _, l := range kinds {
		if n := charged(t, store, user, l); n != 0 {
			t.Fatalf("%s: %s: %d are charged after Reset", user, l, n)
		}
	}
}

// replicaRights are what the documentation adds to the user's rights for a client that reads from replicas.
func replicaRights(t *testing.T) []string {
	return slices.DeleteFunc(documented(t, "Cluster with ReadOnly"), func(w string) bool { return !strings.HasPrefix(w, "+") })
}

// All of it by the documented user.
func TestCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	words := documentedUser(t, "Cluster:")
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
		if reply := s.Do(words...); reply != "+OK" {
			t.Fatal(reply)
		}
	}
	for _, s := range servers[:3] { // as an administrator
		s.Do("FUNCTION", "LOAD", redisstore.Library())
	}
	open := func() *redis.ClusterClient {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: words[2], Password: "password"})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	rdb := open()
	store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}))

	t.Run("Connect", func(t *testing.T) {
		rdb := open()
		connected(t, rdb, rdb.ForEachMaster)
	})
	t.Run("users spread over the masters", func(t *testing.T) {
		lim := core.Must(core.New(store, kinds...))
		for i := range 100 {
			if d, err := lim.Allow(t.Context(), fmt.Sprint("user", i, "{x}"), action); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		total := 0
		for i, s := range servers[:3] {
			var n int
			if _, err := fmt.Sscanf(s.Do("DBSIZE"), ":%d", &n); err != nil {
				t.Fatal(err)
			}
			if n < 15*len(kinds) {
				t.Errorf("master %d has %d keys", i, n)
			}
			total += n
		}
		if total != 100*len(kinds) {
			t.Errorf("%d keys", total)
		}
	})

	t.Run("one command each", func(t *testing.T) {
		count := func() (n int) {
			for _, s := range servers {
				n += calls(t, s.Do, "fcall")
			}
			return n
		}
		before := count()
		lim := core.Must(core.New(store, kinds...))
		for i := range 50 {
			if _, err := lim.Allow(t.Context(), fmt.Sprint("user", i, "{x}"), action); err != nil {
				t.Fatal(err)
			}
		}
		if n := count() - before; n != 50 {
			t.Errorf("50 decisions take %d scripts", n)
		}
		for _, s := range servers {
			if stats := s.Do("INFO", "commandstats"); strings.Contains(stats, "cmdstat_command:") {
				t.Error("the client asks what commands there are")
			}
		}
	})

	t.Run("all calls work", func(t *testing.T) {
		for i := range 10 {
			everyKind(t, store, fmt.Sprint("all ", i))
		}
	})

	t.Run("by a client that reads from replicas", func(t *testing.T) {
		for _, s := range servers {
			s.Do(append([]string{"ACL", "SETUSER", words[2]}, replicaRights(t)...)...)
			s.Do("CONFIG", "RESETSTAT")
		}
		for _, o := range []redis.ClusterOptions{{ReadOnly: true}, {RouteRandomly: true}} {
			o.Addrs, o.Username, o.Password, o.DisableIdentity = addrs, words[2], "password", true
			rdb := redis.NewClusterClient(&o)
			everyKind(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}), user)
			_ = rdb.Close()
			for _, s := range servers {
				if n := errorStat(connect(t, &redis.Options{Addr: s.Addr}), "NOPERM"); n > 0 {
					t.Errorf("%d commands are not permitted", n)
				}
			}
		}
	})

	conforms(t, rdb)

	home := func(to *target) int { // the master that had the slot in the beginning
		return slotOf(t, servers[0], store.Key(to.who, action, to.limit)) * 3 / 16384
	}
	t.Run("slots move under load", func(t *testing.T) { slotsMove(t, servers, open(), home) })
	t.Run("a charge is given back while its slot moves", func(t *testing.T) { givenBackWhileSlotsMove(t, servers, store, home) })
	t.Run("a master that is down concerns its users only", func(t *testing.T) {
		eachForItself(t, redisstore.New(open(), &redisstore.Options{Timeout: patient / 4}), servers[0], servers[2], words)
	})
	t.Run("a master dies under load", func(t *testing.T) { masterDies(t, servers, open(), home) })
}

func slotOf(t testing.TB, server *redistest.Server, key string) (slot int) {
	t.Helper()
	if _, err := fmt.Sscanf(server.Do("CLUSTER", "KEYSLOT", key), ":%d", &slot); err != nil {
		t.Fatal(err)
	}
	return slot
}

// errorStat is how often a server has answered with an error.
func errorStat(rdb *redis.Client, what string) (n int) {
	_, rest, _ := strings.Cut(rdb.Info(context.Background(), "errorstats").Val(), "errorstat_"+what+":count=")
	_, _ = fmt.Sscanf(rest, "%d", &n)
	return n
}

// masterDies kills the third master. Its users' calls fail until its replica is
// elected, nobody else's do, and what the replica had is not forgotten.
func masterDies(t *testing.T, servers []*redistest.Server, rdb *redis.ClusterClient, home func(*target) int) {
	const budget = 500 * time.Millisecond // but on a busy machine one may take longer
	store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}))
	for _, s := range servers {
		s.Do("CONFIG", "SET", "cluster-node-timeout", "1500")
		s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	master, replica := servers[2], servers[5]
	early := targets(store, "early", 3, 5)
	useUp(t, early...)
	level(t, master, replica)
	late := targets(store, "late", 4, 100)
	l := startLoad(t, 8, append(late, early...)...)
	within(t, "the cluster serves", func() bool { return l.well(500) })
	others := map[*target]bool{}
	for _, to := range l.targets {
		others[to] = home(to) != 2
	}
	before := calls(t, replica.Do, "fcall") + calls(t, replica.Do, "evalsha")
	master.Kill()
	killed := time.Now()
	within(t, "the replica is elected", func() bool {
		info, err := replica.Try("INFO", "replication")
		return err == nil && strings.Contains(info, "role:master")
	})
	elected := time.Now()
	within(t, "the cluster serves", func() bool { return l.well(500) })
	n, last, problem := l.failures()
	within(t, "all is used up", l.usedUp)
	l.stop(budget)
	l.atMost(2)
	t.Logf("elected after %s; %d errors until %s later, the last: %v", elected.Sub(killed), n, last.Sub(elected), problem)
	if n == 0 || last.Sub(elected) > soon {
		t.Errorf("%d errors, the last %s after the election: %v", n, last.Sub(elected), problem)
	}
	for _, to := range early {
		if to.passed > 0 {
			t.Errorf("%s: %d passed that the replica knew to be too many", to.limit, to.passed)
		}
	}
	for _, to := range l.targets {
		if to.failed > 0 && others[to] {
			t.Errorf("%s: %d calls to another master failed", to.limit, to.failed)
		}
	}
	// The library is replicated, so the new master has it.
	if n := calls(t, replica.Do, "fcall") + calls(t, replica.Do, "evalsha") - before; n < 500 {
		t.Errorf("the new master has run programs %d times", n)
	}
}

// A Ring shares keys out by itself; all of a user's go to one server.
func TestRing(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t), redistest.Start(t)
	rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr, "two": two.Addr}})
	t.Cleanup(func() { _ = rdb.Close() })
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, kinds...))
	for i := range 40 {
		if d, err := lim.Allow(t.Context(), fmt.Sprint("user", i, "{x}"), action); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	for _, s := range []*redistest.Server{one, two} {
		var n int
		if _, err := fmt.Sscanf(s.Do("DBSIZE"), ":%d", &n); err != nil || n < 8*len(kinds) || n%len(kinds) != 0 {
			t.Errorf("%d keys, %v", n, err)
		}
	}
	for i := range 10 {
		everyKind(t, store, fmt.Sprint("all ", i))
	}
	conforms(t, rdb)
}

// conforms has a client of several servers pass what depends on where keys are. Each subtest has a key space of its own.
func conforms(t *testing.T, rdb redis.UniversalClient) {
	n := 0
	open := func(t testing.TB) storetest.Fixture {
		n++
		opts := &redisstore.Options{Timeout: patient, Prefix: fmt.Sprint("tailcut:suite", n)}
		return storetest.Fixture{Store: redisstore.New(rdb, opts).WithoutLeases(), Now: time.Now, Traces: 40}
	}
	t.Run("conforms", func(t *testing.T) {
		t.Run("Rules", func(t *testing.T) { storetest.Rules(t, open) })
		t.Run("Trace", func(t *testing.T) { storetest.Trace(t, open) })
	})
}
