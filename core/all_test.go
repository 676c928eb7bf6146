package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// apart is a store that cannot decide about two users together. It notes whom it is asked to charge.
type apart struct {
	store *memorystore.Store
	late  time.Duration // it takes to decide

	mu    sync.Mutex
	asked []string
	fail  string // the user for whom it fails
	panic bool
	first func() // is called before the next charge
	then  func() // is called after each charge
}

func (s *apart) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if c.More != nil {
		panic("asked about several subjects")
	}
	time.Sleep(s.late)
	if c.Mode == machine.ModePeek {
		return s.store.Take(ctx, c)
	}
	s.mu.Lock()
	s.asked = append(s.asked, c.User)
	first := s.first
	s.first = nil
	s.mu.Unlock()
	if first != nil {
		first()
	}
	if c.User == s.fail {
		if s.panic {
			panic("mine")
		}
		return core.Decision{}, nil, errDown
	}
	if s.then != nil {
		defer s.then()
	}
	return s.store.Take(ctx, c)
}

func (s *apart) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return s.store.Reset(ctx, user, action, limits)
}

func (s *apart) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	return s.store.Amend(ctx, r, a)
}

// only hides what a store can do besides deciding.
type only struct{ core.Store }

func left(t *testing.T, l *core.Limiter, user string) int {
	t.Helper()
	d, err := l.Peek(t.Context(), user, "post")
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestAllNeedsProperSubjects(t *testing.T) {
	store := memorystore.New(nil)
	fixed := core.FixedWindow(5, time.Minute)
	user, daily := core.Must(core.New(store, fixed)), core.Must(core.New(store, core.FixedWindow(9, 24*time.Hour)))
	both := core.Must(core.New(store, fixed.PerUser(), fixed.Named("x")))
	banning := func(l *core.Limiter) *core.Limiter { return core.Must(l.With(core.BanPolicy{})) }
	elsewhere := core.Must(core.New(memorystore.New(nil), fixed))
	for _, c := range []struct {
		name     string
		subjects []core.Subject
		want     error
		says     string
	}{
		{"no subject", nil, core.ErrConfig, "no subjects"},
		{"a zero subject", []core.Subject{{}}, core.ErrConfig, "zero Limiter"},
		{"no user", []core.Subject{user.For("alice", "post"), user.For("", "post")}, core.ErrNoUser, ""},
		{"no action", []core.Subject{user.For("alice", "")}, core.ErrNoAction, ""},
		{"a negative cost", []core.Subject{user.For("alice", "post"), user.For("bob", "post").Cost(-1)}, core.ErrCost, ""},
		{"one subject twice", []core.Subject{user.For("alice", "post"), user.For("alice", "post")}, core.ErrConfig, "0 and 1 would share one state"},
		{"a limit of all actions twice", []core.Subject{both.For("alice", "post"), user.For("bob", "post"), both.For("alice", "like")}, core.ErrConfig, "0 and 2"},
		{"a ban twice", []core.Subject{banning(user).For("alice", "post"), banning(daily).For("alice", "post")}, core.ErrConfig, "BanPolicy"},
		{"two stores", []core.Subject{user.For("alice", "post"), elsewhere.For("org", "post")}, core.ErrConfig, "different stores"},
		{"two actions", []core.Subject{user.For("alice", "post"), user.For("alice", "like")}, nil, ""},
		{"two limits", []core.Subject{user.For("alice", "post"), daily.For("alice", "post")}, nil, ""},
		{"a limit of all actions and one of each", []core.Subject{user.For("alice", "post"), both.For("alice", "post")}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := core.All(t.Context(), c.subjects...)
			if !errors.Is(err, c.want) || err != nil && (d != core.Decision{} || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%+v, %v", d, err)
			}
			if _, again := core.PeekAll(t.Context(), c.subjects...); !errors.Is(again, c.want) {
				t.Errorf("PeekAll: %v", again)
			}
			if err == nil {
				return
			}
			if _, again := core.WaitAll(t.Context(), 0, c.subjects...); !errors.Is(again, c.want) {
				t.Errorf("WaitAll: %v", again)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := core.All(ctx, user.For("carol", "post")); err != context.Canceled || left(t, user, "carol") != 5 {
		t.Errorf("a canceled context: %v", err)
	}
}

// A store that cannot decide together is asked in turn, and what it has charged is given back.
func TestAllInTurn(t *testing.T) {
	s := &apart{store: memorystore.New(nil)}
	user, org := core.Must(core.New(s, core.MovingWindow(3, time.Hour))), core.Must(core.New(s, core.MovingWindow(2, time.Hour)))
	all := func(d core.Decision, err error, asked ...string) {
		t.Helper()
		got, gotErr := core.All(t.Context(), user.For("alice", "post"), org.For("org-turns", "post"))
		got.ResetAfter, got.RetryAfter = 0, 0
		if got != d || gotErr != err || !slices.Equal(s.asked, asked) {
			t.Fatalf("%+v, %v, asked %v; want %+v, %v, %v", got, gotErr, s.asked, d, err, asked)
		}
		s.asked = nil
	}
	passes := core.Decision{Allowed: true, Limit: 2, Subject: 1, Source: core.SourceStore}
	refused := core.Decision{Limit: 2, Subject: 1, Source: core.SourceStore, Reason: core.ReasonLimited}
	passes.Remaining = 1
	all(passes, nil, "org-turns", "alice") // the one with the least room comes first
	passes.Remaining = 0
	all(passes, nil, "org-turns", "alice")
	all(refused, nil, "org-turns") // nobody else is charged
	all(refused, nil, "org-turns")
	if n := left(t, user, "alice"); n != 1 {
		t.Errorf("%d remain to alice, not 1", n)
	}
	s.asked = nil
	if d, err := core.PeekAll(t.Context(), user.For("alice", "post"), org.For("org-turns", "post")); err != nil || d.Allowed || d.Subject != 1 {
		t.Errorf("PeekAll: %+v, %v", d, err)
	}
	_ = org.Reset(t.Context(), "org-turns", "post")
	s.asked, s.fail = nil, "org-turns"
	all(core.Decision{}, errDown, "alice", "org-turns")
	if n := left(t, user, "alice"); n != 1 {
		t.Errorf("after an error %d remain to alice, not 1", n)
	}
	s.panic = true
	func() {
		defer func() { _ = recover() }()
		_, _ = core.All(t.Context(), org.For("org-turns", "post"), user.For("alice", "post"))
	}()
	if n := left(t, user, "alice"); n != 1 {
		t.Errorf("after a panic %d remain to alice, not 1", n)
	}

	// For a caller who has left nobody else is asked.
	ctx, cancel := context.WithCancel(t.Context())
	s.asked, s.fail, s.then = nil, "", cancel
	if d, err := core.All(ctx, org.For("org-turns", "post"), user.For("alice", "post")); err != context.Canceled || d.Allowed || len(s.asked) != 1 {
		t.Errorf("%+v, %v, asked %v", d, err, s.asked)
	}
	if s.then = nil; left(t, org, "org-turns") != 2 || left(t, user, "alice") != 1 {
		t.Error("a caller who has left is charged")
	}

	// The receipts are kept for Refund only if a limiter is Refundable.
	s.fail = ""
	for _, refundable := range []bool{false, true} {
		l := user
		if refundable {
			l = core.Must(user.With(core.Refundable{}))
		}
		d, err := core.All(t.Context(), l.For("bob", "post"), org.For("org-turns", "post"))
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if err := org.Refund(t.Context(), d); (err == nil) != refundable {
			t.Errorf("refundable %t: %v", refundable, err)
		}
	}
	if u, o := left(t, user, "bob"), left(t, org, "org-turns"); u != 2 || o != 1 {
		t.Errorf("%d and %d remain, not 2 and 1", u, o)
	}
}

// The decorators see all subjects.
func TestAllThroughDecorators(t *testing.T) {
	limits := func(s core.Store) (user, org *core.Limiter) {
		return core.Must(core.New(s, core.FixedWindow(4, time.Hour))), core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
	}
	t.Run("Divide", func(t *testing.T) {
		user, org := limits(core.Divide(memorystore.New(nil), 2))
		for i := range 2 {
			d, err := core.All(t.Context(), user.For("alice", "post"), org.For("org", "post"))
			if err != nil || d.Allowed != (i == 0) || d.Subject != 1 || d.Limit != 1 {
				t.Errorf("%+v, %v", d, err)
			}
		}
		d, err := core.All(t.Context(), user.For("alice", "post"), org.For("other", "post").Cost(2))
		if err != nil || d.RetryAfter != core.Never || d.Subject != 1 || left(t, user, "alice") != 1 {
			t.Errorf("above a share: %+v, %v", d, err)
		}
	})
	t.Run("Observe", func(t *testing.T) {
		var seen []string
		store := core.Observe(memorystore.New(nil), func(_ context.Context, o core.Observation) {
			line := fmt.Sprint(o.User, " ", o.Action, o.Limits, o.Cost, o.Decision.Allowed)
			for _, s := range o.Subjects {
				line += fmt.Sprint(" | ", s.User, " ", s.Action, s.Limits, s.Cost)
			}
			seen = append(seen, line)
		})
		user, org := limits(store)
		_, _ = core.All(t.Context(), user.For("alice", "post"), org.For("org", "any").Cost(2))
		_, _ = user.Allow(t.Context(), "alice", "post")
		want := []string{"org any[FixedWindow(2, 1h)] 2 true | alice post[FixedWindow(4, 1h)] 1 | org any[FixedWindow(2, 1h)] 2", "alice post[FixedWindow(4, 1h)] 1 true"}
		if !slices.Equal(seen, want) {
			t.Errorf("%q, want %q", seen, want)
		}
	})
	t.Run("FailOpen and Shadow", func(t *testing.T) {
		logs(t)
		for _, decorate := range []func(core.Store) core.Store{core.FailOpen, core.Shadow} {
			user, org := limits(decorate(joining{&flaky{Store: memorystore.New(nil), err: errDown}}))
			if d, err := core.All(t.Context(), user.For("alice", "post"), org.For("org", "post")); err != nil || d != (core.Decision{Allowed: true, Limit: 4, Remaining: 4}) {
				t.Errorf("%+v, %v", d, err)
			}
			want := core.Decision{Limit: 2, Remaining: 2, RetryAfter: core.Never, Reason: core.ReasonLimited, Subject: 1}
			if d, err := core.All(t.Context(), user.For("alice", "post"), org.For("org", "post").Cost(3)); err != nil || !d.Allowed && d != want {
				t.Errorf("%+v, %v", d, err)
			}
		}
	})
	t.Run("Shadow", func(t *testing.T) {
		for _, s := range []core.Store{memorystore.New(nil), &apart{store: memorystore.New(nil)}} {
			real, _ := limits(s)
			user, org := limits(core.Shadow(s))
			for i := range 4 {
				d, err := core.All(t.Context(), user.For("alice", "post"), org.For("org", "post"))
				if err != nil || !d.Allowed || d.Subject != 1 || (d.Reason == core.ReasonShadowed) != (i > 1) {
					t.Errorf("%+v, %v", d, err)
				}
			}
			if n := left(t, real, "alice"); n != 2 {
				t.Errorf("%T: %d remain, not 2", s, n)
			}
		}
	})
	t.Run("Fallback", func(t *testing.T) {
		logs(t)
		first := &flaky{Store: memorystore.New(nil)}
		user, org := limits(core.Fallback(joining{first}, memorystore.New(nil)))
		for i := range 4 {
			if i == 2 {
				first.err = errDown
			}
			d, err := core.All(t.Context(), user.For("alice", "post"), org.For("org", "post"))
			if err != nil || !d.Allowed || d.Subject != 1 || (d.Source == core.SourceFallback) != (i > 1) {
				t.Errorf("%+v, %v", d, err)
			}
		}
	})
}

func TestOneSubjectDoesNotAllocate(t *testing.T) {
	l := core.Must(core.New(memorystore.New(nil), core.Funnel(1_000_000_000, core.Every(time.Second))))
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = core.All(ctx, l.For("alice", "post")) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

func ExampleAll() {
	ctx := context.Background()
	store := memorystore.New(nil)
	perUser := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	perOrg := core.Must(core.New(store, core.SlidingWindow(3, time.Minute)))
	for _, user := range []string{"alice", "bob", "alice", "bob"} {
		d, err := core.All(ctx, perUser.For(user, "post"), perOrg.For("7", "org-post"))
		if err != nil {
			fmt.Println(err)
			return
		}
		if !d.Allowed {
			fmt.Println(user, "is refused by", []string{"their own limit", "the organization's"}[d.Subject])
			continue
		}
		fmt.Println(user, "posts;", d.Remaining, "remain")
	}
	d, _ := perUser.Peek(ctx, "bob", "post")
	fmt.Println("to bob remain", d.Remaining)
	// Output:
	// alice posts; 2 remain
	// bob posts; 1 remain
	// alice posts; 0 remain
	// bob is refused by the organization's
	// to bob remain 4
}

// A tie goes to the first subject, also if another one costs nothing and is asked first.
func TestATieWithASubjectThatCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memorystore.New(nil)
		a, b := core.Must(core.New(store, core.FixedWindow(1, time.Hour))), core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
		if d, err := b.Allow(t.Context(), "org", "post"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		d, err := core.All(t.Context(), a.For("alice", "post"), b.For("org", "post").Cost(0))
		if err != nil || !d.Allowed || d.Subject != 0 {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err = core.All(t.Context(), b.For("org", "post").Cost(0), a.For("bob", "post")); err != nil || !d.Allowed || d.Subject != 0 {
			t.Errorf("the other way round: %+v, %v", d, err)
		}
	})
}

func TestAStoreThatFailsBesideASubjectThatCostsNothing(t *testing.T) {
	l := core.Must(core.New(&apart{store: memorystore.New(nil), fail: "org"}, core.FixedWindow(1, time.Hour)))
	if d, err := core.All(t.Context(), l.For("alice", "post").Cost(0), l.For("org", "post")); err == nil || d != (core.Decision{}) {
		t.Errorf("%+v, %v; want an error", d, err)
	}
}
