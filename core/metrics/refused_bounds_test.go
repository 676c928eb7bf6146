package metrics_test

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/metrics"
)

// With more users than the list has, its numbers stay within their bounds, over several slices.
func TestMostRefusedBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(named)
		l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
		random := rand.New(rand.NewPCG(5, 8))
		users := rand.NewZipf(random, 1.1, 1, 50_000)
		exact, total := map[string]uint64{}, uint64(0)
		for range 2 {
			time.Sleep(6 * time.Minute)
			for range 60_000 {
				user := strconv.FormatUint(users.Uint64(), 10)
				_, _ = l.Allow(t.Context(), user, "reply")
				exact[user]++
				total++
			}
		}
		all := m.MostRefused(1 << 30)
		got := all.Users
		listed := map[string]bool{}
		for _, u := range got {
			listed[u.User] = true
			if n := exact[u.User]; n > u.Refused || n < u.Refused-u.Over || u.Over*1000 > total {
				t.Errorf("%+v, and exactly %d of %d", u, n, total)
			}
		}
		for user, n := range exact {
			if (n*1000 > total || n > all.Rest) && !listed[user] {
				t.Errorf("%s with %d of %d refusals is not listed, and the rest have at most %d", user, n, total, all.Rest)
			}
		}
		if !slices.IsSortedFunc(got, func(a, b metrics.RefusedUser) int { return cmp.Compare(b.Refused, a.Refused) }) || len(got) < 1000 || len(exact) < 10_000 {
			t.Errorf("%d users are listed of %d", len(got), len(exact))
		}
	})
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

// Whatever part of its list each process hands over, the true numbers are within the bounds.
func TestMergedListsKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exact := map[string]uint64{}
		var lists []metrics.RefusedUsers
		for range rapid.IntRange(1, 4).Draw(t, "processes") {
			m := metrics.New(named)
			l := core.Must(core.New(m.Watch(refusing), core.FixedWindow(1, time.Hour)))
			for _, user := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 40).Draw(t, "refused") {
				_, _ = l.Allow(t.Context(), user, "reply")
				exact[user]++
			}
			lists = append(lists, m.MostRefused(rapid.IntRange(0, 6).Draw(t, "of each")))
		}
		all := metrics.MergeRefused(rapid.IntRange(0, 6).Draw(t, "of all"), lists...)
		for _, u := range all.Users {
			if n := exact[u.User]; n > u.Refused || n < u.Refused-u.Over {
				t.Fatalf("%+v, and exactly %d", u, n)
			}
			delete(exact, u.User)
		}
		for user, n := range exact {
			if n > all.Rest {
				t.Fatalf("%s has %d, and the rest at most %d", user, n, all.Rest)
			}
		}
	})
}
