package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A refused connection is said as such, long before the timeout, whatever the client is. In a bubble a
// busy machine takes no time.
func TestConnectionRefused(t *testing.T) {
	for _, c := range clients {
		if c.name == "AutoPipeline" { // does not say where it sends to
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				log := logged(t)
				rdb := c.open(closed)
				if c.name == "Ring" { // by default it soon finds that all of its shards are down
					_ = rdb.Close()
					rdb = redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": closed}, HeartbeatFrequency: time.Hour})
				}
				defer rdb.Close()
				store := redisstore.New(rdb, nil)
				bare := core.Must(core.New(store, kinds[0]))
				for i := range 3 {
					start := time.Now()
					_, err := bare.Allow(t.Context(), user, action)
					discreet(t, err)
					if took := time.Since(start); took > 10*time.Millisecond || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "connection refused") {
						t.Errorf("call %d, after %s: %v", i, took, err)
					}
				}
				behind := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), kinds[0]))
				for range 3 {
					if d, err := behind.Allow(t.Context(), user, action); err != nil || d.Source != core.SourceFallback {
						t.Errorf("%+v, %v", d, err)
					}
				}
				if !strings.Contains(log.String(), "connection refused") {
					t.Errorf("the log says: %s", log)
				}
				time.Sleep(10 * time.Second) // the client tries for longer
			})
		})
	}
}

// However often it was refused, the first call after the server is back is decided: the
// client has not failed so often that it tries once a second only.
func TestFirstCallAfterRefusals(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr, PoolSize: 5})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient / 4})
	lim := core.Must(core.New(store, kinds[0]))
	if _, err := lim.Peek(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	refused := 0
	for range 50 {
		if _, err := lim.Peek(t.Context(), user, action); errors.Is(err, syscall.ECONNREFUSED) {
			refused++
		}
	}
	if refused < 40 {
		t.Errorf("refused %d times", refused)
	}
	server.Run()
	start := time.Now()
	if _, err := lim.Peek(t.Context(), user, action); err != nil {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
}

// The error of a dialer is that of the call, and a dialer that panics harms nobody.
func TestDialersError(t *testing.T) {
	noLeak(t)
	broken := errors.New("no such host")
	for name, tt := range map[string]struct {
		dial func() (net.Conn, error)
		want error
	}{
		"fails":  {func() (net.Conn, error) { return nil, broken }, broken},
		"panics": {func() (net.Conn, error) { panic("a bug in a dialer") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			logged(t)
			rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return tt.dial() }})
			defer rdb.Close()
			lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: time.Second}), kinds[0]))
			for range 3 {
				if _, err := lim.Allow(t.Context(), user, action); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// What one shard of a Ring does concerns its users only.
func TestOneShardFails(t *testing.T) {
	noLeak(t)
	logged(t)
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
		logged(t)
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

// If the caller's deadline and the timeout end at once, the caller is told of its own.
func TestCallersDeadlineAtTheTimeout(t *testing.T) {
	for range 100 {
		bubble(t, func(t *testing.T) {
			rdb, hangUp := mute()
			lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := lim.Allow(ctx, user, action); err != context.DeadlineExceeded {
				t.Errorf("%v", err)
			}
			time.Sleep(10 * time.Second)
			hangUp()
		})
	}
}

// A panic while a connection is opened costs the client's pool a place for good; the log
// says so once a minute.
func TestAPanicInTheHandshakeIsLogged(t *testing.T) {
	log := logged(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	rdb.AddHook(before(func(cmd redis.Cmder) error {
		if cmd.Name() == "hello" {
			panic("a bug in a hook")
		}
		return nil
	}))
	lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			_, err := lim.Allow(t.Context(), user, action)
			discreet(t, err)
		})
	}
	wg.Wait()
	within(t, "it is said", func() bool { return strings.Contains(log.String(), "code=redis-panic") })
	if n := strings.Count(log.String(), "code=redis-panic"); n != 1 {
		t.Errorf("said %d times: %s", n, log)
	}
}
