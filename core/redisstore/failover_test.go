package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// soon is how long after an election all must be well again: a second or so, and what
// a busy machine adds.
const soon = 5 * time.Second

// A Sentinel set's master is killed under load: errors end with the election, what the
// replica had is not forgotten, and what it had not is at most a quota. All of it by the
// documented user.
func TestSentinelFailover(t *testing.T) {
	noLeak(t)
	const name, budget = "limits", 250 * time.Millisecond
	master, replica, sentinels := redistest.StartSentinels(t, name)
	var addrs []string
	for _, s := range sentinels {
		addrs = append(addrs, s.Addr)
	}
	words := documented(t, "ACL")
	for _, s := range []*redistest.Server{master, replica} {
		if reply := s.Do(words...); reply != "+OK" {
			t.Fatal(reply)
		}
	}
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name, SentinelAddrs: addrs, Username: words[2], Password: "password"})
	t.Cleanup(func() { _ = rdb.Close() })
	if reply := master.Do("FUNCTION", "LOAD", redisstore.Library()); !strings.HasPrefix(reply, "tailcut_") { // as an administrator
		t.Fatal(reply)
	}
	store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: budget}))
	early := targets(store, "early", 1, 5)
	useUp(t, early...)
	level(t, master, replica)

	late := targets(store, "late", 3, 100)
	l := startLoad(t, 8, append(late, early...)...)
	within(t, "the master serves", func() bool { return l.well(500) })
	master.Kill()
	killed := time.Now()
	within(t, "the sentinels elect the replica", func() bool {
		info, err := replica.Try("INFO", "replication")
		return err == nil && strings.Contains(info, "role:master")
	})
	elected := time.Now()
	within(t, "the replica serves", func() bool { return l.well(500) })
	n, last, problem := l.failures()
	within(t, "all is used up", l.usedUp)
	l.stop(budget)
	l.atMost(2)
	for _, to := range early {
		if to.passed > 0 {
			t.Errorf("%s: %d passed that the replica knew to be too many", to.limit, to.passed)
		}
	}
	t.Logf("elected after %s; %d errors until %s later, the last: %v", elected.Sub(killed), n, last.Sub(elected), problem)
	if n == 0 || last.Sub(elected) > soon {
		t.Errorf("%d errors, the last %s after the election: %v", n, last.Sub(elected), problem)
	}
	// The library is replicated, so the new master has it.
	if loads, functions := calls(t, replica.Do, "function|load"), calls(t, replica.Do, "fcall"); loads > 1 || functions < 1000 {
		t.Errorf("the new master was sent the library %d times, and has run functions %d times", loads, functions)
	}
}

// A name in front of two servers is moved from a master that becomes a replica. The client
// closes the connection on which it was told READONLY, and so finds the new master.
func TestTheClientLeavesADemotedMaster(t *testing.T) {
	old, next := redistest.Start(t), redistest.Start(t)
	var addr atomic.Pointer[string]
	addr.Store(&old.Addr)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *addr.Load())
	}
	var limiters []*core.Limiter
	for _, l := range kinds {
		rdb := connect(t, &redis.Options{ContextTimeoutEnabled: true, Dialer: dial})
		limiter := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), l))
		allow(t, limiter)
		limiters = append(limiters, limiter)
	}
	host, port, _ := net.SplitHostPort(next.Addr)
	old.Do("REPLICAOF", host, port)
	addr.Store(&next.Addr)
	for i, limiter := range limiters {
		within(t, kinds[i].String()+" is decided by the new master", func() bool {
			_, err := limiter.Allow(t.Context(), user, "another")
			return err == nil
		})
	}
}

// With too few replicas Redis refuses a function whole, and a script only when it writes.
func TestTooFewReplicas(t *testing.T) {
	server := redistest.Start(t)
	for _, scripts := range []bool{false, true} {
		server.Do("CONFIG", "SET", "min-replicas-to-write", "0")
		store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient, NoFunctions: scripts})).AlwaysAsk()
		l := core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
		who := fmt.Sprint("scripts ", scripts)
		if _, err := l.Allow(t.Context(), who, action); err != nil {
			t.Fatal(err)
		}
		server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		for name, ask := range map[string]func(context.Context, string, string) (core.Decision, error){"Peek": l.Peek, "Allow": l.Allow} {
			d, err := ask(t.Context(), who, action)
			if scripts && (err != nil || d.Allowed) || !scripts && !redis.HasErrorPrefix(errors.Unwrap(err), "NOREPLICAS") {
				t.Errorf("%s, scripts: %t: %+v, %v", name, scripts, d, err)
			}
		}
		if _, err := l.Allow(t.Context(), "another", action); err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
			t.Errorf("a charge, scripts: %t: %v", scripts, err)
		}
	}
}

// A Cluster's client repeats a command that a replica has refused. Nothing was written.
func TestAReplicaChargesNothing(t *testing.T) {
	t.Parallel()
	server, proxy := proxied(t)
	rdb := clients[3].open(proxy.Addr)
	defer rdb.Close()
	store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}))
	direct := reliable(t, server.Addr)
	if _, err := core.Must(core.New(store, kinds...)).Allow(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for _, l := range kinds {
		proxy.Commands()
		refusedBy(t, store, "READONLY", l)
		refusedBy(t, store, "READONLY", append([]core.Limit{l.Named("first")}, kinds...)...)
		if got := strings.Count(names(proxy.Commands()), "fcall"); got < 4 {
			t.Errorf("%s: sent %d times: the client repeats nothing", l, got)
		}
	}
	server.Do("REPLICAOF", "NO", "ONE")
	for _, l := range kinds {
		if n := charged(t, direct, user, l); n != 1 {
			t.Errorf("%s: %d are charged, not 1", l, n)
		}
	}
}
