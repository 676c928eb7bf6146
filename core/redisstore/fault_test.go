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
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A site is a server, what stands before it, and its users.
type site struct {
	t       *testing.T
	server  *redistest.Server
	proxy   *redistest.Proxy
	targets []*target
	keys    []string // of the targets
}

// overwrite puts something else in the place of every state, at once, since a key that
// is gone for a moment is a quota.
func (s *site) overwrite(command, word string) (mend func()) {
	for _, k := range s.keys {
		s.server.Do(command, "other", word)
		s.server.Do("RENAME", "other", k)
	}
	return func() { s.server.Do(append([]string{"DEL"}, s.keys...)...) }
}

func (s *site) config(words ...string) {
	s.t.Helper()
	if reply := s.server.Do(append([]string{"CONFIG", "SET"}, words...)...); reply != "+OK" {
		s.t.Fatalf("%s: %s", words, reply)
	}
}

func (s *site) acl(words ...string) {
	s.t.Helper()
	if reply := s.server.Do(append([]string{"ACL", "SETUSER", "app"}, words...)...); reply != "+OK" {
		s.t.Fatalf("%s: %s", words, reply)
	}
}

// corrupt is a fault of the replies to what the server has done.
func corrupt(f redistest.Fault) func(*site) func() {
	return func(s *site) func() {
		s.proxy.Spoil(f)
		return func() { s.proxy.Spoil(nil) }
	}
}

// instead is an error that the server answers everything with.
func instead(text string) func(*site) func() {
	return func(s *site) func() {
		s.proxy.Answer(func(command []string) []byte {
			if slices.Contains([]string{"fcall", "evalsha", "eval"}, command[0]) {
				return []byte("-" + text + "\r\n")
			}
			return nil
		})
		return func() { s.proxy.Answer(nil) }
	}
}

// matrix is what may happen to a Redis. quotas bounds what passes of each user in all,
// before the fault, under it and after it: a quota in Redis, and one in the process if
// that has to decide, and one more if Redis has forgotten everybody.
var matrix = []struct {
	name   string
	quotas int
	direct bool // without a proxy in between
	absent bool // the fault is there from the start
	unseen bool // nobody notices
	hold   time.Duration
	fault  func(s *site) (mend func())
}{
	{name: "kill -9, and it comes back empty", quotas: 3, direct: true, fault: func(s *site) func() {
		s.server.Kill()
		return s.server.Run
	}},
	{name: "it is not there when the program starts", quotas: 2, direct: true, absent: true, fault: func(s *site) func() {
		s.server.Kill()
		return s.server.Run
	}},
	{name: "SIGSTOP for 3 s", quotas: 2, direct: true, hold: 3 * time.Second, fault: func(s *site) func() {
		s.server.Pause()
		return s.server.Resume
	}},
	{name: "connections end in mid-reply", quotas: 2, fault: corrupt(func(_ []string, reply []byte) ([]byte, bool) { return reply[:len(reply)/2], true })},
	{name: "connections end before the reply", quotas: 2, fault: corrupt(func([]string, []byte) ([]byte, bool) { return nil, true })},
	{name: "replies are late", quotas: 2, fault: corrupt(func(_ []string, reply []byte) ([]byte, bool) {
		time.Sleep(300 * time.Millisecond)
		return reply, false
	})},
	{name: "replies are lost after it has run the command", quotas: 2, fault: corrupt(lose)},
	{name: "garbage", quotas: 2, fault: corrupt(say("\x00\xff garbage\r\n"))},
	{name: "an answer without a verdict", quotas: 2, fault: corrupt(say("*0\r\n"))},
	{name: "SCRIPT FLUSH, again and again", quotas: 1, unseen: true, fault: func(s *site) func() {
		for range 20 {
			s.server.Do("SCRIPT", "FLUSH")
			time.Sleep(10 * time.Millisecond)
		}
		return func() {}
	}},
	{name: "out of memory, noeviction", quotas: 2, direct: true, fault: func(s *site) func() {
		s.config("maxmemory-policy", "noeviction")
		s.config("maxmemory", "1")
		return func() { s.config("maxmemory", "0") }
	}},
	{name: "out of memory, and all is evicted", quotas: 3, direct: true, fault: func(s *site) func() {
		s.config("maxmemory-policy", "allkeys-lru")
		s.config("maxmemory", "1")
		return func() { s.config("maxmemory", "0") }
	}},
	{name: "READONLY after a demotion", quotas: 2, direct: true, fault: func(s *site) func() {
		s.server.Do("REPLICAOF", "127.0.0.1", "1")
		return func() { s.server.Do("REPLICAOF", "NO", "ONE") }
	}},
	{name: "NOPERM", quotas: 2, direct: true, fault: func(s *site) func() {
		s.acl("-fcall", "-evalsha", "-eval")
		return func() { s.acl("+fcall", "+evalsha", "+eval") }
	}},
	{name: "WRONGPASS", quotas: 2, direct: true, fault: func(s *site) func() {
		s.acl("resetpass", ">other")
		s.server.Do("CLIENT", "KILL", "USER", "app")
		return func() { s.acl("resetpass", ">pass") }
	}},
	{name: "NOAUTH", quotas: 2, fault: instead("NOAUTH Authentication required.")},
	{name: "LOADING", quotas: 2, fault: instead("LOADING Redis is loading the dataset in memory")},
	{name: "WRONGTYPE in every key", quotas: 3, direct: true, fault: func(s *site) func() {
		return s.overwrite("LPUSH", "a list")
	}},
	{name: "nonsense in every key", quotas: 3, direct: true, fault: func(s *site) func() {
		return s.overwrite("SET", "nonsense")
	}},
}

