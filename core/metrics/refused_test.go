package metrics_test

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	got := m.MostRefused(n).Users
	for i := range got {
		if age := time.Since(got[i].Last); age < 0 || age > 2*time.Hour {
			t.Errorf("%s was refused %s ago", got[i].User, age)
		}
		got[i].Last = time.Time{}
	}
	if !slices.Equal(got, want) {
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
		metrics.RefusedUser{User: "bob", Action: "like", Limit: "sliding:1h", Refused: 4},
		metrics.RefusedUser{User: "erin", Action: "reply", Limit: "ban", Refused: 2},
		metrics.RefusedUser{User: "alice", Action: "reply", Limit: "sliding:1h", Refused: 1},
		metrics.RefusedUser{User: "dave", Action: "reply", Limit: "sliding:1h", Refused: 1})
	times(2, func() { _, _ = likes.Allow(ctx, "alice", "like") })
	refused(t, m, 2,
		metrics.RefusedUser{User: "bob", Action: "like", Limit: "sliding:1h", Refused: 4},
		metrics.RefusedUser{User: "alice", Action: "like", Limit: "sliding:1h", Refused: 2})
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
				_, _ = core.WaitAll(t.Context(), time.Second, l.For("alice", "reply"))
			}
			refused(t, m, 9, metrics.RefusedUser{User: "alice", Action: "reply", Limit: limit.Identity(), Refused: 2})
		})
	}
}

// Refusals are forgotten after the window and up to a sixth more.
func TestMostRefusedIsOfTheWindow(t *testing.T) {
	for _, window := range []time.Duration{0, time.Minute, time.Hour, 7 * 24 * time.Hour} {
		t.Run(window.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := metrics.New(&metrics.Options{ShowUsers: true, RefusedWindow: window})
				l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
				refuse := func(user string, n int) { times(n, func() { _, _ = l.Allow(t.Context(), user, "reply") }) }
				listed := func(want ...string) {
					t.Helper()
					var got []string
					for _, u := range m.MostRefused(9).Users {
						got = append(got, fmt.Sprint(u.User, " ", u.Refused))
					}
					if !slices.Equal(got, want) {
						t.Errorf("after %s: %v, want %v", window, got, want)
					}
				}
				sixth := cmp.Or(window, 10*time.Minute) / 6
				time.Sleep(sixth / 2)
				refuse("alice", 4)
				time.Sleep(sixth)
				refuse("bob", 2)
				time.Sleep(sixth)
				refuse("bob", 3)
				listed("bob 5", "alice 4")
				time.Sleep(4*sixth + sixth/2 - 1)
				listed("bob 5", "alice 4")
				time.Sleep(time.Nanosecond)
				listed("bob 5")
				time.Sleep(sixth - 1)
				listed("bob 5")
				time.Sleep(time.Nanosecond)
				listed("bob 3")
				time.Sleep(sixth)
				listed()
				refuse("alice", 1)
				time.Sleep(100 * sixth)
				listed()
				refuse("alice", 1)
				listed("alice 1")
			})
		})
	}
}

// By default the list names nobody: the same user has the same hash, in one Metrics only.
func TestUsersAreHashed(t *testing.T) {
	list := func(o *metrics.Options) (users []string) {
		m := metrics.New(o)
		l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
		_, _ = l.Allow(t.Context(), "alice", "reply")
		first := m.MostRefused(9).Users
		_, _ = l.Allow(t.Context(), "bob", "reply")
		_, _ = l.Allow(t.Context(), "bob", "reply")
		for _, u := range m.MostRefused(9).Users {
			if u.Hashed != (o != named) {
				t.Errorf("%+v", u)
			}
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

// A name takes no more memory than 200 bytes, and is then a hash even if names are shown; so is a name that
// is not text. Names that begin alike stay apart.
func TestLongNamesAreHashed(t *testing.T) {
	m := metrics.New(named)
	l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
	long := strings.Repeat("x", 200)
	for i, user := range []string{long, long + "a", long + "b", "\xff"} {
		times(4-i, func() { _, _ = l.Allow(t.Context(), user, "reply") })
	}
	got := m.MostRefused(9).Users
	if len(got) != 4 || got[0].User != long || got[0].Hashed {
		t.Errorf("%v", got)
	}
	names := map[string]bool{}
	for _, u := range got[1:] {
		if names[u.User] = true; len(u.User) != 12 || !u.Hashed {
			t.Errorf("%v", u)
		}
	}
	if len(names) != 3 {
		t.Errorf("%v", got)
	}
	// A user who is called like the hash is another one.
	times(9, func() { _, _ = l.Allow(t.Context(), got[1].User, "reply") })
	if u := m.MostRefused(1).Users[0]; u.User != got[1].User || u.Hashed || u.Refused != 9 {
		t.Errorf("%+v", u)
	}
}

// Processes with one key have the same hash for a user, and their lists add up. Each is JSON on its way.
func TestListsOfProcessesMerge(t *testing.T) {
	key := []byte("0123456789abcdef")
	for name, o := range map[string]*metrics.Options{
		"hashes": {HashKey: key}, "names": {HashKey: key, ShowUsers: true}, "other keys": {},
	} {
		t.Run(name, func(t *testing.T) {
			var lists []metrics.RefusedUsers
			for process := range 3 {
				m := metrics.New(o)
				l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
				times(5, func() { _, _ = l.Allow(t.Context(), strings.Repeat("long", 100), "reply") })
				times(2*process, func() { _, _ = l.Allow(t.Context(), "alice", fmt.Sprint("reply ", process)) })
				raw, err := json.Marshal(m.MostRefused(1000))
				var list metrics.RefusedUsers
				if err := cmp.Or(err, json.Unmarshal(raw, &list)); err != nil {
					t.Fatal(err)
				}
				if !regexp.MustCompile(`^\{"users":\[\{"user":"[^"]+",("hashed":true,)?"refused":\d+,("over":\d+,)?"action":"reply[^"]*","limit":"[^"]+","last":"`).Match(raw) {
					t.Errorf("not in the style of plans.Change: %s", raw)
				}
				lists = append(lists, list)
			}
			got := metrics.MergeRefused(9, lists...)
			if o.HashKey == nil {
				if len(got.Users) != 5 {
					t.Errorf("%+v", got)
				}
				return
			}
			if len(got.Users) != 2 || got.Users[0].Refused != 15 || got.Users[1].Refused != 6 || got.Users[1].Action != "reply 2" || got.Users[1].Over != 0 || got.Rest != 0 {
				t.Errorf("%+v", got)
			}
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte("alice"))
			if want := hex.EncodeToString(mac.Sum(nil))[:12]; !o.ShowUsers && got.Users[1].User != want {
				t.Errorf("alice is %s, want %s", got.Users[1].User, want)
			}
			if got = metrics.MergeRefused(1, lists...); len(got.Users) != 1 || got.Rest != 6 {
				t.Errorf("%+v", got)
			}
			if got = metrics.MergeRefused(9); len(got.Users) != 0 || got.Rest != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The exporters show users only if that is asked for.
func TestRefusedUsersAreExported(t *testing.T) {
	for n, want := range map[int]string{0: "[]", 1: "[bob]", 100: "[bob alice]"} {
		m := metrics.New(&metrics.Options{ShowUsers: true, ExportRefused: n})
		l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
		times(2, func() { _, _ = l.Allow(t.Context(), "bob", "reply") })
		_, _ = l.Allow(t.Context(), "alice", "reply")
		var got []string
		for _, u := range m.Snapshot().Refused {
			got = append(got, u.User)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%v are exported, want %s", got, want)
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
