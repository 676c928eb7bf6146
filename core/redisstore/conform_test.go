//go:build !race

package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A real Redis is asked all that miniredis is not.
func TestMiniredisConforms(t *testing.T) {
	t.Parallel()
	storetest.Rules(t, func(t testing.TB) storetest.Fixture {
		w := miniWorld(t, 3)
		return storetest.Fixture{Store: w.store, Advance: w.advance, Now: func() time.Time { return time.UnixMicro(w.now).UTC() }}
	})
}

// One server serves the whole suite, each subtest in a key space of its own, by functions and the newer protocol.
// By scripts and the older one it serves random histories: TestGoAndLuaDecideAlike runs the same scripts.
func TestRealRedisConforms(t *testing.T) {
	t.Parallel()
	for name, scripts := range map[string]bool{"functions, RESP3": false, "scripts, RESP2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, clock := redistest.StartAt(t, epoch)
			login, suite := &redis.Options{Addr: server.Addr}, storetest.Run
			if scripts {
				login.Protocol, suite = 2, storetest.Trace
			}
			rdb := connect(t, login)
			options := &redisstore.Options{Timeout: patient, NoFunctions: scripts}
			suite(t, func(t testing.TB) storetest.Fixture {
				server.Do("FLUSHALL")
				store, advance := follow(redisstore.New(rdb, options), clock.Now, clock.Advance)
				return storetest.Fixture{Store: store, Advance: advance, Now: clock.Now, Traces: 50}
			})
			if n := calls(t, server.Do, "fcall"); (n > 0) == scripts {
				t.Errorf("functions ran %d times", n)
			}
		})
	}
}

// Nothing depends on how a network cuts replies, or on when they come.
func TestSlowNetworksConform(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*redistest.Proxy){
		"replies come byte by byte": func(p *redistest.Proxy) { p.Split(time.Microsecond) },
		"replies come late": func(p *redistest.Proxy) {
			p.Spoil(func(_ []string, reply []byte) ([]byte, bool) {
				time.Sleep(time.Millisecond)
				return reply, false
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, clock := redistest.StartAt(t, epoch)
			proxy := redistest.StartProxy(t, server.Addr)
			spoil(proxy)
			rdb := connect(t, &redis.Options{Addr: proxy.Addr})
			storetest.Trace(t, func(t testing.TB) storetest.Fixture {
				server.Do("FLUSHALL")
				proxy.Commands() // it keeps them
				store, advance := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), clock.Now, clock.Advance)
				return storetest.Fixture{Store: store, Advance: advance, Now: clock.Now, Traces: 5}
			})
		})
	}
}
