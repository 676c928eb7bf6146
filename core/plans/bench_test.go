package plans_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/plans"
	"github.com/tailcut/tailcut/keyfuncs"
)

// three are plans for the benchmarks. They follow a source.
func three(tb testing.TB) *plans.Plans {
	document := []byte(`{"default": "free", "users": {"alice": "pro"}, "plans": {
		"free": {"limits": {"reply": ["Funnel(1000000000, Per(1000000000, 1s))"]}},
		"pro":  {"limits": {"*": ["Funnel(1000000000, Per(1000000000, 1s))"]}},
		"team": {"limits": {"*": ["CalendarWindow(1000000000, month, {zone})"]}}}}`)
	p, err := plans.New(memorystore.New(nil), document)
	if err == nil {
		err = p.Follow(func(context.Context) ([]byte, error) { return document, nil })
	}
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

var picks = []struct {
	name, user string
	customer   plans.Customer
}{
	{"a user of the default plan", "bob", plans.Customer{}},
	{"a user of the document", "alice", plans.Customer{}},
	{"a user of the program", "bob", plans.Customer{Plan: "pro"}},
	{"a user with a zone", "bob", plans.Customer{Plan: "team", Zone: "Asia/Tokyo"}},
}

// alice is a function of the user.
func alice(user string) keyfuncs.UserOf[*http.Request] {
	return func(*http.Request) (string, error) { return user, nil }
}

// To pick a limiter allocates nothing.
func TestPickAllocates(t *testing.T) {
	for _, c := range picks {
		pick := plans.Pick(three(t), alice(c.user), keyfuncs.Action("reply"), func(*http.Request) (plans.Customer, error) { return c.customer, nil })
		if n := testing.AllocsPerRun(1000, func() {
			if l, err := pick(nil); l == nil || err != nil {
				t.Fatal(l, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, c := range picks {
		pick := plans.Pick(three(b), alice(c.user), keyfuncs.Action("reply"), func(*http.Request) (plans.Customer, error) { return c.customer, nil })
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = pick(nil)
			}
		})
	}
}
