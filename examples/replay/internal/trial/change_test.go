package trial_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/trial"
)

const (
	oldPlans = `{"default": "free", "users": {"u1": "pro"}, "plans": {
		"free": {"limits": {"reply": ["SlidingWindow(3, 1m)"]}},
		"pro": {"limits": {"*": ["SlidingWindow(6, 1m)"]}}}}`
	newPlans = `{"default": "free", "users": {"u1": "pro", "u2": "pro"}, "plans": {
		"free": {"limits": {"reply": ["SlidingWindow(2, 1m)"], "like": ["FixedWindow(4, 1m)"], "share": ["FixedWindow(4, 1m)"]}},
		"pro": {"limits": {"*": ["SlidingWindow(6, 1m)"]}}}}`
)

// A wanted is an impact of the documents above, by hand.
type wanted struct {
	requests, before, after, refused, passed int64
	users, usersRefused, usersPassed         int
}

// The comparison of two documents is what two limiters for each plan and action decide about the same requests.
func TestDocumentsAreComparedRequestByRequest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	limiter := func(limit core.Limit) *core.Limiter {
		return core.Must(core.New(memorystore.New(&memorystore.Options{Clock: clock}), limit))
	}
	type both struct{ before, after *core.Limiter }
	three, two, four, six := limiter(core.SlidingWindow(3, time.Minute)), limiter(core.SlidingWindow(2, time.Minute)), limiter(core.FixedWindow(4, time.Minute)), limiter(core.SlidingWindow(6, time.Minute))
	sixAfter := limiter(core.SlidingWindow(6, time.Minute))
	limiters := map[string]both{
		"free reply": {three, two}, "free like": {nil, four},
		"free -> pro reply": {three, sixAfter}, "free -> pro like": {nil, sixAfter},
		"pro reply": {six, sixAfter}, "pro like": {six, sixAfter},
	}
	want, users, refused, passed := map[string]*wanted{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	first := func(seen map[string]bool, key string) int {
		if seen[key] {
			return 0
		}
		seen[key] = true
		return 1
	}
	var log strings.Builder
	for range 4000 {
		now = now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
		user, action := fmt.Sprint("u", random.IntN(12)), []string{"reply", "like"}[random.IntN(2)]
		path := map[string]string{"reply": "replies", "like": "likes"}[action]
		fmt.Fprintf(&log, `{"time":%q,"method":"POST","path":"/posts/1/%s","user":%q}`+"\n", now.Format(time.RFC3339Nano), path, user)
		plan := map[string]string{"u1": "pro", "u2": "free -> pro"}[user]
		if plan == "" {
			plan = "free"
		}
		key := plan + " " + action
		allowed := func(l *core.Limiter) bool {
			if l == nil {
				return true
			}
			d, err := l.Allow(context.Background(), user, action)
			if err != nil {
				t.Fatal(err)
			}
			return d.Allowed
		}
		before, after := allowed(limiters[key].before), allowed(limiters[key].after)
		w := want[key]
		if w == nil {
			w = &wanted{}
			want[key] = w
		}
		w.requests++
		w.users += first(users, key+user)
		if !before {
			w.before++
		}
		if !after {
			w.after++
		}
		if before && !after {
			w.refused++
			w.usersRefused += first(refused, key+user)
		}
		if !before && after {
			w.passed++
			w.usersPassed += first(passed, key+user)
		}
	}
	r := run(t, log.String(), trial.Options{
		Line: line.Options{User: "field:user"}, Routes: forum[:2], ShowUsers: true,
		Plans: trial.Documents{From: []byte(oldPlans), To: []byte(newPlans)},
	})
	if len(r.Comparison.Impacts) != len(want) || !slices.Equal(r.Comparison.Untried, []string{"share"}) || len(r.Comparison.Changes) != 4 {
		t.Errorf("%+v", r.Comparison)
	}
	for _, i := range r.Comparison.Impacts {
		got := wanted{i.Requests, i.Before, i.After, i.Refused.Requests, i.Passed.Requests, i.Users, i.Refused.Users, i.Passed.Users}
		if w := want[i.Plan+" "+i.Action]; w == nil || got != *w {
			t.Errorf("plan %s, %s: %+v, want %+v", i.Plan, i.Action, got, w)
		}
		if len(i.Refused.Most) != min(10, i.Refused.Users) || len(i.Passed.Most) != min(10, i.Passed.Users) {
			t.Errorf("plan %s, %s: %+v", i.Plan, i.Action, i)
		}
	}
	for _, key := range []string{"free reply", "free like"} {
		if want[key].refused == 0 {
			t.Errorf("nobody is newly refused by %s", key)
		}
	}
	if want["free -> pro reply"].passed == 0 {
		t.Error("nobody newly passes")
	}
	if text, err := json.Marshal(r); err != nil || !strings.Contains(string(text), `"plans":{"changes":[{"what":"limits","plan":"free","action":"like","to":"FixedWindow(4, 1m)"}`) {
		t.Errorf("%s, %v", text, err)
	}
}

