package metrics_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

var named = &metrics.Options{ShowUsers: true}

// refusing is a store that refuses all.
var refusing = foreign{decision: core.Decision{Source: core.SourceStore, Reason: core.ReasonLimited, RetryAfter: time.Second}}

func refused(t *testing.T, m *metrics.Metrics, n int, want ...metrics.RefusedUser) {
	t.Helper()
	if got := m.MostRefused(n); !slices.Equal(got, want) {
		t.Errorf("refused most are %v, want %v", got, want)
	}
}

func TestMostRefused(t *testing.T) {
	m := metrics.New(named)
	store := m.Watch(memorystore.New(nil))
	replies := core.Must(core.New(store, core.SlidingWindow(2, time.Hour)))
	likes := core.Must(core.New(store, core.SlidingWindow(1, time.Hour), core.SlidingWindow(1, time.Minute).Shadow()))
	banning := core.Must(replies.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
	ctx := t.Context()
	refused(t, m, 9)
	times(3, func() { _, _ = replies.Allow(ctx, "alice", "reply") }) // one is refused
	times(5, func() { _, _ = likes.Allow(ctx, "bob", "like") })      // four
	_, _ = likes.Allow(ctx, "carol", "like")                         // none
	times(4, func() { _, _ = likes.Peek(ctx, "bob", "like") })       // not counted
	_, _ = replies.AllowN(ctx, "dave", "reply", 3)                   // it can never pass
	times(4, func() { _, _ = banning.Allow(ctx, "erin", "reply") })  // one is refused, and one is banned
	refused(t, m, 9,
		metrics.RefusedUser{User: "bob", Action: "like", Refused: 4},
		metrics.RefusedUser{User: "erin", Action: "reply", Refused: 2},
		metrics.RefusedUser{User: "alice", Action: "reply", Refused: 1},
		metrics.RefusedUser{User: "dave", Action: "reply", Refused: 1})
	times(2, func() { _, _ = likes.Allow(ctx, "alice", "like") })
	refused(t, m, 2,
		metrics.RefusedUser{User: "bob", Action: "like", Refused: 4},
		metrics.RefusedUser{User: "alice", Action: "like", Refused: 2})
	refused(t, m, 0)
	refused(t, m, -1)
}

// A shadowed refusal refuses nobody, and an error is the store's.
func TestOnlyRefusalsMakeUsersRefused(t *testing.T) {
	m := metrics.New(named)
	store := newFaulty()
	shadow := core.Must(core.New(m.Watch(core.Shadow(store)), core.FixedWindow(1, time.Hour)))
	times(3, func() { _, _ = shadow.Allow(t.Context(), "alice", "reply") })
	plain := newFaulty()
	l := core.Must(core.New(m.Watch(plain), core.FixedWindow(1, time.Hour)))
	plain.down.Store(true)
	times(3, func() { _, _ = l.Allow(t.Context(), "alice", "reply") })
	refused(t, m, 9)
}

func TestARefusedWaitHasItsUser(t *testing.T) {
	for name, limit := range map[string]core.Limit{"reserved": core.Funnel(1, core.Every(time.Hour)), "asked for": core.SlidingWindow(1, time.Hour)} {
		t.Run(name, func(t *testing.T) {
			m := metrics.New(named)
			l := core.Must(core.New(m.Watch(memorystore.New(nil)), limit))
			for range 3 {
				_, _ = l.WaitFor(t.Context(), time.Second, "alice", "reply", 1)
			}
			refused(t, m, 9, metrics.RefusedUser{User: "alice", Action: "reply", Refused: 2})
		})
	}
}

// Refusals are forgotten after five to ten minutes.
func TestMostRefusedIsAboutNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(named)
		l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
		refuse := func(user string, n int) { times(n, func() { _, _ = l.Allow(t.Context(), user, "reply") }) }
		refuse("alice", 4)
		time.Sleep(4 * time.Minute)
		refuse("bob", 2)
		time.Sleep(2 * time.Minute) // the first period has ended
		refuse("bob", 3)
		alice, bob := metrics.RefusedUser{User: "alice", Action: "reply", Refused: 4}, metrics.RefusedUser{User: "bob", Action: "reply", Refused: 5}
		refused(t, m, 9, bob, alice)
		time.Sleep(4*time.Minute - time.Nanosecond)
		refused(t, m, 9, bob, alice)
		time.Sleep(time.Nanosecond) // and the second one
		bob.Refused = 3
		refused(t, m, 9, bob)
		time.Sleep(time.Hour)
		refused(t, m, 9)
		refuse("alice", 1)
		alice.Refused = 1
		refused(t, m, 9, alice)
	})
}

