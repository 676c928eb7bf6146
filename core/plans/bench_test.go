package plans_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/plans"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
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

// BenchmarkRequest compares the middleware with plans, with a limiter in an atomic.Pointer, and with one that
// does not change.
func BenchmarkRequest(b *testing.B) {
	store := memorystore.New(nil)
	fixed := core.Must(core.New(store, core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))))
	var now atomic.Pointer[core.Limiter]
	now.Store(fixed)
	for name, cfg := range map[string]nethttp.Config{
		"fixed": {},
		"picked": {Limiter: func(*http.Request) (*core.Limiter, error) {
			return now.Load(), nil
		}},
		"plans": {Limiter: plans.Pick(three(b), keyfuncs.Header("X-User-ID"), keyfuncs.Action("reply"), nil)},
	} {
		h := cfg.Limit(fixed, keyfuncs.Header("X-User-ID"), keyfuncs.Action("reply"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest("POST", "/replies", nil)
		r.Header.Set("X-User-ID", "alice")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := discard{}
			for b.Loop() {
				clear(w)
				h.ServeHTTP(w, r)
			}
		})
	}
}

type discard http.Header

func (w discard) Header() http.Header         { return http.Header(w) }
func (w discard) Write(b []byte) (int, error) { return len(b), nil }
func (w discard) WriteHeader(int)             {}

// BenchmarkCompile is a document with 10 plans of 20 actions each, and users.
func BenchmarkCompile(b *testing.B) {
	for _, users := range []int{0, 1000, 1_000_000} {
		document := []byte(`{"default": "plan-0", "plans": {`)
		for i := range 10 {
			document = fmt.Appendf(document, `"plan-%d": {"limits": {`, i)
			for j := range 20 {
				document = fmt.Appendf(document, `"POST /v1/things/%d": ["SlidingWindow(%d, 1m)", "FixedWindow(1000, 24h)"], `, j, 1+i)
			}
			document = append(document, `"*": ["SlidingWindow(60, 1m)"]}}, `...)
		}
		document = append(document[:len(document)-2], `}, "users": {`...)
		for i := range users {
			document = fmt.Appendf(document, `"user-%d": "plan-%d", `, i, i%10)
		}
		if users > 0 {
			document = document[:len(document)-2]
		}
		document = append(document, `}}`...)
		b.Run(fmt.Sprintf("users=%d", users), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(document)))
			for b.Loop() {
				if _, err := plans.New(memorystore.New(nil), document); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
