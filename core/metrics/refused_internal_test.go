package metrics

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// The bounds of a summary hold for every history, compared with the exact counts.
func TestSummaryBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSummary(rapid.IntRange(1, 8).Draw(t, "size"))
		exact, total := map[string]uint64{}, uint64(0)
		for _, n := range rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "refusals") {
			user := fmt.Sprint(n * n / 20) // small numbers are frequent
			s.add(refusedName{user: user}, nil, 0)
			exact[user]++
			total++
			s.check(t)
		}
		if want := min(s.size, len(exact)); len(s.users) != want {
			t.Fatalf("it has %d users, want %d", len(s.users), want)
		}
		for _, e := range s.users {
			if n := exact[e.user]; n > e.count || n < e.count-e.over || e.over*uint64(s.size) > total {
				t.Errorf("%s has %d refusals of %d, and the summary of %d says %d, too many by up to %d", e.user, n, total, s.size, e.count, e.over)
			}
		}
		for user, n := range exact {
			if s.of[refusedName{user: user}] == nil && n > s.least() {
				t.Errorf("%s with %d refusals is left out, the least is %d", user, n, s.least())
			}
			if s.of[refusedName{user: user}] == nil && n*uint64(s.size) > total {
				t.Errorf("%s with %d of %d refusals is left out of %d", user, n, total, s.size)
			}
		}
	})
}

// check checks what add relies on.
func (s *summary) check(t *rapid.T) {
	for i, e := range s.users {
		if e.at != i || s.of[e.refusedName] != e || i > 0 && s.users[i-1].count < e.count {
			t.Fatalf("%d: %+v", i, *e)
		}
	}
	if len(s.of) != len(s.users) {
		t.Fatalf("%d users in the map, %d in the list", len(s.of), len(s.users))
	}
}
