package plans_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/core/plans"
)

func TestWhatChanges(t *testing.T) {
	const (
		reply  = `"reply": ["SlidingWindow(5, 1m)"]`
		like   = `"like": ["Funnel(15, Per(30, 1m))"]`
		others = `"*": ["SlidingWindow(60, 1m)"]`
	)
	limits := func(texts ...string) string { return doc(`{"limits": {` + strings.Join(texts, ", ") + `}}`) }
	ban := func(text string) string { return doc(`{"limits": {` + others + `}` + text + `}`) }
	zone := func(zone string) string {
		return doc(`{"limits": {"day": ["CalendarWindow(5, day, {zone})"], ` + others + `}, "zone": "` + zone + `"}`)
	}
	two := func(normal, users string) string {
		return `{"default": "` + normal + `", "users": ` + users + `, "zones": {}, "plans": {
			"free": {"limits": {` + reply + `, ` + like + `}},
			"pro": {"limits": {"reply": ["SlidingWindow(50, 1m)"], "like": ["Funnel(50, Per(30, 1m))"]}}}}`
	}
	for _, c := range []struct {
		name, from, to string
		want           string // lines
	}{
		{"nothing", limits(reply, like), limits(like, reply), ""},
		{"spaces", limits(reply), limits(`"reply": [ " SlidingWindow( 5,60s ) " ]`), ""},
		{"a window's max", limits(reply), limits(`"reply": ["SlidingWindow(3, 1m)"]`), "plan free, reply: SlidingWindow(5, 1m) -> SlidingWindow(3, 1m)"},
		{"a window's period", limits(reply), limits(`"reply": ["SlidingWindow(5, 2m)"]`), "plan free, reply: SlidingWindow(5, 1m) -> SlidingWindow(5, 2m); starts anew: SlidingWindow(5, 2m)"},
		{"a window's name", limits(reply), limits(`"reply": ["SlidingWindow(5, 1m).Named(\"x\")"]`), `plan free, reply: SlidingWindow(5, 1m) -> SlidingWindow(5, 1m).Named("x"); starts anew: SlidingWindow(5, 1m).Named("x")`},
		{"a window for all actions together", limits(reply), limits(`"reply": ["SlidingWindow(5, 1m).PerUser()"]`), "plan free, reply: SlidingWindow(5, 1m) -> SlidingWindow(5, 1m).PerUser(); starts anew: SlidingWindow(5, 1m).PerUser()"},
		{"a funnel's numbers", limits(like), limits(`"like": ["Funnel(20, Per(30, 1m))"]`), "plan free, like: Funnel(15, Per(30, 1m)) -> Funnel(20, Per(30, 1m)); starts anew: Funnel(20, Per(30, 1m))"},
		{"one of two", limits(`"like": ["Funnel(15, Per(30, 1m))", "FixedWindow(9, 24h)"]`), limits(`"like": ["Funnel(20, Per(30, 1m))", "FixedWindow(8, 24h)"]`),
			"plan free, like: Funnel(15, Per(30, 1m)) and FixedWindow(9, 24h) -> Funnel(20, Per(30, 1m)) and FixedWindow(8, 24h); starts anew: Funnel(20, Per(30, 1m))"},
		{"a further one", limits(like), limits(`"like": ["Funnel(15, Per(30, 1m))", "FixedWindow(9, 24h)"]`),
			"plan free, like: Funnel(15, Per(30, 1m)) -> Funnel(15, Per(30, 1m)) and FixedWindow(9, 24h); starts anew: FixedWindow(9, 24h)"},
		{"an action that had the limits of the others", limits(others), limits(others, reply), "plan free, reply: SlidingWindow(60, 1m) -> SlidingWindow(5, 1m)"},
		{"an action that gets the limits of the others", limits(others, like), limits(others), "plan free, like: Funnel(15, Per(30, 1m)) -> SlidingWindow(60, 1m); starts anew: SlidingWindow(60, 1m)"},
		{"an action that names the limits that it had", limits(others), limits(others, `"reply": ["SlidingWindow(60, 1m)"]`), ""},
		{"an action without limits before", limits(reply), limits(reply, like), "plan free, like: none -> Funnel(15, Per(30, 1m))"},
		{"an action without limits after", limits(reply, like), limits(like), "plan free, reply: SlidingWindow(5, 1m) -> none"},
		{"the others, which come last", limits(reply, others, `"z": ["Funnel(1, Every(1s))"]`), limits(`"reply": ["SlidingWindow(6, 1m)"]`, `"*": ["SlidingWindow(61, 1m)"]`, `"z": ["Funnel(2, Every(1s))"]`),
			"plan free, reply: SlidingWindow(5, 1m) -> SlidingWindow(6, 1m)\nplan free, z: Funnel(1, Per(1, 1s)) -> Funnel(2, Per(1, 1s)); starts anew: Funnel(2, Per(1, 1s))\nplan free, *: SlidingWindow(60, 1m) -> SlidingWindow(61, 1m)"},
		{"a ban policy", ban(``), ban(`, "ban": {"refusals": 20, "within": "1m", "bans": ["1m", "1h30m"]}`), "plan free, ban: none -> after 20 refusals within 1m for 1m, 1h30m"},
		{"all of a ban policy", ban(`, "ban": {}`), ban(`, "ban": {"refusals": 20, "within": "1m0.5s", "bans": ["2h"], "forgetAfter": "48h", "perUser": true}`),
			"plan free, ban: by hand -> after 20 refusals within 1m0.5s for 2h, forgotten after 48h, from all actions"},
		{"no ban policy any more", ban(`, "ban": {}`), ban(``), "plan free, ban: by hand -> none"},
		{"a plan's zone", zone("UTC"), zone("Asia/Tokyo"), "plan free, zone: UTC -> Asia/Tokyo; starts anew: day: CalendarWindow(5, day, {zone})"},
		{"months from the customers' day", limits(`"reply": ["CalendarWindow(9, month, UTC)"]`), limits(`"reply": ["CalendarWindow(9,month.from({day}),UTC)"]`),
			"plan free, reply: CalendarWindow(9, month, UTC) -> CalendarWindow(9, month.from({day}), UTC); starts anew: CalendarWindow(9, month.from({day}), UTC)"},
		{"the max of such months", limits(`"reply": ["CalendarWindow(9, month.from({day}), {zone})"]`), limits(`"reply": ["CalendarWindow(8, month.from({day}), {zone})"]`),
			"plan free, reply: CalendarWindow(9, month.from({day}), {zone}) -> CalendarWindow(8, month.from({day}), {zone})"},
		{"an action that is switched off", limits(reply), limits(`"reply": ["Nothing()"]`), "plan free, reply: SlidingWindow(5, 1m) -> Nothing()"},
		{"an action that is switched on again", limits(`"reply": ["Nothing()"]`), limits(reply), "plan free, reply: Nothing() -> SlidingWindow(5, 1m)"},
		{"a further plan", limits(reply), strings.Replace(limits(reply), `"free": {`, `"trial": {"limits": {"reply": ["SlidingWindow(1, 1m)"]}}, "free": {`, 1), "plan trial, reply: none -> SlidingWindow(1, 1m)"},
		{"the default", two("free", "{}"), two("pro", "{}"), "default plan: free -> pro; starts anew: like: Funnel(50, Per(30, 1m))"},
		{"users, who are counted", two("free", `{"alice": "pro", "bob": "pro", "carol": "free", "dave": "free"}`), two("free", `{"alice": "pro", "bob": "free", "carol": "pro", "dave": "pro", "erin": "pro"}`),
			"plan of 1 user: none -> pro; starts anew: like: Funnel(50, Per(30, 1m))\nplan of 2 users: free -> pro; starts anew: like: Funnel(50, Per(30, 1m))\nplan of 1 user: pro -> free; starts anew: like: Funnel(15, Per(30, 1m))"},
		{"users who are not named any more", two("free", `{"alice": "pro"}`), two("free", `{}`), "plan of 1 user: pro -> none; starts anew: like: Funnel(15, Per(30, 1m))"},
		{"a user who is named, and had the plan as the default", two("free", `{}`), two("free", `{"alice": "free"}`), "plan of 1 user: none -> free"},
		{"spaces in a limit of the zone", zone("UTC"), strings.Replace(zone("UTC"), `(5, day, {zone})`, ` ( 5,\nday,{zone} )`, 1), ""},
		{"names that a terminal would heed", limits(reply), strings.Replace(limits(`"re\u001b[2Jply": ["Funnel(1, Every(1s))"]`), `"free"`, `"fr\u009bee"`, 2),
			"default plan: free -> \"fr\\u009bee\"\nplan free, reply: SlidingWindow(5, 1m) -> none\nplan \"fr\\u009bee\", \"re\\x1b[2Jply\": none -> Funnel(1, Per(1, 1s))"},
		{"zones of users", two("free", "{}"), strings.Replace(two("free", "{}"), `"zones": {}`, `"zones": {"alice": "Asia/Tokyo"}`, 1), "zone of 1 user"},
		{"zones of users who are not named any more", strings.Replace(two("free", "{}"), `"zones": {}`, `"zones": {"alice": "Asia/Tokyo"}`, 1), two("free", "{}"), "zone of 1 user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := newPlans(t, c.from), newPlans(t, c.to)
			var got []string
			for _, change := range plans.Compare(from, to) {
				got = append(got, change.String())
			}
			if got := strings.Join(got, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if c.want != "" {
				if err := from.Update([]byte(c.to)); err != nil || len(from.Generation().Changes) != len(got) {
					t.Errorf("the generation has the changes %v, %v", from.Generation().Changes, err)
				}
			}
			if same := plans.Compare(to, to); len(same) != 0 {
				t.Errorf("the same document has the changes %v", same)
			}
		})
	}
}

// Compared with nothing, all that is in force is a change. That is what the first Generation has.
func TestAllThatIsInForce(t *testing.T) {
	p := newPlans(t, `{"default": "free", "users": {"alice": "pro"}, "plans": {
		"free": {"limits": {"reply": ["SlidingWindow(5, 1m)"]}},
		"pro": {"limits": {"*": ["CalendarWindow(9, day, {zone})"]}, "ban": {}}}}`)
	const want = `[{"what":"default","to":"free"},` +
		`{"what":"limits","plan":"free","action":"reply","to":"SlidingWindow(5, 1m)"},` +
		`{"what":"limits","plan":"pro","action":"*","to":"CalendarWindow(9, day, {zone})"},` +
		`{"what":"ban","plan":"pro","to":"by hand"},` +
		`{"what":"users","to":"pro","users":1}]`
	for _, changes := range [][]plans.Change{plans.Compare(nil, p), p.Generation().Changes} {
		if got, err := json.Marshal(changes); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
	if got, err := json.Marshal(p.Generation()); err != nil || !strings.HasPrefix(string(got), `{"number":1,"version":"`) || !strings.HasSuffix(string(got), `","changes":`+want+`}`) {
		t.Errorf("%s, %v", got, err)
	}
}
