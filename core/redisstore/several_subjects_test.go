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
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// orgOf is the organization of a user who is named "organization/user".
func orgOf(user string) string {
	org, _, _ := strings.Cut(user, "/")
	return org
}

func TestTaggedKeys(t *testing.T) {
	sliding := core.SlidingWindow(5, time.Minute)
	store := offline(t, &redisstore.Options{Tag: orgOf})
	for _, tc := range []struct{ user, want string }{
		{"org-7/alice", "tailcut:{org-7}org-7/alice:reply:sliding:1m"},
		{"org-7/", "tailcut:{org-7}org-7/:reply:sliding:1m"},
		{"org-7", "tailcut:{org-7}:reply:sliding:1m"},
		{"/alice", "tailcut:{/alice}:reply:sliding:1m"}, // no tag is the user
		{"a}:b/c{", "tailcut:{a%7D%3Ab}a%7D%3Ab/c%7B:reply:sliding:1m"},
	} {
		if got := store.Key(tc.user, "reply", sliding); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.user, got, tc.want)
		}
	}
	long := store.Key(strings.Repeat("o", 200)+"/alice", "reply", sliding)
	if slot(long) != slot(store.Key(strings.Repeat("o", 200), "reply", sliding)) || strings.Count(long, "~") != 2 || len(long) > 200 {
		t.Error(long)
	}
	secret := offline(t, &redisstore.Options{Tag: orgOf, Secret: "one"})
	alice, bob, org := secret.Key("org-7/alice", "a", sliding), secret.Key("org-7/bob", "a", sliding), secret.Key("org-7", "a", sliding)
	if slot(alice) != slot(org) || slot(bob) != slot(org) || alice == bob || strings.Contains(alice+bob+org, "org") {
		t.Errorf("%s, %s, %s", alice, bob, org)
	}
}

func FuzzTaggedKey(f *testing.F) {
	for _, s := range [][4]string{{"a", "a/b", "x", "y"}, {"{a}", "{a}/b", "x:", "x"}, {"a", "a}a", "x", "x"}, {"a:", "a", "x", ":x"}, {"~", "~/~", "*", "*:"}} {
		f.Add(s[0], s[1], s[2], s[3], uint8(1))
	}
	length := 0
	tag := func(user string) string { return user[:min(length, len(user))] } // may be any
	of := func(user string) string {
		if s := tag(user); s != "" {
			return s
		}
		return user
	}
	stores := []*redisstore.Store{offline(f, &redisstore.Options{Tag: tag}), offline(f, &redisstore.Options{Tag: tag, Secret: "s"})}
	f.Fuzz(func(t *testing.T, user1, user2, action1, action2 string, cut uint8) {
		if user1 == "" || user2 == "" || action1 == "" || action2 == "" {
			return // errors of core
		}
		length = int(cut)
		for _, s := range stores {
			key1, key2 := s.Key(user1, action1, kinds[0]), s.Key(user2, action2, kinds[0])
			if (key1 == key2) != (user1 == user2 && action1 == action2) {
				t.Errorf("%q %q: %q\n%q %q: %q", user1, action1, key1, user2, action2, key2)
			}
			if (slot(key1) == slot(key2)) != (of(user1) == of(user2)) || !utf8.ValidString(key1) || strings.Count(key1, "{") != 1 {
				t.Errorf("%q, %q: %q, %q", user1, user2, key1, key2)
			}
		}
	})
}

// Several subjects are one command, with the commands of others in its batch, and a refusal of them is
// not repeated.
func TestSeveralSubjectsAreOneRoundTrip(t *testing.T) {
	server := redistest.Start(t)
	store := reliable(t, server.Addr)
	user, org := core.Must(core.New(store, core.FixedWindow(5, time.Hour))), core.Must(core.New(store, core.FixedWindow(2, time.Hour)))
	for i := range 4 {
		before := calls(t, server.Do, "fcall")
		d, err := core.All(t.Context(), user.For("alice", action), org.For("org-7", action))
		if err != nil || d.Allowed != (i < 2) || d.Subject != 1 || d.Source != core.SourceStore {
			t.Fatalf("%+v, %v", d, err)
		}
		if n := calls(t, server.Do, "fcall") - before; n != 1 {
			t.Errorf("decision %d took %d calls", i, n)
		}
	}
	// A cached refusal of one subject does not outlive what a decision about several changes.
	if d, err := org.Allow(t.Context(), "org-7", action); err != nil || d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := org.Reset(t.Context(), "org-7", action); err != nil {
		t.Fatal(err)
	}
	if d, err := core.All(t.Context(), user.For("alice", action), org.For("org-7", action)); err != nil || !d.Allowed {
		t.Errorf("after Reset: %+v, %v", d, err)
	}
}

