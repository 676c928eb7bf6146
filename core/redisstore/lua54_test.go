//go:build !race

package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Servers with another Lua than 5.1 decide the same: Dragonfly has 5.4, whose division makes floats.
func TestLua54Conforms(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartAt(t, epoch)
	proxy := redistest.StartProxy(t, server.Addr)
	redistest.RunLua54(t, proxy, nil)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr})
	open := func(t testing.TB) storetest.Fixture {
		server.Do("FLUSHALL")
		store, advance := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), clock.Now, clock.Advance)
		return storetest.Fixture{Store: store, Advance: advance, Now: clock.Now, Traces: 50}
	}
	storetest.Trace(t, open)
}

// A server whose scripts are not told the time, as happened with Dragonfly, gives no decision: a state that it
// dates by 1970 has expired as soon as it is written, so all would pass.
func TestNoTimeInScripts(t *testing.T) {
	for name, told := range map[string]string{
		"1970":         "*2\r\n$1\r\n0\r\n$1\r\n0\r\n",
		"since start":  "*2\r\n$5\r\n86400\r\n$6\r\n123456\r\n",
		"nanoseconds":  "*2\r\n$19\r\n1767323045678901000\r\n$1\r\n0\r\n",
		"milliseconds": "*2\r\n$13\r\n1767323045678\r\n$1\r\n0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			redistest.RunLua54(t, proxy, func(command []string) []byte {
				if command[0] == "time" {
					return []byte(told)
				}
				return nil
			})
			store := redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient})
			for _, limit := range kinds {
				lim := core.Must(core.New(store, limit))
				for range 7 {
					d, err := lim.Allow(t.Context(), user, action)
					if err == nil {
						t.Errorf("%s: %+v", limit, d)
						break
					}
					discreet(t, err)
					if !strings.Contains(err.Error(), "TIME") || errors.Is(err, core.ErrKey) {
						t.Fatalf("%v is not an error of the server that names TIME", err)
					}
				}
			}
		})
	}
}
