package plans_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/plans"
)

// doc is a document of one plan.
func doc(plan string) string { return `{"default": "free", "plans": {"free": ` + plan + `}}` }

// withUsers is a document whose users are the text.
func withUsers(users string) string {
	return `{"default": "free", "users": ` + users + `, "plans": {"free": {"limits": {"*": ["SlidingWindow(5, 1m)"]}}}}`
}

func TestWhatIsWrongWithADocument(t *testing.T) {
	limits := func(text string) string { return doc("{\n\"limits\": {\"reply\": " + text + "}}") }
	ban := func(text string) string {
		return doc("{\"limits\": {\"*\": [\"SlidingWindow(5, 1m)\"]},\n\"ban\": " + text + "}")
	}
	const reply = `2:21: plan "free", action "reply"`
	for _, c := range []struct {
		name, document string
		want           string // lines of line:column: text
	}{
		{"an empty document", ``, `1:1: the document is not JSON: unexpected end of JSON input`},
		{"half a document", "{\n  \"default\": \"fr", `2:16: the document is not JSON: unexpected end of JSON input`},
		{"half a document that ends with a long character", `{"default": "愬`, `1:14: the document is not JSON: unexpected end of JSON input`},
		{"no JSON", "{\n  default: free}", `2:3: the document is not JSON: invalid character 'd' looking for beginning of object key string`},
		{"two documents", withUsers(`{}`) + "\n{}", `2:1: the document is not JSON: invalid character '{' after top-level value`},
		{"no object", `[]`, `1:1: the document is a list; write an object in braces
1:1: the document has no plans; give it at least {"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(60, 1m)"]}}}}
1:1: the document needs "default", the plan of users who have no other`},
		{"nothing", `{}`, `1:1: the document has no plans; give it at least {"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(60, 1m)"]}}}}
1:1: the document needs "default", the plan of users who have no other`},
		{"a default and no plans", `{"default": "free"}`, `1:1: the document has no plans; give it at least {"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(60, 1m)"]}}}}`},
		{"bytes that are not UTF-8", "{\"default\":\n \"\xff\"}", `2:3: the document is not valid UTF-8`},
		{"a misspelt field", strings.Replace(withUsers(`{}`), `"users"`, `"user"`, 1), `1:21: the document: "user" is not a field; the fields are default, plans, users, zones`},
		{"a field in capitals", strings.Replace(withUsers(`{}`), `"users"`, `"Users"`, 1), `1:21: the document: "Users" is not a field; the fields are default, plans, users, zones`},
		{"a field of a plan that is misspelt", doc("{\"limits\": {\"*\": [\"Funnel(1, Every(1s))\"]},\n\t\"bann\": {}}"), `2:2: plan "free": "bann" is not a field; the fields are limits, ban, zone`},
		{"a field twice", withUsers("{},\n\"users\": {}"), `2:1: the document: "users" is given twice; remove one`},
		{"a plan twice", `{"default": "a", "plans": {"a": {"limits": {"*": ["Funnel(1, Every(1s))"]}}, "a": {"limits": {"*": ["Funnel(1, Every(1s))"]}}}}`, `1:78: plan "a" is given twice; remove one`},
		{"an escaped name twice", `{"default": "a", "plans": {"a": {"limits": {"*": ["Funnel(1, Every(1s))"]}}, "\u0061": {"limits": {"*": ["Funnel(1, Every(1s))"]}}}}`, `1:78: plan "a" is given twice; remove one`},
		{"an action twice", limits(`["Funnel(1, Every(1s))"], "reply": ["Funnel(1, Every(1s))"]`), `2:47: plan "free", action "reply" is given twice; remove one`},
		{"a user twice, who is not named", withUsers("{\"alice\": \"free\",\n\"bob\": \"free\", \"alice\": \"free\"}"), `2:16: users: a user is given twice; remove one`},
		{"an empty user", withUsers("{\n\"\": \"free\"}"), `2:1: users: a user is empty`},
		{"a user whose plan is unknown", withUsers("{\n\"alice\": \"gold\"}"), `2:10: users: there is no plan "gold"; the plans are free`},
		{"a user whose plan is a number", withUsers("{\n\"alice\": 5}"), `2:10: users is a number; write a text in quotes`},
		{"users who are a list", withUsers("\n[\"alice\"]"), `2:1: users is a list; write an object in braces`},
		{"a default that is unknown", strings.Replace(withUsers("{}"), `"default": "free"`, `"default": "gold"`, 1), `1:13: "default": there is no plan "gold"; the plans are free`},
		{"a plan without a name", `{"default": "free", "plans": {"free": {"limits": {"*": ["Funnel(1, Every(1s))"]}}, "": {"limits": {"*": ["Funnel(1, Every(1s))"]}}}}`, `1:84: plan "": a name has 1 to 64 bytes`},
		{"a plan that is null", doc(`null`), `1:31: plan "free" has no limits; give it some for "*", which stands for all actions
1:39: plan "free" is null; write an object in braces`},
		{"a plan without limits", doc(`{}`), `1:31: plan "free" has no limits; give it some for "*", which stands for all actions`},
		{"an action without limits", limits(`[]`), `2:21: plan "free", action "reply" has no limits; give it some, or leave the action out`},
		{"an empty action", doc(`{"limits": {"": ["Funnel(1, Every(1s))"]}}`), `1:51: plan "free", action "": the action is empty`},
		{"a limit that is not in a list", limits(`"SlidingWindow(5, 1m)"`), reply + ` is a text; write a list in brackets`},
		{"a limit that is a number", limits(`[5]`), `2:22: plan "free", action "reply" is a number; write a text in quotes`},
		{"an empty limit", limits(`[""]`), `2:22: plan "free", action "reply" is empty`},
		{"a word that is no limit", limits(`["Sliding(5, 1m)"]`), `2:22: plan "free", action "reply": ParseLimit: "Sliding(5, 1m)", position 1: "Sliding" is not a limit; write one such as SlidingWindow(5, 1m), MovingWindow(5, 1m), FixedWindow(5, 1m), ElasticWindow(5, 1m), CalendarWindow(5, month, UTC), TokenBucket(5, Per(30, 1m)), Funnel(5, Per(30, 1m)), Throttle(5, Per(30, 1m)), InFlight(5), Nothing()`},
		{"a limit out of bounds", limits(`["SlidingWindow(0, 1m)"]`), `2:22: plan "free", action "reply": SlidingWindow(0, 1m): max 0 is not within 1 to 10000`},
		{"limits that share a state", limits(`["SlidingWindow(5, 1m)", "SlidingWindow(6, 1m)"]`), reply + `: SlidingWindow(5, 1m) and SlidingWindow(6, 1m) would share one state; tell them apart with Named`},
		{"only shadow limits", limits(`["SlidingWindow(5, 1m).Shadow()"]`), reply + `: all limits are shadow limits; for a dry run of a whole limiter, give it the store core.Shadow(store)`},
		{"too many limits", limits(`["Funnel(1, Every(1s))"` + strings.Repeat(`, "Funnel(1, Every(1s))"`, 16) + `]`), reply + ` has more than 16 limits`},
		{"several problems", limits(`["SlidingWindow(0, 1m)", "Funnel(5)"], "like": ["Foo()"], "x": 1`), `2:22: plan "free", action "reply": SlidingWindow(0, 1m): max 0 is not within 1 to 10000
2:46: plan "free", action "reply": ParseLimit: "Funnel(5)", position 9: "," is missing before ")"; write it as in Funnel(5, Per(30, 1m))
2:69: plan "free", action "like": ParseLimit: "Foo()", position 1: "Foo" is not a limit; write one such as SlidingWindow(5, 1m), MovingWindow(5, 1m), FixedWindow(5, 1m), ElasticWindow(5, 1m), CalendarWindow(5, month, UTC), TokenBucket(5, Per(30, 1m)), Funnel(5, Per(30, 1m)), Throttle(5, Per(30, 1m)), InFlight(5), Nothing()
2:84: plan "free", action "x" is a number; write a list in brackets`},
		{"a ban policy out of bounds, once for all actions", ban(`{"refusals": 0, "within": "1m", "bans": ["1m"]}`), `2:8: plan "free", "ban": BanPolicy: Refusals 0 is not within 1 to 100`},
		{"a misspelt field of a ban policy", ban(`{"refusal": 3}`), `2:9: plan "free", "ban": "refusal" is not a field; the fields are refusals, within, bans, forgetAfter, perUser`},
		{"values of a ban policy", ban(`{"refusals": 1.5, "within": 60, "bans": "1m", "forgetAfter": "1 day", "perUser": null}`), `2:21: plan "free", "ban", "refusals" is 1.5; write a whole number
2:36: plan "free", "ban", "within" is a number; write a text in quotes
2:48: plan "free", "ban", "bans" is a text; write a list in brackets
2:69: plan "free", "ban", "forgetAfter": "1 day" is not a duration; write one such as 500ms, 1m or 24h
2:89: plan "free", "ban", "perUser" is null; write true or false`},
		{"a zone that is unknown", doc(`{"limits": {"*": ["CalendarWindow(5, day, {zone})"]}, "zone": "Mars"}`), `1:101: plan "free": the zone "Mars" is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`},
		{"a zone that is not used", doc(`{"limits": {"*": ["CalendarWindow(5, day, UTC)"]}, "zone": "UTC"}`), `1:98: plan "free" has a zone, but no limit uses it; write CalendarWindow(100, month, {zone}), or remove the zone`},
		{"a day outside of a month", limits(`["FixedWindow({day}, 1h)"]`), `2:22: plan "free", action "reply": ParseLimit: "FixedWindow({day}, 1h)", position 13: "{day}" is not a whole number of at most 1000000000`},
		{"a month of the first and one of the customer's day", limits(`["CalendarWindow(5, month.from({day}), UTC)", "CalendarWindow(9, month, UTC)"]`), `2:21: plan "free", action "reply": CalendarWindow(5, month, UTC) and CalendarWindow(9, month, UTC) would share one state; tell them apart with Named`},
		{"Nothing beside another limit", limits(`["Nothing()", "FixedWindow(5, 1h)"]`), `2:21: plan "free", action "reply": Nothing() refuses every action, so another limit would have no effect; remove one of the two`},
		{"a zone in a name", doc(`{"limits": {"*": ["Funnel(1, Every(1s)).Named(\"{zone}\")"]}}`), `1:57: plan "free", action "*": {zone} stands for the zone of a CalendarWindow; it cannot be in a name`},
		{"a zone in a part of a zone", doc(`{"limits": {"*": ["CalendarWindow(5, day, Etc/{zone})"]}}`), `1:57: plan "free", action "*": {zone} stands for the whole zone of a CalendarWindow; write CalendarWindow(100, month, {zone})`},
		{"a name of another plan that a terminal would heed", `{"default": "a\u001b[2J", "plans": {"b\u009b2J": {"limits": {"*": ["Funnel(1, Every(1s))"]}}}}`, `1:13: "default": there is no plan "a\x1b[2J"; the plans are "b\u009b2J"`},
		{"a value that a terminal would heed", ban("{\"refusals\": \"\u009b2J\"}"), `2:21: plan "free", "ban", "refusals" is "\"\u009b2J\""; write a whole number`},
		{"a zone with words of a limit", `{"default": "free", "plans": {"free": {"limits": {"*": ["Funnel(1, Every(1s))"]}}}, "zones": {"alice": "UTC).Shadow("}}`, `1:104: zones: the zone "UTC).Shadow(" is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`},
		{"the zone of the machine", `{"default": "free", "plans": {"free": {"limits": {"*": ["Funnel(1, Every(1s))"]}}}, "zones": {"alice": "Local"}}`, `1:104: zones: the zone "Local" is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := plans.New(memorystore.New(nil), []byte(c.document))
			var all *plans.DocumentError
			if p != nil || !errors.As(err, &all) || !errors.Is(err, core.ErrConfig) {
				t.Fatalf("the error is %v", err)
			}
			var got []string
			for _, problem := range all.Problems {
				got = append(got, fmt.Sprintf("%d:%d: %s", problem.Line, problem.Column, problem.Text))
			}
			if got := strings.Join(got, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if n := strings.Count(err.Error(), "plans: line "); n != len(all.Problems) || strings.Contains(err.Error(), "alice") {
				t.Errorf("the error has %d lines: %s", n, err)
			}
		})
	}
}

// Reading stops after 100 problems.
func TestManyProblems(t *testing.T) {
	document := doc(`{"limits": {"*": [` + strings.Repeat(`"x", `, 5000) + `"x"]}}`)
	_, err := plans.New(memorystore.New(nil), []byte(document))
	var all *plans.DocumentError
	if !errors.As(err, &all) || len(all.Problems) != 100 || !all.More || !strings.HasSuffix(err.Error(), "\nplans: reading stopped here; there may be more") {
		t.Errorf("%.200v", err)
	}
}

// refuses is a store that cannot serve moving windows.
type refuses struct{ core.Store }

func (refuses) Accept(limits []core.Limit) error {
	for _, l := range limits {
		if l.Kind() == "moving" {
			return errors.New("store: no moving windows here")
		}
	}
	return nil
}

func TestALimitThatTheStoreCannotServe(t *testing.T) {
	document := doc("{\"limits\": {\"like\": [\"Funnel(1, Every(1s))\"],\n\"reply\": [\"MovingWindow(5, 1m)\"]}}")
	_, err := plans.New(refuses{memorystore.New(nil)}, []byte(document))
	if want := `plans: line 2, column 10: plan "free", action "reply": store: no moving windows here`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := plans.New(nil, []byte(document)); err == nil || !strings.Contains(err.Error(), "the store is nil") {
		t.Errorf("without a store: %v", err)
	}
}

func limiterOf(t *testing.T, p *plans.Plans, user, action string, c plans.Customer) string {
	t.Helper()
	l, err := p.Limiter(user, action, c)
	if err != nil {
		return err.Error()
	}
	if l == nil {
		return "none"
	}
	return fmt.Sprint(l.Limits())
}

func newPlans(t *testing.T, document string) *plans.Plans {
	t.Helper()
	p, err := plans.New(memorystore.New(nil), []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhichLimitsDecide(t *testing.T) {
	p := newPlans(t, `{
		"default": "free",
		"plans": {
			"free": {"limits": {"reply": ["SlidingWindow(5, 1m)", "FixedWindow(9, 24h).Named(\"day\")"], "*": ["SlidingWindow(60, 1m)"]}},
			"pro": {"limits": {"reply": ["CalendarWindow(100, month, {zone})"]}, "zone": "Asia/Shanghai"},
			"paid": {"limits": {"reply": ["CalendarWindow(9, month.from({day}), {zone})"], "like": ["CalendarWindow(9, month.from({day}), UTC)"], "export": ["Nothing()"]}, "ban": {}}
		},
		"users": {"alice": "pro", "b\u00f6b \"x\"\n": "pro", "carol": "free"},
		"zones": {"carol": "America/New_York", "dave": "America/New_York"}
	}`)
	for _, c := range []struct {
		name, user, action string
		customer           plans.Customer
		want, plan         string
	}{
		{"the default plan", "x", "reply", plans.Customer{}, "[SlidingWindow(5, 1m) FixedWindow(9, 24h).Named(\"day\")]", "free"},
		{"an action that is not named", "x", "like", plans.Customer{}, "[SlidingWindow(60, 1m)]", "free"},
		{"the program's plan", "x", "reply", plans.Customer{Plan: "pro"}, "[CalendarWindow(100, month, Asia/Shanghai)]", "pro"},
		{"the document's plan of a user", "alice", "reply", plans.Customer{}, "[CalendarWindow(100, month, Asia/Shanghai)]", "pro"},
		{"the document's plan and not the program's", "carol", "reply", plans.Customer{Plan: "pro"}, "[SlidingWindow(5, 1m) FixedWindow(9, 24h).Named(\"day\")]", "free"},
		{"an escaped user", "böb \"x\"\n", "reply", plans.Customer{}, "[CalendarWindow(100, month, Asia/Shanghai)]", "pro"},
		{"no limits", "alice", "like", plans.Customer{}, "none", "pro"},
		{"the default plan for an unknown one", "x", "reply", plans.Customer{Plan: "gold"}, "[SlidingWindow(5, 1m) FixedWindow(9, 24h).Named(\"day\")]", "free"},
		{"the document's zone of a user", "dave", "reply", plans.Customer{Plan: "pro", Zone: "Europe/Paris"}, "[CalendarWindow(100, month, America/New_York)]", "pro"},
		{"the program's zone", "x", "reply", plans.Customer{Plan: "pro", Zone: "Europe/Paris"}, "[CalendarWindow(100, month, Europe/Paris)]", "pro"},
		{"the customer's day", "x", "reply", plans.Customer{Plan: "paid", Day: 17}, "[CalendarWindow(9, month.from(17), UTC)]", "paid"},
		{"the customer's day and zone", "x", "reply", plans.Customer{Plan: "paid", Day: 31, Zone: "Europe/Paris"}, "[CalendarWindow(9, month.from(31), Europe/Paris)]", "paid"},
		{"a day in a zone that the limit has", "x", "like", plans.Customer{Plan: "paid", Day: 17, Zone: "Europe/Paris"}, "[CalendarWindow(9, month.from(17), UTC)]", "paid"},
		{"no day is the first", "x", "reply", plans.Customer{Plan: "paid"}, "[CalendarWindow(9, month, UTC)]", "paid"},
		{"the first day", "x", "reply", plans.Customer{Plan: "paid", Day: 1}, "[CalendarWindow(9, month, UTC)]", "paid"},
		{"a day that no month has", "x", "reply", plans.Customer{Plan: "paid", Day: 32}, "plans: the day 32 of a Customer is not within 1 to 31", "paid"},
		{"a day before the first", "x", "reply", plans.Customer{Plan: "paid", Day: -1}, "plans: the day -1 of a Customer is not within 1 to 31", "paid"},
		{"a day that is not needed", "x", "reply", plans.Customer{Plan: "pro", Day: 99}, "[CalendarWindow(100, month, Asia/Shanghai)]", "pro"},
		{"an action that a plan with bans does not include", "x", "export", plans.Customer{Plan: "paid"}, "[Nothing()]", "paid"},
		{"a zone that is not needed", "x", "reply", plans.Customer{Zone: "Mars"}, "[SlidingWindow(5, 1m) FixedWindow(9, 24h).Named(\"day\")]", "free"},
		{"a zone that is unknown", "x", "reply", plans.Customer{Plan: "pro", Zone: "Mars"}, `plans: the zone "Mars" is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`, "pro"},
		{"a zone with words of a limit", "x", "reply", plans.Customer{Plan: "pro", Zone: "UTC).Shadow("}, `plans: the zone "UTC).Shadow(" is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`, "pro"},
		{"a zone that is not spelled as in the database", "x", "reply", plans.Customer{Plan: "pro", Zone: "Asia//Shanghai"}, `plans: the zone "Asia//Shanghai" is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`, "pro"},
		{"the zone of the machine", "x", "reply", plans.Customer{Plan: "pro", Zone: "Local"}, `plans: the zone "Local" is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`, "pro"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				if got := limiterOf(t, p, c.user, c.action, c.customer); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			}
			if got := p.Plan(c.user, c.customer); got != c.plan {
				t.Errorf("the plan is %s, want %s", got, c.plan)
			}
		})
	}
}

func TestAPlanBans(t *testing.T) {
	p := newPlans(t, doc(`{"limits": {"*": ["SlidingWindow(1, 1m)"]}, "ban": {"refusals": 2, "within": "1m", "bans": ["1h", "2h"], "forgetAfter": "48h", "perUser": true}}`))
	var last core.Decision
	for _, action := range []string{"reply", "reply", "reply", "like"} {
		l, _ := p.Limiter("alice", action, plans.Customer{})
		d, err := l.Allow(context.Background(), "alice", action)
		if err != nil {
			t.Fatal(err)
		}
		last = d
	}
	if last.Reason != core.ReasonBanned || last.RetryAfter < 59*time.Minute {
		t.Errorf("%+v", last)
	}
}

// A byte order mark is passed over, and spaces may be anywhere.
func TestAFileOfWindows(t *testing.T) {
	newPlans(t, "\uFEFF\r\n"+strings.NewReplacer(`":`, "\" :\r\n\t", `",`, "\" ,\r\n").Replace(withUsers(`{"alice": "free"}`))+"\r\n")
}
