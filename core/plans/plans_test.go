package plans_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/plans"
	"github.com/tailcut/tailcut/keyfuncs"
)

// logged has the lines that the package logs during the test.
func logged(t *testing.T) func() string {
	var mu sync.Mutex
	var lines bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return lines.Write(b)
	}), nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return lines.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// sliding is a document whose only limit is a SlidingWindow of that max.
func sliding(max int) string {
	return doc(fmt.Sprintf(`{"limits": {"*": ["SlidingWindow(%d, 1h)"]}}`, max))
}

// quota is the quota that a user has by the plans.
func quota(t *testing.T, p *plans.Plans) int {
	t.Helper()
	l, err := p.Limiter("alice", "reply", plans.Customer{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Limits()[0].Quota()
}

func TestADocumentReplacesAnother(t *testing.T) {
	log := logged(t)
	synctest.Test(t, func(t *testing.T) {
		document := []byte(sliding(2))
		p, err := plans.New(memorystore.New(nil), document)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() core.Decision {
			l, _ := p.Limiter("alice", "reply", plans.Customer{})
			d, err := l.Allow(context.Background(), "alice", "reply")
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		clear(document) // the caller may do that
		ask()
		ask()
		if d := ask(); d.Allowed || d.Limit != 2 {
			t.Errorf("%+v", d)
		}
		first := p.Generation()
		if first.Number != 1 || !first.Since.Equal(time.Now()) || string(first.Document) != sliding(2) || len(first.Version) != 12 {
			t.Errorf("%+v", first)
		}

		time.Sleep(time.Minute)
		if err := p.Update([]byte(sliding(3))); err != nil {
			t.Fatal(err)
		}
		if d := ask(); !d.Allowed || d.Limit != 3 || d.Remaining != 0 {
			t.Errorf("the window does not keep its count: %+v", d)
		}
		second := p.Generation()
		if second.Number != 2 || !second.Since.Equal(time.Now()) || second.Version == first.Version || len(second.Changes) != 1 {
			t.Errorf("%+v", second)
		}

		for range 2 {
			if err := p.Update([]byte(sliding(0))); !errors.Is(err, core.ErrConfig) {
				t.Errorf("a broken document: %v", err)
			}
		}
		if g := p.Generation(); g.Number != 2 || p.Rejected() != 2 || quota(t, p) != 3 {
			t.Errorf("%+v, %d rejected", g, p.Rejected())
		}
		const broken = "3830034671c6" // of sliding(0)
		if log := log(); strings.Count(log, "code=plans-rejected version="+broken+" in_force="+second.Version) != 2 {
			t.Error(log)
		}
		if log := log(); strings.Count(log, "code=plans-changed version="+second.Version+` number=2 changes="plan free, *: SlidingWindow(2, 1h) -> SlidingWindow(3, 1h)"`) != 1 {
			t.Error(log)
		}

		if err := p.Update([]byte(sliding(3))); err != nil || p.Generation().Number != 2 {
			t.Errorf("the same document is generation %d, %v", p.Generation().Number, err)
		}
		if err := p.Update(first.Document); err != nil { // back
			t.Fatal(err)
		}
		if g := p.Generation(); g.Number != 3 || g.Version != first.Version || ask().Limit != 2 {
			t.Errorf("%+v", g)
		}
	})
}

// The limiters of what has not changed stay, and so do the callers who wait with them.
func TestWhatHasNotChangedKeepsItsLimiter(t *testing.T) {
	document := func(like, zone string) string {
		return fmt.Sprintf(`{"default": "free", "plans": {"free": {"limits": {
			"reply": ["SlidingWindow(5, 1m)"], "like": [%q], "day": ["CalendarWindow(5, day, {zone})"]}, "zone": %q}}}`, like, zone)
	}
	p := newPlans(t, document("Funnel(1, Every(1s))", "UTC"))
	limiters := func() (all [4]*core.Limiter) {
		for i, c := range []struct{ action, zone string }{{"reply", ""}, {"like", ""}, {"day", ""}, {"day", "Europe/Paris"}} {
			var err error
			if all[i], err = p.Limiter("alice", c.action, plans.Customer{Zone: c.zone}); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	first := limiters()
	if limiters() != first {
		t.Error("limiters are made twice")
	}
	for _, c := range []struct {
		document string
		kept     [4]bool
	}{
		{document("Funnel(1, Every(1s)) ", "UTC"), [4]bool{true, true, true, true}},
		{document("Funnel(2, Every(1s))", "UTC"), [4]bool{true, false, true, true}},
		{document("Funnel(2, Every(1s))", "Asia/Tokyo"), [4]bool{false, false, false, false}},
	} {
		if err := p.Update([]byte(c.document)); err != nil {
			t.Fatal(err)
		}
		now := limiters()
		for i, kept := range c.kept {
			if (now[i] == first[i]) != kept {
				t.Errorf("%s: limiter %d is kept: %t", c.document, i, !kept)
			}
		}
	}
}

// "The program gave a user a plan that the document does not have, and the default plan decides. Add the plan to
// the document. Logged once for each document."
func TestAnUnknownPlanIsLoggedOnce(t *testing.T) {
	log := logged(t)
	p := newPlans(t, sliding(2))
	for range 2 {
		for range 3 {
			limiterOf(t, p, "alice", "reply", plans.Customer{Plan: "gold"})
		}
		if err := p.Update([]byte(sliding(3))); err != nil {
			t.Fatal(err)
		}
	}
	if log := log(); strings.Count(log, "code=plan-unknown plan=gold") != 2 || strings.Contains(log, "alice") {
		t.Error(log)
	}
}

// "Each decision uses one document, either the old or the new one."
// While documents come and go, every decision is by one of them as a whole.
func TestEachDecisionIsByOneDocument(t *testing.T) {
	document := func(n int) []byte {
		return fmt.Appendf(nil, `{"default": "other", "users": {"alice": "plan-%[1]d"}, "plans": {
			"other": {"limits": {"*": ["SlidingWindow(9999, 1m)"]}},
			"plan-%[1]d": {"limits": {"reply": ["SlidingWindow(%[1]d, 1m)", "FixedWindow(%[1]d, 1h)", "CalendarWindow(%[1]d, day, {zone})"]}}}}`, n)
	}
	p, err := plans.New(memorystore.New(nil), document(1000))
	if err != nil {
		t.Fatal(err)
	}
	source := atomic.Pointer[[]byte]{}
	first := document(1000)
	source.Store(&first)
	if err := p.Follow(func(context.Context) ([]byte, error) { return *source.Load(), nil }); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var deciding sync.WaitGroup
	for i := range 64 {
		deciding.Go(func() {
			user, zone := fmt.Sprint("user-", i), []string{"", "Asia/Tokyo", "Europe/Paris"}[i%3]
			if i%2 == 0 {
				user = "alice"
			}
			for {
				select {
				case <-stop:
					return
				default:
				}
				l, err := p.Limiter(user, "reply", plans.Customer{Zone: zone})
				if err != nil {
					t.Error(err)
					return
				}
				limits := l.Limits()
				for _, limit := range limits {
					if (user == "alice") != (limit.Quota() != 9999) || limit.Quota() != limits[0].Quota() {
						t.Errorf("%s has %s", user, limits)
						return
					}
				}
				if d, err := l.AllowN(context.Background(), user, "reply", 0); err != nil || d.Limit != limits[d.Binding].Quota() {
					t.Errorf("%s has %s, and the decision is %+v, %v", user, limits, d, err)
					return
				}
			}
		})
	}
	var updating sync.WaitGroup
	for i := range 4 {
		updating.Go(func() {
			for n := range 50 {
				next, err := document(1000+100*i+n), error(nil)
				switch n % 3 {
				case 0:
					source.Store(&next)
					err = p.Refresh(context.Background())
				case 1:
					err = p.Update(next)
				default:
					if p.Update(append(next, '!')) == nil {
						t.Error("a broken document is no error")
					}
					_, _ = p.Generation(), p.Rejected()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	updating.Wait()
	close(stop)
	deciding.Wait()
	if g := p.Generation(); g.Number < 50 || p.Rejected() != 64 {
		t.Errorf("generation %d, %d rejected", g.Number, p.Rejected())
	}
}

func TestPickAsksTheProgram(t *testing.T) {
	p := newPlans(t, `{"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(1, 1m)"]}}, "pro": {"limits": {"*": ["SlidingWindow(2, 1m)"]}}}}`)
	pick := plans.Pick(p, keyfuncs.Header("X-User-ID"), keyfuncs.Route, func(r *http.Request) (plans.Customer, error) {
		if r.Header.Get("X-Plan") == "broken" {
			return plans.Customer{}, errors.New("no answer")
		}
		return plans.Customer{Plan: r.Header.Get("X-Plan")}, nil
	})
	for plan, want := range map[string]string{"": "[SlidingWindow(1, 1m)]", "pro": "[SlidingWindow(2, 1m)]", "broken": "no answer"} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Pattern = "POST /"
		r.Header.Set("X-User-ID", "alice")
		r.Header.Set("X-Plan", plan)
		l, err := pick(r)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(l.Limits())
		}
		if got != want {
			t.Errorf("%q: %s, want %s", plan, got, want)
		}
	}
	if _, err := pick(httptest.NewRequest("POST", "/", nil)); !errors.Is(err, keyfuncs.ErrNoKey) {
		t.Errorf("without a user: %v", err)
	}
	for _, nothing := range []func(){
		func() { plans.Pick(nil, keyfuncs.RemoteIP, keyfuncs.Route, nil) },
		func() { plans.Pick(p, nil, keyfuncs.Route, nil) },
		func() { plans.Pick(p, keyfuncs.RemoteIP, nil, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("nil does not panic")
				}
			}()
			nothing()
		}()
	}
}
