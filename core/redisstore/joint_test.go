package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
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
