package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A service behind its proxy decides as a Redis does, alone and under load, and each charge is taken once and in one
// place: that is counted on the servers themselves.
func TestServices(t *testing.T) {
	t.Parallel()
	for _, service := range redistest.Services {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprint(service.Name, ", connected ", connected), func(t *testing.T) {
				t.Parallel()
				proxy, servers := service.Start(t)
				s := &served{T: t, quota: 20}
				for _, server := range servers {
					s.servers = append(s.servers, reliable(t, server.Addr).AlwaysAsk())
				}
				rdb := connect(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
				s.store = redisstore.New(rdb, &redisstore.Options{Timeout: patient}).AlwaysAsk()
				if service.HangsUp {
					if err := s.store.Connect(t.Context()); err == nil {
						t.Error("the client opens a connection with HELLO")
					}
					return
				}
				if connected {
					ready(t, s.store)
				} else {
					allow(t, core.Must(core.New(s.store, plenty)))
				}
				if apart := service.Together != "" || service.Servers > 1; connected && s.store.Joins("a", "b") == apart {
					t.Errorf("keys are sent together: %t", apart)
				} else if apart {
					within(t, "it is known how keys are sent", func() bool { return !s.store.Joins("a", "b") })
				}
				s.alone()
				s.under()
			})
		}
	}
}

// served is a store on a service, and one on each of the servers behind it.
type served struct {
	*testing.T
	quota   int
	store   *redisstore.Store
	servers []*redisstore.Store
}

// taken returns how many units of a limit of a user are taken, on one of the servers.
func (s *served) taken(who string, limit core.Limit) (n int) {
	s.Helper()
	where := 0
	for _, server := range s.servers {
		if here := charged(s, server, who, limit); here > 0 {
			n += here
			where++
		}
	}
	if where > 1 {
		s.Errorf("%s has states on %d servers", who, where)
	}
	return n
}

// alone makes calls of each kind, one after the other.
func (s *served) alone() {
	ctx := s.Context()
	fixed := core.FixedWindow(s.quota, time.Hour)
	lim := core.Must(core.Must(core.New(s.store, fixed)).With(core.Refundable{}))
	holds := func(what string, n int, err error) {
		s.Helper()
		if got := s.taken("solo", fixed); err != nil || got != n {
			s.Errorf("%s: %v; %d are taken, want %d", what, err, got, n)
		}
	}
	d, err := lim.AllowN(ctx, "solo", action, 3)
	holds("a charge", 3, err)
	holds("a part refunded", 1, lim.RefundN(ctx, d, 2))
	both := core.Must(core.New(s.store, fixed, core.SlidingWindow(s.quota, time.Minute)))
	_, err = both.Allow(ctx, "solo", action)
	holds("two limits", 2, err)
	_, err = lim.Wait(ctx, "solo", action)
	holds("Wait", 3, err)
	d, err = core.All(ctx, lim.For("solo", action), lim.For("duo", action))
	holds("All", 4, errors.Join(err, s.allowed(d)))
	if n := s.taken("duo", fixed); n != 1 {
		s.Errorf("All: %d of the other are taken", n)
	}
	holds("Reset", 0, lim.Reset(ctx, "solo", action))

	slots := core.InFlight(2).Lease(time.Hour)
	lim = core.Must(core.New(s.store, slots))
	d, err = lim.Allow(ctx, "solo", action)
	if err = errors.Join(err, lim.Renew(ctx, d)); err != nil || s.taken("solo", slots) != 1 {
		s.Errorf("a slot: %v", err)
	}
	if err = lim.Release(ctx, d); err != nil || s.taken("solo", slots) != 0 {
		s.Errorf("Release: %v", err)
	}
}

func (s *served) allowed(d core.Decision) error {
	if !d.Allowed {
		return errors.New("refused")
	}
	return nil
}

// under has 50 goroutines decide about 200 users, who together ask for half of what they may, and for two actions each
// in one step with another user.
func (s *served) under() {
	const users, callers, each = 200, 50, 20
	fixed := core.FixedWindow(1000, time.Hour)
	lim := core.Must(core.New(core.Fallback(s.store, memorystore.New(nil)), fixed))
	var passed [users]atomic.Int64
	var decided, others atomic.Int64
	pass := func(d core.Decision, err error, who ...int) {
		decided.Add(1)
		if err != nil || !d.Allowed || d.Source != core.SourceStore {
			if others.Add(1) == 1 {
				s.Logf("%+v, %v", d, err)
			}
			return
		}
		for _, u := range who {
			passed[u].Add(1)
		}
	}
	name := func(u int) string { return fmt.Sprint("user ", u) }
	together(callers, func(int) {
		for i := range each {
			u := rand.IntN(users)
			if v := (u + 1 + rand.IntN(users-1)) % users; i%10 == 9 {
				d, err := core.All(s.Context(), lim.For(name(u), action), lim.For(name(v), action))
				pass(d, err, u, v)
				continue
			}
			d, err := lim.Allow(s.Context(), name(u), action)
			pass(d, err, u)
		}
	})
	if n, of := others.Load(), decided.Load(); n*100 > of {
		s.Errorf("%d of %d decisions are not Redis's", n, of)
	}
	for u := range users {
		if got, want := s.taken(name(u), fixed), int(passed[u].Load()); got != want {
			s.Errorf("%d charges of %s are taken, and %d were answered", got, name(u), want)
		}
	}
}

