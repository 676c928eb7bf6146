package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A connection takes several round trips to open, and so may take longer than a decision.
func TestConnectionThatTakesLongToOpen(t *testing.T) {
	server := redistest.Start(t)
	for _, enabled := range []bool{false, true} {
		rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: enabled, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
			c, err := net.Dial(network, addr)
			return &slowToOpen{Conn: c}, err
		}})
		lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
		within(t, fmt.Sprint("it is open, ContextTimeoutEnabled: ", enabled), func() bool {
			_, err := lim.Allow(t.Context(), user, action)
			return err == nil
		})
	}
}

// slowToOpen is a connection with a server whose first replies are late.
type slowToOpen struct {
	net.Conn
	replies int
}

func (c *slowToOpen) Read(b []byte) (int, error) {
	if c.replies++; c.replies <= 3 {
		time.Sleep(25 * time.Millisecond)
	}
	return c.Conn.Read(b)
}

func TestAnExhaustedPool(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, PoolSize: 1})
	store := redisstore.New(rdb, nil)
	lim := core.Must(core.New(store, kinds[0]))
	conn := rdb.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil { // has it now
		t.Fatal(err)
	}
	together(20, func(int) {
		start := time.Now()
		d, err := lim.Allow(t.Context(), user, action)
		if took := time.Since(start); took > 50*time.Millisecond+slack {
			t.Errorf("it took %s", took)
		}
		if !errors.Is(err, redisstore.ErrTimeout) || d != (core.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	idle(t, store)
	if n := charged(t, reliable(t, server.Addr), user, kinds[0]); n != 0 {
		t.Errorf("%d are charged that were not sent", n)
	}
	if c := proxy.Commands(); len(c) != 0 {
		t.Errorf("sent: %s", names(c))
	}
	within(t, "it works again", func() bool {
		d, err := lim.Allow(t.Context(), user, action)
		return err == nil && d.Allowed
	})
}

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
