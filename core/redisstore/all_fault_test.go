package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// Replies to decisions about several subjects are lost, and connections end after Redis has run the
// command. All subjects of a decision are charged or none, none twice, and none above its limit.
func TestLostRepliesOfAll(t *testing.T) {
	const users, callers, each = 8, 16, 40
	server, proxy := proxied(t)
	for _, c := range []struct {
		name            string
		quota, orgQuota int
		behind          bool
	}{{"limits that are used up", 40, 200, false}, {"room for all", 1000, 1000, false}, {"Fallback", 40, 200, true}} {
		t.Run(c.name, func(t *testing.T) {
			perUser, perOrg := core.SlidingWindow(c.quota, time.Hour), core.FixedWindow(c.orgQuota, time.Hour)
			logged(t)
			rdb := connect(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
			prefix := strings.ReplaceAll(c.name, " ", "-")
			store := redisstore.New(rdb, &redisstore.Options{Timeout: 20 * time.Millisecond, Prefix: prefix})
			decides, stores := core.Store(store), 1
			if c.behind {
				decides, stores = core.Fallback(store, memorystore.New(nil)), 2
			}
			byUser, byOrg := core.Must(core.New(decides, perUser)), core.Must(core.New(decides, perOrg))
			var passed [users]atomic.Int64
			var total, unknown atomic.Int64
			proxy.Spoil(func(command []string, reply []byte) ([]byte, bool) {
				switch rand.N(8) {
				case 0:
					return nil, false
				case 1:
					return nil, true
				}
				return reply, false
			})
			together(callers, func(i int) {
				for n := range each {
					who := (i + n) % users
					d, err := core.All(t.Context(), byUser.For(fmt.Sprint(user, who), action), byOrg.For("org", "call"))
					if err != nil || d.Source == core.SourceFallback {
						unknown.Add(1)
					}
					if err == nil && d.Allowed {
						passed[who].Add(1)
						total.Add(1)
					}
				}
			})
			proxy.Spoil(nil)
			idle(t, store)
			direct := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient, Prefix: prefix})
			sum := 0
			for i := range users {
				n := charged(t, direct, fmt.Sprint(user, i), perUser)
				by := int(passed[i].Load())
				if sum += n; by > stores*c.quota || n > c.quota || !c.behind && n < by {
					t.Errorf("user %d: %d passed, and %d are charged", i, by, n)
				}
			}
			s, err := core.Must(core.New(direct, perOrg)).Status(t.Context(), "org", "call")
			if err != nil {
				t.Fatal(err)
			}
			org := c.orgQuota - s.Limits[0].Remaining
			if org != sum || int(total.Load()) > stores*c.orgQuota {
				t.Errorf("%d passed; the users are charged %d, and the organization %d", total.Load(), sum, org)
			}
			if int64(sum) > total.Load()+unknown.Load() {
				t.Errorf("%d are charged for %d that passed and %d without an answer", sum, total.Load(), unknown.Load())
			}
			if unknown.Load() < 10 {
				t.Errorf("only %d calls had no answer", unknown.Load())
			}
		})
	}
}

// midway runs functions around the commands that have a certain key.
type midway struct {
	key    string
	before func()
	after  func() error
}

func (m *midway) process(cmd redis.Cmder, next func() error) error {
	if !slices.Contains(cmd.Args(), any(m.key)) {
		return next()
	}
	if m.before != nil {
		m.before()
	}
	if err := next(); err != nil || m.after == nil {
		return err
	}
	return m.after()
}

