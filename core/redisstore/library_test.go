package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A server or a proxy says in any words that it has no functions. Scripts decide then, from the first call on,
// each charge is taken once, and little else is sent.
func TestServersWithoutFunctions(t *testing.T) {
	for _, tc := range []struct{ name, command, reply string }{
		{"a user's permissions", "", "-NOPERM this user has no permissions to run FCALL\r\n"},
		{"capitals", "", "-ERR UNKNOWN COMMAND 'FCALL'\r\n"},
		{"no word of functions", "", "-ERR not today\r\n"},
		{"a status", "", "+OK\r\n"},
		{"a hang-up", "", ""},
		{"only the call", "fcall", "-ERR no such thing\r\n"},
		{"only the load", "load", "-ERR command is not allowed\r\n"},
		{"the load hangs up", "load", ""},
		{"a load without memory", "load", "-OOM command not allowed when used memory > 'maxmemory'.\r\n"},
		{"a load that says it has helped", "load", "$7\r\ntailcut\r\n"},
	} {
		for _, connected := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, ", connected ", connected), func(t *testing.T) {
				log := logged(t)
				server, proxy := proxied(t)
				ours := func(c []string) bool {
					switch tc.command {
					case "load":
						return c[0] == "function" && c[1] == "load"
					case "":
						return c[0] == "function" || c[0] == "fcall"
					}
					return c[0] == tc.command
				}
				proxy.Instead(func(c []string) (bool, []byte) { return ours(c), []byte(tc.reply) })
				store := redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient}).AlwaysAsk()
				if connected {
					ready(t, store)
				}
				lim := core.Must(core.New(store, core.FixedWindow(100, time.Hour)))
				for i := range 20 {
					if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Remaining != 99-i {
						t.Fatalf("charge %d: %+v, %v", i, d, err)
					}
				}
				time.Sleep(50 * time.Millisecond) // what finds out goes aside
				loads, charges := 0, 0
				for _, c := range proxy.Commands() {
					switch {
					case c[0] == "function" && c[1] == "load":
						loads++
					case c[0] == "evalsha":
						charges++
					}
				}
				if loads > 1 || charges != 20 {
					t.Errorf("20 charges were sent %d times, and the library %d times", charges, loads)
				}
				if n := calls(t, server.Do, "evalsha"); n < 20 {
					t.Errorf("scripts ran %d times", n)
				}
				if n := strings.Count(log.String(), "redis-no-library"); tc.command == "load" && n != 1 || n > 1 {
					t.Errorf("said %d times: %s", n, log)
				}
			})
		}
	}
}

// A server that regains its functions is found again.
func TestFunctionsAreFoundAgain(t *testing.T) {
	_, proxy := proxied(t)
	proxy.Answer(func(c []string) []byte {
		if c[0] == "function" {
			return []byte("-ERR not now\r\n")
		}
		return nil
	})
	store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient})).AlwaysAsk()
	lim := core.Must(core.New(store, plenty))
	sent := func() string {
		proxy.Commands()
		allow(t, lim)
		return names(proxy.Commands())
	}
	if got := sent(); got != "evalsha eval" && got != "evalsha" {
		t.Errorf("sent %s", got)
	}
	proxy.Answer(nil)
	if got := sent(); got != "evalsha" {
		t.Errorf("sent %s", got)
	}
	store.MinutesPass()
	within(t, "functions decide", func() bool { return sent() == "fcall" })
}

// The store does not call a library whose code is not its own, here one that admits everybody.
func TestALibraryOfSomebodyElse(t *testing.T) {
	for _, resp := range []int{2, 3} {
		log := logged(t)
		server := redistest.Start(t)
		first, rest, _ := strings.Cut(redisstore.Library(), "\n")
		foreign := first + "\n" + strings.NewReplacer("return take(keys, args)", "return {9, 9}").Replace(rest)
		if reply := server.Do("FUNCTION", "LOAD", foreign); !strings.HasPrefix(reply, "tailcut_") || foreign == redisstore.Library() {
			t.Fatal(reply)
		}
		store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: server.Addr, Protocol: resp}), &redisstore.Options{Timeout: patient})).AlwaysAsk()
		lim := core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
		for i := range 10 {
			if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Allowed != (i == 0) {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		if n := calls(t, server.Do, "fcall"); n > 0 {
			t.Errorf("it is called %d times", n)
		}
		if n := strings.Count(log.String(), "redis-foreign-library"); n != 1 {
			t.Errorf("said %d times: %s", n, log)
		}
		server.Do("FUNCTION", "FLUSH")
		store.MinutesPass()
		within(t, "our own decides", func() bool {
			allow(t, lim)
			return calls(t, server.Do, "fcall") > 1
		})
	}
}

// The documented user runs the library that an administrator has loaded.
func TestDocumentedUserRunsTheLibrary(t *testing.T) {
	server := redistest.Start(t)
	words := documented(t, "ACL")
	server.Do(words...)
	server.Do("FUNCTION", "LOAD", redisstore.Library())
	store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: server.Addr, Username: words[2], Password: "password"}), &redisstore.Options{Timeout: patient}))
	allow(t, core.Must(core.New(store, plenty)))
	if n := calls(t, server.Do, "fcall"); n != 2 {
		t.Errorf("functions ran %d times", n)
	}
}
