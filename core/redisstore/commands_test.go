package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// calls are the server's own count of a command.
func calls(t testing.TB, info func(words ...string) string, command string) int {
	t.Helper()
	_, rest, _ := strings.Cut(info("INFO", "commandstats"), "cmdstat_"+command+":calls=")
	n := 0
	_, _ = fmt.Sscanf(rest, "%d", &n)
	return n
}

// The proxy passes one command at a time, so as many commands are as many round trips.
func TestOneCommandForEachDecision(t *testing.T) {
	server, proxy := proxied(t)
	store := reliable(t, proxy.Addr).AlwaysAsk()
	sets := [][]core.Limit{kinds}
	for _, l := range kinds {
		sets = append(sets, []core.Limit{l})
	}
	decisions := 0
	for i, limits := range sets {
		l := core.Must(core.New(store, limits...))
		if i == 0 {
			if _, err := l.Peek(t.Context(), user, action); err != nil {
				t.Fatal(err)
			}
			if got := names(proxy.Commands()); got != "fcall" {
				t.Fatalf("the first decision of a server takes %s", got)
			}
			decisions++
		}
		refused := false
		for range 7 {
			d, err := l.Allow(t.Context(), user, fmt.Sprint(action, i))
			if err != nil {
				t.Fatal(err)
			}
			refused = !d.Allowed
		}
		if !refused {
			t.Errorf("%v never refuses", limits)
		}
		for _, n := range []int{0, 3, 11} {
			if _, err := l.AllowN(t.Context(), user, fmt.Sprint(action, i), n); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Peek(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
		decisions += 11
		if got := names(proxy.Commands()); got != strings.TrimSpace(strings.Repeat("fcall ", 11)) {
			t.Errorf("%v: 11 decisions take %s", limits, got)
		}
		if err := l.Reset(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
		if got := names(proxy.Commands()); got != "del" {
			t.Errorf("%v: Reset takes %s", limits, got)
		}
	}
	if n := calls(t, server.Do, "fcall"); n != decisions+1 { // Connect has asked once, without a charge
		t.Errorf("the server has run fcall %d times for %d decisions", n, decisions)
	}
	if n := calls(t, server.Do, "function|load"); n != 1 {
		t.Errorf("the server was sent the library %d times", n)
	}
	if _, err := store.History(t.Context(), user, action, kinds[0]); err != nil {
		t.Fatal(err)
	}
	if got := names(proxy.Commands()); got != "eval" {
		t.Errorf("History takes %s", got)
	}
}

// The last charges of a batch share their arguments if they have the same.
func TestEqualArgumentsAreSentOnce(t *testing.T) {
	_, proxy := proxied(t)
	store := reliable(t, proxy.Addr)
	limits := map[rune][]core.Limit{'a': {core.Funnel(9, hourly)}, 'b': {core.Funnel(9, hourly), core.FixedWindow(5, time.Hour)}}
	for batch, sent := range map[string]int{"aaa": 1, "bbb": 1, "abb": 2, "aab": 3, "aba": 3, "abaaa": 3} {
		var charges []core.Charge
		keys := 0
		for i, shape := range batch {
			c := chargeOf(1, limits[shape]...)
			c.User = fmt.Sprint(batch, i)
			charges = append(charges, c)
			keys += len(c.Limits)
		}
		proxy.Commands()
		reply, err := store.Run(charges...)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, c := range proxy.Commands() {
			if c[0] == "fcall" {
				got = len(c) - 3 - keys
			}
		}
		if got != sent {
			t.Errorf("%s is sent with %d arguments, want %d", batch, got, sent)
		}
		decisions, _, errs := redisstore.Decode(charges, reply)
		for i, c := range charges {
			want := 8
			if len(c.Limits) > 1 {
				want = 4
			}
			if d := decisions[i]; errs[i] != nil || !d.Allowed || d.Remaining != want {
				t.Errorf("charge %d of %s: %+v, %v; want %d remaining", i, batch, d, errs[i], want)
			}
		}
	}
}

// A limit and a ban on all of a user's actions are decided in the same command.
func TestPerUserTakesNoFurtherCommand(t *testing.T) {
	_, proxy := proxied(t)
	l := core.Must(core.New(reliable(t, proxy.Addr).AlwaysAsk(), core.FixedWindow(9, time.Hour), core.SlidingWindow(3, time.Hour).PerUser()))
	l = core.Must(l.With(core.BanPolicy{Refusals: 2, Within: time.Hour, Bans: []time.Duration{time.Hour}, PerUser: true}))
	if _, err := l.Peek(t.Context(), user, action); err != nil { // the server learns the script
		t.Fatal(err)
	}
	proxy.Commands()
	var got []core.Reason
	for i := range 6 {
		d, err := l.Allow(t.Context(), user, fmt.Sprint(action, i%3))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Reason)
	}
	if want := []core.Reason{"", "", "", core.ReasonLimited, core.ReasonBanned, core.ReasonBanned}; !slices.Equal(got, want) {
		t.Errorf("the reasons are %q, want %q", got, want)
	}
	if got := names(proxy.Commands()); got != strings.TrimSpace(strings.Repeat("fcall ", 6)) {
		t.Errorf("6 decisions take %s", got)
	}
}

func TestServerForgetsTheLibrary(t *testing.T) {
	for _, way := range []struct {
		name, forgets, forgotten, known string
		scripts                         bool
	}{
		{"functions", "FUNCTION", "fcall evalsha", "fcall", false},
		{"scripts", "SCRIPT", "evalsha eval", "evalsha", true},
	} {
		server, proxy := proxied(t)
		store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient, NoFunctions: way.scripts}))
		_, _ = redis.NewScript(redisstore.Script).Load(t.Context(), connect(t, &redis.Options{Addr: server.Addr})).Result()
		for _, l := range kinds {
			t.Run(way.name+" "+l.String(), func(t *testing.T) {
				lim := core.Must(core.New(store, l))
				for i := range 5 {
					server.Do(way.forgets, "FLUSH")
					proxy.Commands()
					d, err := lim.Allow(t.Context(), user, action)
					if err != nil || !d.Allowed || d.Remaining != 4-i {
						t.Fatalf("charge %d after %s FLUSH: %+v, %v", i+1, way.forgets, d, err)
					}
					if got := names(proxy.Commands()); got != way.forgotten {
						t.Fatalf("it took %s, want %s", got, way.forgotten)
					}
					if i > 0 || l != kinds[0] { // else after a second
						store.MinutesPass()
					}
					within(t, "it is known again", func() bool {
						proxy.Commands()
						_, err := lim.Peek(t.Context(), "another", action)
						return err == nil && names(proxy.Commands()) == way.known
					})
				}
				if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Allowed {
					t.Fatalf("one too many: %+v, %v", d, err)
				}
				if got := names(proxy.Commands()); got != way.known {
					t.Fatalf("then it took %s", got)
				}
			})
		}
	}
}

