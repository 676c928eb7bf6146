package plans_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/plans"
)

// Whatever a document is, it has problems, each at a position of the text, or what encoding/json reads in it is
// in force.
func FuzzDocument(f *testing.F) {
	const free = `{"free": {"limits": {"*": ["SlidingWindow(5, 1m)"]}}}`
	for _, s := range []string{
		``, `{}`, `[]`, `{"default": "free"`, `{"default":"free","plans":` + free + `}`, "\uFEFF" + `{ "plans" : ` + free + ", \"default\":\t\"fr\\u0065e\"}\r\n",
		`{"default":"free","plans":` + free + `,"users":{"a\"b":"free","\u0061":"free"},"zones":{"alice":"Asia/Shanghai"}}`,
		`{"default":"a","plans":{"a":{"zone":"UTC","limits":{"*":["CalendarWindow(5, day, {zone})","Funnel(15, Every(2s)).Named(\"n\")"]},"ban":{"refusals":3,"within":"1m","bans":["1m","1h"],"perUser":true}}}}`,
		`{"default":"a","default":"b","plans":{"a":null,"b":[{}],"c":{"limits":{"x":[1e9,"\\",[[]],{"a":{}}]}}},"users":[1,2]}`,
		`{"plans":{"a":{"limits":{"*":"x"},"ban":{"refusals":1.5,"within":60,"perUser":null}}},"zones":{"a":"UTC)"}}`,
	} {
		f.Add(s)
	}
	store := memorystore.New(nil)
	f.Fuzz(func(t *testing.T, document string) {
		p, err := plans.New(store, []byte(document))
		var all *plans.DocumentError
		switch {
		case err == nil:
		case !errors.As(err, &all) || len(all.Problems) == 0 || !errors.Is(err, core.ErrConfig):
			t.Fatalf("%q: %v", document, err)
		default:
			lines := strings.Split(strings.TrimPrefix(document, "\uFEFF"), "\n")
			for _, x := range all.Problems {
				if x.Line < 1 || x.Line > len(lines) || x.Column < 1 || x.Column > len([]rune(lines[x.Line-1]))+1 {
					t.Errorf("%q: a problem at %d:%d: %s", document, x.Line, x.Column, x.Text)
				}
			}
			return
		}
		var want struct {
			Default string
			Plans   map[string]struct{ Limits map[string][]string }
			Users   map[string]string
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(document, "\uFEFF")), &want); err != nil {
			t.Fatalf("%q is in force: %v", document, err)
		}
		if got := p.Plan("", plans.Customer{}); got != want.Default {
			t.Errorf("%q: the default is %q, want %q", document, got, want.Default)
		}
		for user, plan := range want.Users {
			if got := p.Plan(user, plans.Customer{}); got != plan {
				t.Errorf("%q: the plan of %q is %q, want %q", document, user, got, plan)
			}
		}
		for name, plan := range want.Plans {
			for action, texts := range plan.Limits {
				l, err := p.Limiter("", action, plans.Customer{Plan: name})
				if err != nil {
					t.Fatal(err)
				}
				enforced := slices.DeleteFunc(texts, func(text string) bool {
					limit, err := core.ParseLimit(strings.ReplaceAll(text, "{zone}", "UTC"))
					return err == nil && limit.IsShadow()
				})
				if got := l.Limits(); len(got) != len(enforced) {
					t.Errorf("%q: plan %q, action %q: %v, want %q", document, name, action, got, enforced)
				}
			}
		}
	})
}
