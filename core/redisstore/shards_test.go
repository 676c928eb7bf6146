package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// What one shard of a Ring does concerns its users only.
func TestOneShardFails(t *testing.T) {
	noLeak(t)
	servers := map[string]*redistest.Server{}
	addrs := map[string]string{}
	for _, name := range []string{"one", "two"} {
		servers[name] = redistest.Start(t)
		addrs[name] = servers[name].Addr
	}
	rdb := redis.NewRing(&redis.RingOptions{Addrs: addrs, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { _ = rdb.Close() })
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient / 4})
	eachForItself(t, store, servers["one"], servers["two"], []string{"PING"})
}

// eachForItself kills the second server under users of both, and starts it again with a
// first command.
func eachForItself(t *testing.T, store *redisstore.Store, up, dead *redistest.Server, first []string) {
	t.Helper()
	lim := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), plenty))
	if _, err := lim.Allow(t.Context(), "anybody", action); err != nil {
		t.Fatal(err)
	}
	users := map[string][]string{}
	for i := range 100 {
		who := fmt.Sprint("user ", i)
		users[store.Part(who)] = append(users[store.Part(who)], who)
	}
	if len(users[up.Addr]) < 5 || len(users[dead.Addr]) < 5 {
		t.Fatalf("users are at %v", users)
	}
	dead.Kill()
	for i := range 20 {
		for range 5 { // in a row
			if d, err := lim.Allow(t.Context(), users[dead.Addr][i%5], action); err != nil || d.Source != core.SourceFallback {
				t.Errorf("a user of the dead server: %+v, %v", d, err)
			}
		}
		if d, err := lim.Allow(t.Context(), users[up.Addr][i%5], action); err != nil || d.Source != core.SourceStore {
			t.Errorf("a user of the other server: %+v, %v", d, err)
		}
	}
	dead.Run()
	dead.Do(first...)
	back := time.Now()
	within(t, "all are decided there again", func() bool {
		d, err := lim.Allow(t.Context(), users[dead.Addr][0], action)
		return err == nil && d.Source == core.SourceStore
	})
	took := time.Since(back)
	t.Logf("decided there again after %s", took)
	if took > 2500*time.Millisecond+slack { // a Cluster's master refuses for two seconds
		t.Error("it took too long")
	}
}

// A slot that is moved, or has no master, concerns its users only.
func TestAnErrorOfClusterSlotsIsNotAnOutage(t *testing.T) {
	for _, text := range []string{"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN Hash slot not served"} {
		_, proxy := proxied(t)
		rdb := clients[3].open(proxy.Addr)
		t.Cleanup(func() { _ = rdb.Close() })
		store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}))
		lim := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), plenty))
		proxy.Answer(func(command []string) []byte {
			if command[0] == "fcall" && len(command) > 3 && strings.Contains(command[3], "moved") {
				return []byte("-" + text + "\r\n")
			}
			return nil
		})
		for range 10 {
			if d, err := lim.Allow(t.Context(), "moved", action); err != nil || d.Source != core.SourceFallback {
				t.Errorf("%+v, %v", d, err)
			}
		}
		if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Source != core.SourceStore {
			t.Errorf("another user: %+v, %v", d, err)
		}
		_, err := core.Must(core.New(store, plenty)).Allow(t.Context(), "moved", action)
		if discreet(t, err); !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v", err)
		}
	}
}

// Part does not wait for a cluster that nobody has reached yet.
func TestPartDoesNotBlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{closed}, Dialer: func(context.Context, string, string) (net.Conn, error) {
			t.Error("it dials")
			return nil, errors.New("none")
		}})
		defer rdb.Close()
		if part := redisstore.New(rdb, nil).Part(user); part != "" {
			t.Errorf("%q", part)
		}
	})
}

// A server that hangs, and a client that heeds deadlines: each batch costs a connection, so
// there are few.
func TestAHungServerIsSentLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rdb, hangUp := mute()
		var dials atomic.Int64
		o := rdb.Options()
		dial := o.Dialer
		counting := redis.NewClient(&redis.Options{Addr: o.Addr, ContextTimeoutEnabled: true, PoolSize: 1000, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, addr)
		}})
		lim := core.Must(core.New(redisstore.New(counting, nil), plenty))
		start := time.Now()
		const lasts = 10 * time.Second
		together(50, func(i int) {
			for time.Since(start) < lasts {
				if _, err := lim.Allow(t.Context(), fmt.Sprint(user, i), action); !errors.Is(err, redisstore.ErrTimeout) {
					t.Errorf("%v", err)
				}
			}
		})
		if n := dials.Load(); n > 32+10*10 {
			t.Errorf("%d connections in %s", n, lasts)
		}
		time.Sleep(10 * time.Second)
		_ = counting.Close()
		hangUp()
	})
}

// A shard that hangs takes no other with it.
func TestRingsShardsAnswerEachForItself(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"a": a.Addr, "b": b.Addr},
		HeartbeatFrequency: time.Hour, // it is to stay in the ring
	})
	t.Cleanup(func() { _ = ring.Close() })
	lim := core.Must(core.New(redisstore.New(ring, &redisstore.Options{Timeout: patient}), plenty))
	users := map[bool][]string{}
	for i := 0; len(users[true]) < 8 || len(users[false]) < 8; i++ {
		name := fmt.Sprint("user", i)
		if _, err := lim.Allow(t.Context(), name, action); err != nil {
			t.Fatal(err)
		}
		onA := a.Do("EXISTS", "tailcut:{"+name+"}:"+action+":"+plenty.Identity()) == ":1"
		users[onA] = append(users[onA], name)
	}
	a.Pause()
	defer a.Resume()
	var hang, well sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 8 {
		hang.Go(func() { // what asks the one that hangs
			if _, err := lim.Allow(ctx, users[true][i], action); err != context.Canceled {
				t.Errorf("%v, not the caller's own", err)
			}
		})
		well.Go(func() {
			for range 300 {
				if _, err := lim.Allow(t.Context(), users[false][i], action); err != nil {
					t.Errorf("the shard that is well: %v", err)
					return
				}
			}
		})
	}
	well.Wait()
	cancel()
	hang.Wait()
}

// Charges of several users cannot go together to a node of a cluster.
func TestClusterNodeBehindAPlainClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "cluster-enabled yes", "cluster-config-file nodes.conf")
	server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	within(t, "the cluster is up", func() bool { return server.Do("SET", "a", "b") == "+OK" })
	lim := core.Must(core.New(redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient}), plenty))
	together(50, func(g int) {
		for i := range 20 {
			name := fmt.Sprint("user", g, i)
			if d, err := lim.Allow(t.Context(), name, action); err != nil || d.Remaining != plenty.Quota()-1 {
				t.Errorf("%+v, %v", d, err)
			}
		}
	})
}