// With more users than the list has, its numbers stay within their bounds, over two periods.
func TestMostRefusedBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(named)
		l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
		random := rand.New(rand.NewPCG(5, 8))
		users := rand.NewZipf(random, 1.1, 1, 50_000)
		exact, total := map[string]uint64{}, uint64(0)
		for period := range 2 {
			time.Sleep(time.Duration(period) * 6 * time.Minute)
			for range 60_000 {
				user := strconv.FormatUint(users.Uint64(), 10)
				_, _ = l.Allow(t.Context(), user, "reply")
				exact[user]++
				total++
			}
		}
		got := m.MostRefused(1 << 30)
		listed := map[string]bool{}
		for _, u := range got {
			listed[u.User] = true
			if n := exact[u.User]; n > u.Refused || n < u.Refused-u.Over || u.Over*1000 > total {
				t.Errorf("%+v, and exactly %d of %d", u, n, total)
			}
		}
		for user, n := range exact {
			if n*1000 > total && !listed[user] {
				t.Errorf("%s with %d of %d refusals is not listed", user, n, total)
			}
		}
		if !slices.IsSortedFunc(got, func(a, b metrics.RefusedUser) int { return cmp.Compare(b.Refused, a.Refused) }) || len(got) < 1000 || len(exact) < 10_000 {
			t.Errorf("%d users are listed of %d", len(got), len(exact))
		}
	})
}

// By default the list names nobody: the same user has the same hash, in one Metrics only.
func TestUsersAreHashed(t *testing.T) {
	list := func(o *metrics.Options) (users []string) {
		m := metrics.New(o)
		l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
		_, _ = l.Allow(t.Context(), "alice", "reply")
		first := m.MostRefused(9)
		_, _ = l.Allow(t.Context(), "bob", "reply")
		_, _ = l.Allow(t.Context(), "bob", "reply")
		for _, u := range m.MostRefused(9) {
			users = append(users, u.User)
		}
		if users[1] != first[0].User {
			t.Errorf("alice is %s, and then %s", first[0].User, users[1])
		}
		s, err := json.Marshal(m.Snapshot())
		if err != nil || strings.Contains(string(s), "alice") || strings.Contains(string(s), users[1]) {
			t.Errorf("a snapshot names a user: %s, %v", s, err)
		}
		return users
	}
	one, other := list(nil), list(nil)
	for _, user := range append(one, other...) {
		if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(user) {
			t.Errorf("%q is not a hash", user)
		}
	}
	if one[0] == one[1] || one[0] == other[0] {
		t.Errorf("%v and %v", one, other)
	}
	if users := list(named); !slices.Equal(users, []string{"bob", "alice"}) {
		t.Error(users)
	}
}

// A name takes no more memory than 200 bytes, and is then a hash even if names are shown. Names that
// begin alike stay apart.
func TestLongNamesAreHashed(t *testing.T) {
	m := metrics.New(named)
	l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
	long := strings.Repeat("x", 200)
	for i, user := range []string{long, long + "a", long + "b"} {
		times(3-i, func() { _, _ = l.Allow(t.Context(), user, "reply") })
	}
	got := m.MostRefused(9)
	if len(got) != 3 || got[0].User != long || len(got[1].User) != 12 || len(got[2].User) != 12 || got[1].User == got[2].User {
		t.Errorf("%v", got)
	}
}

// A flood of new users does not make the list grow.
func TestMostRefusedIsBounded(t *testing.T) {
	m := metrics.New(nil)
	l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
	ctx := t.Context()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	name := strings.Repeat("x", 190)
	for i := range 100_000 {
		_, _ = l.Allow(ctx, name+strconv.Itoa(i), "reply")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 500_000 {
		t.Errorf("it keeps %d bytes", grown)
	}
	runtime.KeepAlive(m)
}

func TestMostRefusedUnderLoad(t *testing.T) {
	m := metrics.New(named)
	l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				_, _ = l.Allow(t.Context(), fmt.Sprint("u", (i+g)%4), "reply")
				if i%500 == 0 {
					m.MostRefused(3)
				}
			}
		})
	}
	wg.Wait()
	for _, u := range m.MostRefused(9) {
		if u.Refused != 4000 || u.Over != 0 {
			t.Errorf("%+v, want 4000", u)
		}
	}
}

// BenchmarkRefused tells what a refusal costs: of one user, of users who are all in the list, and of
// users who are new each time.
func BenchmarkRefused(b *testing.B) {
	names := make([]string, 1<<20)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	for _, users := range []int{1, 500, len(names)} {
		for name, store := range map[string]core.Store{"plain": refusing, "watched": metrics.New(nil).Watch(refusing)} {
			l := core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
			b.Run(fmt.Sprintf("%s/users=%d", name, users), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.Int(); pb.Next(); i++ {
						_, _ = l.Allow(b.Context(), names[i%users], "reply")
					}
				})
			})
		}
	}
}