// A foreign value under the key of one subject fails the decision, and nothing is charged.
func TestSeveralSubjectsAndAForeignValue(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		fixed := core.FixedWindow(5, time.Hour)
		l := core.Must(core.New(w.store, fixed))
		if err := w.rdb.Set(t.Context(), w.store.Key("org-7", action, fixed), "nonsense", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for _, first := range []bool{true, false} {
			subjects := []core.Subject{l.For("alice", action), l.For("org-7", action)}
			if first {
				subjects[0], subjects[1] = subjects[1], subjects[0]
			}
			if d, err := core.All(t.Context(), subjects...); err == nil {
				t.Errorf("%+v", d)
			}
		}
		if n := charged(t, w.store, "alice", fixed); n != 0 {
			t.Errorf("%d are charged", n)
		}
	})
}

// On a Cluster of three masters, users of other slots than their organization's are decided in turn; with a
// tag in one step.
func TestSeveralSubjectsOnACluster(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = rdb.Close() })
	within(t, "the cluster serves", func() bool {
		l := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), kinds[0]))
		for i := range 20 {
			if _, err := l.Allow(t.Context(), fmt.Sprint("ready", i), action); err != nil {
				return false
			}
		}
		return true
	})
	t.Run("one tag", func(t *testing.T) { // TestCluster has the suite without one
		n := 0
		open := func(testing.TB) storetest.Fixture {
			n++
			opts := &redisstore.Options{Timeout: patient, Prefix: fmt.Sprint("joint-", n), Tag: func(string) string { return "all" }}
			return storetest.Fixture{Store: redisstore.New(rdb, opts).WithoutLeases(), Now: time.Now, Traces: 40}
		}
		t.Run("Rules", func(t *testing.T) { storetest.Rules(t, open) })
		storetest.Trace(t, open)
	})
	t.Run("one command, or several", func(t *testing.T) {
		store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient, Prefix: "count", Tag: orgOf}))
		l := core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))
		count := func() (n int) {
			for _, s := range servers {
				n += calls(t, s.Do, "fcall")
			}
			return n
		}
		for _, c := range []struct {
			name, user, org string
			least, most     int
		}{
			{"one slot", "org-7/alice", "org-7", 50, 50},
			{"two slots", "org-7/alice", "org-8", 150, 200}, // two looks at the same time, and two charges
		} {
			before := count()
			for range 50 {
				if d, err := core.All(t.Context(), l.For(c.user, action), l.For(c.org, action)); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			if n := count() - before; n < c.least || n > c.most {
				t.Errorf("%s: 50 decisions took %d calls, not %d to %d", c.name, n, c.least, c.most)
			}
		}
	}) // The first decision learns that the server behind a plain client is part of a cluster: nothing was
	// charged then.
	t.Run("a plain client", func(t *testing.T) {
		store := redisstore.New(connect(t, &redis.Options{Addr: servers[0].Addr}), &redisstore.Options{Timeout: patient, Prefix: "plain"})
		limit := core.FixedWindow(1000, time.Hour)
		l := core.Must(core.New(store, limit))
		var users []string
		for i := 0; len(users) < 2; i++ {
			if who := fmt.Sprint("user", i); slotOf(t, servers[0], store.Key(who, action, limit))*3/16384 == 0 {
				users = append(users, who)
			}
		}
		for i := range 3 {
			d, err := core.All(t.Context(), l.For(users[0], action), l.For(users[1], action))
			if (err == nil) != (i > 0) || d.Allowed != (i > 0) {
				t.Fatalf("decision %d: %+v, %v", i, d, err)
			}
		}
		for _, who := range users {
			if n := charged(t, store, who, limit); n != 2 {
				t.Errorf("%s: %d are charged, not 2", who, n)
			}
		}
	})
	t.Run("a master dies midway", func(t *testing.T) { masterDiesMidway(t, servers) }) // the last one
}

// Replies to decisions about several subjects are lost, and connections end after Redis has run the
// command. All subjects of a decision are charged or none, none twice, and none above its limit.
func TestLostRepliesOfAll(t *testing.T) {
	t.Parallel()
	const users, callers, each = 8, 16, 40
	server, proxy := proxied(t)
	for _, c := range []struct {
		name            string
		quota, orgQuota int
		behind          bool
	}{{"limits that are used up", 40, 200, false}, {"room for all", 1000, 1000, false}, {"Fallback", 40, 200, true}} {
		t.Run(c.name, func(t *testing.T) {
			perUser, perOrg := core.SlidingWindow(c.quota, time.Hour), core.FixedWindow(c.orgQuota, time.Hour)
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