// A master dies, or its reply is lost, between the two charges of a decision about subjects in two
// slots. The decision is then an error, and the first charge is given back if its master lives.
func masterDiesMidway(t *testing.T, servers []*redistest.Server) {
	logged(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr, servers[1].Addr, servers[2].Addr}})
	t.Cleanup(func() { _ = rdb.Close() })
	m := new(midway)
	rdb.AddHook(hook(m.process))
	store := redisstore.New(rdb, &redisstore.Options{Timeout: 500 * time.Millisecond, Prefix: "midway", NoRefusalCache: true})
	limit := core.FixedWindow(3, time.Hour)
	l := core.Must(core.New(store, limit))
	on := func(master int) string { // a new user of that master
		for {
			who := fmt.Sprint("midway", rand.Int64())
			if slotOf(t, servers[0], store.Key(who, action, limit))*3/16384 == master {
				return who
			}
		}
	}
	decide := func(first, second string) (core.Decision, error) {
		start := time.Now()
		d, err := core.All(t.Context(), l.For(first, action), l.For(second, action))
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		return d, err
	}
	lost := errors.New("the reply is lost")

	alice, org := on(0), on(1)
	m.key, m.after = store.Key(org, action, limit), func() error { return lost }
	for range 5 {
		if _, err := decide(alice, org); err == nil && charged(t, store, org, limit) < 3 {
			t.Error("the reply was not lost")
		}
	}
	m.key = ""
	if a, o := charged(t, store, alice, limit), charged(t, store, org, limit); a != 0 || o > 3 {
		t.Errorf("after lost replies %d and %d are charged", a, o)
	}

	alice, org = on(0), on(1)
	var once sync.Once
	m.key, m.after, m.before = store.Key(org, action, limit), nil, func() { once.Do(servers[1].Kill) }
	if d, err := decide(alice, org); err == nil {
		t.Errorf("the master died before the second charge: %+v", d)
	}
	m.key = ""
	if n := charged(t, store, alice, limit); n != 0 {
		t.Errorf("%d are charged of a decision that failed", n)
	}

	// The first master dies before the second refuses: its charge cannot be given back.
	alice, org = on(2), on(0)
	for range 3 {
		if _, err := l.Allow(t.Context(), org, action); err != nil {
			t.Fatal(err)
		}
	}
	once = sync.Once{}
	m.key, m.before = store.Key(org, action, limit), func() { once.Do(servers[2].Kill) }
	if d, err := decide(alice, org); err == nil && d.Allowed {
		t.Errorf("the second subject's limit is used up: %+v, %v", d, err)
	}
}

// Redis hangs up and comes back all the time under a leased limit with a fallback. In no period does
// Redis, with what the process has leased, pass more than the limit, nor does the fallback.
func TestLeaseUnderAFallbackThatFlaps(t *testing.T) {
	const quota, period = 100, time.Second
	logged(t)
	_, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
	store := redisstore.New(rdb, nil)
	limit := core.MovingWindow(quota, period).Leased(100 * time.Millisecond)
	l := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), limit))
	if _, err := l.Allow(t.Context(), "another", action); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shared, own []leaseAction
	leased := 0
	end := time.Now().Add(4 * time.Second)
	var flaps sync.WaitGroup
	flaps.Go(func() {
		for down := true; time.Now().Before(end); down = !down {
			if down {
				lose := rand.N(2) == 0
				proxy.Spoil(func([]string, []byte) ([]byte, bool) { return nil, !lose })
			} else {
				proxy.Spoil(nil)
			}
			time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
		}
	})
	together(8, func(int) {
		for time.Now().Before(end) {
			a := leaseAction{Start: nanotime()}
			d, err := l.Allow(t.Context(), user, action)
			a.End = nanotime()
			mu.Lock()
			switch {
			case err != nil:
				t.Error(err)
			case d.Allowed && d.Source == core.SourceFallback:
				own = append(own, a)
			case d.Allowed:
				shared = append(shared, a)
				if d.Source == core.SourceLease {
					leased++
				}
			}
			mu.Unlock()
			time.Sleep(2 * time.Millisecond)
		}
	})
	flaps.Wait()
	proxy.Spoil(nil)
	for name, actions := range map[string][]leaseAction{"Redis": shared, "the fallback": own} {
		if n := crowded(actions, period); n > quota {
			t.Errorf("by %s %d passed in a period", name, n)
		}
	}
	t.Logf("%d passed by Redis, %d of them leased, and %d by the fallback", len(shared), leased, len(own))
	if leased == 0 || len(own) == 0 {
		t.Error("the lease or the fallback has decided nothing")
	}
}