// Without an old document nobody was refused before, and two equal ones change nothing.
func TestDocumentsWithoutADifference(t *testing.T) {
	log := strings.Repeat(`{"time":"2026-11-22T08:00:00Z","method":"POST","path":"/posts/1/replies","user":"a"}`+"\n", 5)
	for name, c := range map[string]struct {
		from    []byte
		before  int64
		refused int64
		changes int
	}{
		"no old document": {nil, 0, 3, 6},
		"equal documents": {[]byte(newPlans), 3, 0, 0},
	} {
		r := run(t, log, trial.Options{Line: line.Options{User: "field:user"}, Routes: forum[:2], Plans: trial.Documents{From: c.from, To: []byte(newPlans)}})
		i := r.Comparison.Impacts[0]
		if len(r.Comparison.Impacts) != 1 || i.Before != c.before || i.After != 3 || i.Refused.Requests != c.refused || i.Passed.Requests != 0 || len(r.Comparison.Changes) != c.changes {
			t.Errorf("%s: %+v", name, r.Comparison)
		}
		for _, u := range i.Refused.Most {
			if u.Name == "a" {
				t.Errorf("%s: the user is shown", name)
			}
		}
	}
}

// The document says the zone of a user, and nothing says on which day a user has paid: the report has that.
func TestDocumentsWithInvoiceMonths(t *testing.T) {
	var log strings.Builder
	for _, at := range []string{"2026-02-28T15:59:59Z", "2026-02-28T16:00:00Z", "2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z", "2026-03-16T23:59:59Z"} {
		for _, user := range []string{"a", "b"} {
			fmt.Fprintf(&log, `{"time":%q,"method":"POST","path":"/posts/1/replies","user":%q}`+"\n", at, user)
		}
	}
	for limit, want := range map[string]struct{ refused, notes int }{
		"CalendarWindow(1, month.from({day}), {zone})": {6, 1},
		"CalendarWindow(1, month, {zone})":             {6, 0},
		"CalendarWindow(1, month.from(17), {zone})":    {7, 0},
		"Nothing()": {10, 0},
	} {
		document := fmt.Sprintf(`{"default": "paid", "zones": {"b": "Asia/Shanghai"}, "plans": {"paid": {"limits": {"reply": [%q]}}}}`, limit)
		r := run(t, log.String(), trial.Options{Line: line.Options{User: "field:user"}, Routes: forum[:2], Plans: trial.Documents{To: []byte(document)}})
		if c := r.Comparison; len(c.Impacts) != 1 || int(c.Impacts[0].After) != want.refused || len(c.Notes) != want.notes {
			t.Errorf("%s: %+v", limit, c)
		}
	}
}

func TestDocumentsThatCannotBeTried(t *testing.T) {
	const inFlight = `{"default": "free", "plans": {"free": {"limits": {"*": ["InFlight(3)"]}}}}`
	for _, c := range []struct {
		name, from, to string
		routes         []route.Route
		want           string
	}{
		{"a broken one", newPlans, `{}`, forum[:2], "the document of -plans: it has an error\nplans: line 1, column 1: the document has no plans"},
		{"a broken old one", `{`, newPlans, forum[:2], "the document of -against: it has an error\nplans: line 1, column 1: the document is not JSON: unexpected end of JSON input"},
		{"slots", newPlans, inFlight, forum[:2], "plan free, *: InFlight(3) cannot be tried: InFlight frees a slot when an action ends"},
		{"slots in the old one", inFlight, newPlans, forum[:2], "InFlight(3) cannot be tried"},
		{"no route of their actions", `{"default": "a", "plans": {"a": {"limits": {"reply": ["Funnel(1, Every(1s))"]}}}}`, `{"default": "a", "plans": {"a": {"limits": {"like": ["Funnel(1, Every(1s))"]}}}}`, nil,
			"the documents have limits for reply, like, and the log has only the action all; add a route, such as 'POST /replies=reply'"},
	} {
		_, err := trial.New(trial.Options{Routes: c.routes, Plans: trial.Documents{From: []byte(c.from), To: []byte(c.to)}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}