// These faults are tested on real Redis under load, with core.Fallback and one process. Users get no errors, and no call
// takes longer than the timeout. Nobody does more than is said, and Redis decides again soon after its return.
func TestFaults(t *testing.T) {
	redistest.Need(t, false)
	noLeak(t)
	log := logged(t)
	t.Run("under load", func(t *testing.T) {
		for _, tc := range matrix {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				const quota, enough = 20, 200
				budget := 50 * time.Millisecond
				if tc.unseen {
					budget = time.Second // or a busy machine may be noticed
				}
				server := redistest.Start(t, "user app on >pass ~* +@all")
				s := &site{t: t, server: server, proxy: redistest.StartProxy(t, server.Addr)}
				opts := &redis.Options{Addr: s.proxy.Addr, Username: "app", Password: "pass", ContextTimeoutEnabled: true}
				if tc.hold > 0 { // the budget is not the client's doing
					opts.ContextTimeoutEnabled = false
				}
				if tc.direct {
					opts.Addr = server.Addr
				}
				store := redisstore.New(connect(t, opts), &redisstore.Options{Timeout: budget})
				s.targets = targets(core.Fallback(store, memorystore.New(nil)), user, 2, quota)
				for _, to := range s.targets {
					s.keys = append(s.keys, store.Key(to.who, action, to.limit))
				}

				var mend func()
				if tc.absent {
					mend = tc.fault(s)
				}
				l := startLoad(t, 6, s.targets...)
				if !tc.absent {
					within(t, "Redis decides", func() bool { return l.well(enough) })
					mend = tc.fault(s)
				}
				start := time.Now()
				l.restart()
				time.Sleep(max(tc.hold, 300*time.Millisecond))
				within(t, "all is used up under the fault", l.usedUp)
				if _, bad, err := l.failures(); bad.After(start) == tc.unseen {
					t.Errorf("whether Redis did not answer: %t, %v", !tc.unseen, err)
				}
				mend()
				mended := time.Now()
				within(t, "Redis decides again", func() bool { return l.well(enough) })
				_, bad, _ := l.failures()
				if late := bad.Sub(mended); late > soon {
					t.Errorf("it took %s to be well again", late)
				}
				l.restart()
				within(t, "all is used up afterwards", l.usedUp)
				l.stop(budget)
				l.atMost(tc.quotas)
				n, bad, err := l.failures()
				if n > 0 {
					t.Errorf("%d calls failed: %v", n, err)
				}
				t.Logf("well again after %s", max(0, bad.Sub(mended)).Round(time.Millisecond))
			})
		}
	})
	for _, secret := range []string{user, "geheim", action, "tailcut:"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log names the user:\n%s", log)
		}
	}
	if n := strings.Count(log.String(), "its fallback decides"); n < 1 || n > len(matrix) {
		t.Errorf("it is said %d times, of %d faults:\n%s", n, len(matrix), log)
	}
}

// What is evicted is forgiven, and no more than that.
func TestEvictionForgives(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	l := startLoad(t, 6, targets(reliable(t, server.Addr), user, 4, 20)...)
	within(t, "all is used up", l.usedUp)
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	server.Do("CONFIG", "SET", "maxmemory", fmt.Sprint(infoOf(t, rdb, "memory", "used_memory")+1_000_000))
	within(t, "some are evicted", func() bool {
		for i := range 100 {
			rdb.Set(t.Context(), fmt.Sprint("ballast", i, time.Now().UnixNano()), strings.Repeat("x", 1000), 0)
		}
		return rdb.Exists(t.Context(), "none").Err() == nil && infoOf(t, rdb, "stats", "evicted_keys") > 5000
	})
	server.Do("CONFIG", "SET", "maxmemory", "0")
	l.restart()
	within(t, "all is used up", l.usedUp)
	l.stop(patient)
	passed := 0
	for _, to := range l.targets {
		passed += to.passed
	}
	users, evicted := len(l.targets), infoOf(t, rdb, "stats", "evicted_keys")
	if passed > 20*(users+evicted) || passed <= 20*users {
		t.Errorf("%d passed of %d users, and %d keys were evicted", passed, users, evicted)
	}
}

// infoOf is a number that the server says of itself.
func infoOf(t testing.TB, rdb *redis.Client, section, name string) (n int) {
	t.Helper()
	_, rest, ok := strings.Cut(rdb.Info(context.Background(), section).Val(), "\r\n"+name+":")
	if _, err := fmt.Sscanf(rest, "%d", &n); !ok || err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