// Two processes find that the library is missing, and both load it.
func TestTwoLoadTheLibraryAtOnce(t *testing.T) {
	server := redistest.Start(t)
	var both sync.WaitGroup // have been told that it is missing
	var stores [2]*redisstore.Store
	for i := range stores {
		rdb := connect(t, &redis.Options{Addr: server.Addr})
		rdb.AddHook(before(func(cmd redis.Cmder) error {
			if cmd.Name() == "function" && cmd.Args()[1] == "load" {
				both.Done()
				both.Wait()
			}
			return nil
		}))
		stores[i] = redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	}
	for round := range 3 {
		server.Do("FUNCTION", "FLUSH")
		both.Add(len(stores))
		together(len(stores), func(i int) {
			ready(t, stores[i])
			d, err := core.Must(core.New(stores[i], kinds[0])).Allow(t.Context(), fmt.Sprint(user, round, i), action)
			if err != nil || !d.Allowed {
				t.Errorf("store %d: %+v, %v", i, d, err)
			}
		})
	}
	if n := calls(t, server.Do, "function|load"); n != 6 {
		t.Errorf("the library was loaded %d times, want 6", n)
	}
	if n := calls(t, server.Do, "evalsha"); n > 0 {
		t.Errorf("scripts ran %d times", n)
	}
}

// Apps of any clock decide alike, since none of them tells its time. Only the random number of a slot differs.
func TestNoTimeIsSent(t *testing.T) {
	_, proxy := proxied(t)
	store := ready(t, redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), &redisstore.Options{Timeout: patient}))
	lim := core.Must(core.Must(core.New(store, kinds...)).With(core.Refundable{}, core.BanPolicy{Refusals: 9, Within: time.Hour, Bans: []time.Duration{time.Hour}}))
	for range 2 {
		if _, err := lim.Allow(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Commands()
	var line [2]string
	for i := range line {
		if i > 0 {
			time.Sleep(2 * time.Millisecond) // no instant is the same
		}
		if _, err := lim.Allow(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
		for _, c := range proxy.Commands() {
			line[i] += fmt.Sprint(c[:len(c)-1])
			if !takes(c) || strings.Contains(c[len(c)-1], ",") {
				t.Errorf("%q does not end with the number of the slot", c)
			}
		}
	}
	if line[0] != line[1] || !strings.Contains(line[0], "fcall") {
		t.Errorf("the same call is sent as\n%s and later as\n%s", line[0], line[1])
	}
}