// A service may begin to refuse keys that are together, in any words. No decision is lost for it, or charged twice.
func TestServiceBeginsToRefuseKeysTogether(t *testing.T) {
	for _, words := range []string{"CROSSSLOT Keys in request don't hash to the same slot", "ERR not today", "computer says no"} {
		t.Run(words, func(t *testing.T) {
			proxy, servers := redistest.Service{}.Start(t)
			rdb := connect(t, &redis.Options{Addr: proxy.Addr})
			s := &served{T: t, store: ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient})).AlwaysAsk(), servers: []*redisstore.Store{reliable(t, servers[0].Addr)}}
			proxy.Instead(redistest.Service{Together: words}.Answer)
			s.under()
			if s.store.Joins("a", "b") {
				t.Error("keys are sent together")
			}
		})
	}
}

// A server that is lost may have charged a batch. Whatever the proxy says then, the batch is not sent again.
func TestBatchThatMayBeChargedIsNotRepeated(t *testing.T) {
	server, proxy := proxied(t)
	store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient})).AlwaysAsk()
	var lost atomic.Int64
	proxy.Spoil(func(c []string, reply []byte) ([]byte, bool) {
		if c[0] != "fcall" || c[2] == "1" || strings.HasPrefix(c[len(c)-1], "p ") {
			return reply, false
		}
		lost.Add(1)
		return []byte("-ERR redis temporary failure, keys of a slot\r\n"), false
	})
	lim := core.Must(core.New(store, plenty))
	const callers, each = 30, 20
	var failed atomic.Int64
	together(callers, func(i int) {
		for range each {
			if _, err := lim.Allow(t.Context(), fmt.Sprint("user ", i), action); err != nil {
				failed.Add(1)
			}
		}
	})
	direct, taken := reliable(t, server.Addr), 0
	for i := range callers {
		taken += charged(t, direct, fmt.Sprint("user ", i), plenty)
	}
	if taken != callers*each || failed.Load() == 0 || lost.Load() == 0 || !store.Joins("a", "b") {
		t.Errorf("%d of %d are charged, %d calls failed, %d batches were lost, keys may be together: %t", taken, callers*each, failed.Load(), lost.Load(), store.Joins("a", "b"))
	}
}

// Of two servers behind one address one has the library. It is looked for at most once a second.
func TestLibraryOnOneOfTwoServers(t *testing.T) {
	t.Parallel()
	proxy, servers := redistest.Service{Servers: 2}.Start(t)
	store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient})).AlwaysAsk()
	servers[1].Do("FUNCTION", "FLUSH")
	proxy.Commands()
	lim := core.Must(core.New(store, plenty))
	start := time.Now()
	for i := range 40 {
		if _, err := lim.Allow(t.Context(), fmt.Sprint("user ", i), action); err != nil {
			t.Fatal(err)
		}
	}
	looks, most := 0, 1+int(time.Since(start)/time.Second)
	for _, c := range proxy.Commands() {
		if c[0] == "function" && c[1] == "list" {
			looks++
		}
	}
	if looks > most {
		t.Errorf("40 decisions looked %d times, want at most %d", looks, most)
	}
	within(t, "calls are sent alone", func() bool {
		_, _ = lim.Allow(t.Context(), fmt.Sprint("user ", rand.IntN(40)), action)
		return !store.Joins("a", "b")
	})
}

// A service that reads scripts may refuse them. Connect and the log say which setting lets them run.
func TestServiceThatRefusesTheScript(t *testing.T) {
	log := logged(t)
	_, proxy := proxied(t)
	proxy.Answer(func(c []string) []byte {
		switch {
		case c[0] == "function" || c[0] == "fcall":
			return []byte("-ERR unknown command '" + c[0] + "'\r\n")
		case strings.HasPrefix(c[0], "eval"):
			return []byte("-ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array, and KEYS should not be in expression\r\n")
		}
		return nil
	})
	store := redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient})
	for range 2 {
		err := store.Connect(t.Context())
		if discreet(t, err); err == nil || !strings.Contains(err.Error(), "permit +evalsha and +eval") || !strings.Contains(err.Error(), "script_check_enable") {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "redis-no-scripts"); n != 1 || !strings.Contains(log.String(), "script_check_enable") {
		t.Errorf("said %d times: %s", n, log)
	}
	proxy.Commands()
	lim := core.Must(core.New(store, plenty))
	for range 5 {
		_, _ = lim.Allow(t.Context(), user, action)
	}
	for _, c := range proxy.Commands() {
		if c[0] == "function" {
			t.Error("it looks for the library again at once")
		}
	}
}
