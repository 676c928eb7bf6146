package plans_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/plans"
)

// "A zone that was not found is looked up again after a minute."
// A zone of the program that is not in the database is looked up once a minute, so it is found if the database comes
// later. To look it up takes more than 20 allocations.
func TestABadZoneIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlans(t, doc(`{"limits": {"*": ["CalendarWindow(5, day, {zone})"]}}`))
		looksUp := func(zone string) bool {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := p.Limiter("alice", "reply", plans.Customer{Zone: zone})
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%q is a zone", zone)
			}
			return after.Mallocs-before.Mallocs > 20
		}
		for _, zone := range []string{"Local", "Asia//Shanghai", strings.Repeat("x", 10_000), "UTC)"} {
			if looksUp(zone); looksUp(zone) {
				t.Errorf("%.20s is looked up twice", zone)
			}
		}
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {0, false}, {59 * time.Second, false}, {time.Second, true}, {0, false}} {
			time.Sleep(c.after)
			if got := looksUp("Mars"); got != c.want {
				t.Errorf("after %s: looked up: %t", c.after, got)
			}
		}
	})
}

// Documents at their bounds are read in bounded time, and above them refused.
func TestLargeDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	users := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"user-%d": "free"`, i)
		}
		return withUsers("{" + b.String()[1:] + "}")
	}
	actions := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"action-%d": ["Funnel(1, Every(1s))"]`, i)
		}
		return doc(`{"limits": {` + b.String()[1:] + `}}`)
	}
	zones := func(users, zones int) string {
		var b strings.Builder
		for i := range users {
			fmt.Fprintf(&b, `,"user-%d": "Mars/Base-%d"`, i, i%zones)
		}
		return strings.Replace(withUsers("{}"), `"users": {}`, `"zones": {`+b.String()[1:]+`}`, 1)
	}
	strangers := func(users, plans int) string {
		var u, p strings.Builder
		for i := range users {
			fmt.Fprintf(&u, `,"user-%d": "gold"`, i)
		}
		for i := range plans {
			fmt.Fprintf(&p, `,"plan-%d": {"limits": {"*": ["Funnel(1, Every(1s))"]}}`, i)
		}
		return `{"default": "plan-0", "users": {` + u.String()[1:] + `}, "plans": {` + p.String()[1:] + `}}`
	}
	for _, c := range []struct {
		name, document, want string
	}{
		{"a million users", users(1_000_000), ""},
		{"more than a million users", users(1_000_001), "users has more than 1000000 users"},
		{"a million users of 40,000 zones that are unknown", zones(1_000_000, 40_000), "reading stopped here"},
		{"10,000 actions", actions(10_000), ""},
		{"more than 10,000 actions", actions(10_001), "the document has limits for more than 10000 pairs of a plan and an action"},
		{"300,000 actions", actions(300_000), "reading stopped here"},
		{"an action of 300,000 limits", doc(`{"limits": {"*": ["Funnel(1, Every(1s))"` + strings.Repeat(`, "Funnel(1, Every(1s))"`, 300_000) + `]}}`), "has more than 16 limits"},
		{"300,000 plans without limits", `{"default": "a", "plans": {` + strings.Repeat(`"a": {}, `, 300_000) + `"a": {}}}`, "reading stopped here"},
		{"10 MB of spaces", sliding(1) + strings.Repeat(" ", 10_000_000), ""},
		{"65 MB", sliding(1) + strings.Repeat(" ", 65<<20), "the document has 68157523 bytes, and 67108864 are the most"},
		{"deep nesting", strings.Repeat("[", 1_000_000), "exceeded max depth"},
		{"a long name", doc(`{"limits": {"*": ["` + strings.Repeat("x", 10_000_000) + `"]}}`), `"x`},
		{"100,000 users without one of 5,000 plans", strangers(100_000, 5000), `users: there is no plan "gold"; the plans are plan-0, plan-1, plan-10, `},
		{"a long plan", `{"default": "` + strings.Repeat("x", 10_000_000) + `", "plans": {"free": {"limits": {"*": ["Funnel(1, Every(1s))"]}}}}`, `"default": there is no plan "x`},
	} {
		t.Run(c.name, func(t *testing.T) {
			document := []byte(c.document)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			_, err := plans.New(memorystore.New(nil), document)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%.200v", err)
			}
			if err != nil && len(err.Error()) > 1000*strings.Count(err.Error(), "plans: ") {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			if made := after.TotalAlloc - before.TotalAlloc; made > 512<<20 || took > 30*time.Second || len(c.document) > 64<<20 && made > 100<<10 {
				t.Errorf("%d bytes took %s and %d bytes of memory", len(c.document), took, made)
			}
		})
	}
}
