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

// A store that can do neither returns an error and charges nothing.
func TestAllNeedsAStoreThatCan(t *testing.T) {
	for name, store := range map[string]core.Store{
		"a store":                      only{memorystore.New(nil)},
		"a fallback that can do less":  core.Fallback(&apart{store: memorystore.New(nil)}, only{memorystore.New(nil)}),
		"a decorator of one's own":     core.FailOpen(only{memorystore.New(nil)}),
		"a fallback that joins no one": core.Fallback(memorystore.New(nil), only{memorystore.New(nil)}),
	} {
		t.Run(name, func(t *testing.T) {
			l := core.Must(core.New(store, core.FixedWindow(5, time.Minute)))
			d, err := core.All(t.Context(), l.For("alice", "post"), l.For("org", "post"))
			if !errors.Is(err, core.ErrConfig) || d.Allowed || left(t, l, "alice") != 5 {
				t.Errorf("%+v, %v", d, err)
			}
			if d, err = core.All(t.Context(), l.For("alice", "post")); err != nil || !d.Allowed {
				t.Errorf("one subject: %+v, %v", d, err)
			}
			if d, err = core.PeekAll(t.Context(), l.For("alice", "post"), l.For("org", "post")); err != nil || d.Remaining != 4 {
				t.Errorf("PeekAll: %+v, %v", d, err)
			}
		})
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

// What is charged of slots is released: by All for a refusal, and by Release of any of the limiters.
func TestAllOfSlots(t *testing.T) {
	for name, store := range map[string]core.Store{"together": memorystore.New(nil), "in turn": &apart{store: memorystore.New(nil)}} {
		t.Run(name, func(t *testing.T) {
			user, org := core.Must(core.New(store, core.InFlight(2))), core.Must(core.New(store, core.InFlight(3)))
			var decisions []core.Decision
			for i, c := range []struct {
				user    string
				passes  bool
				subject int
			}{{"alice", true, 0}, {"alice", true, 0}, {"alice", false, 0}, {"bob", true, 1}, {"bob", false, 1}} {
				d, err := core.All(t.Context(), user.For(c.user, "post"), org.For("org", "post"))
				if err != nil || d.Allowed != c.passes || d.Subject != c.subject || !d.Allowed && d.Reason != core.ReasonInFlight {
					t.Fatalf("%d: %+v, %v", i, d, err)
				}
				if d.Allowed {
					decisions = append(decisions, d)
				}
			}
			if a, b, o := left(t, user, "alice"), left(t, user, "bob"), left(t, org, "org"); a != 0 || b != 1 || o != 0 {
				t.Errorf("%d, %d and %d remain, not 0, 1 and 0", a, b, o)
			}
			for range 2 {
				if err := org.Renew(t.Context(), decisions[0]); err != nil {
					t.Error(err)
				}
			}
			for _, d := range append(decisions, decisions...) {
				if err := user.Release(t.Context(), d); err != nil {
					t.Error(err)
				}
			}
			if err := org.Renew(t.Context(), decisions[0]); err != core.ErrLeaseEnded {
				t.Errorf("Renew after Release: %v", err)
			}
			if a, b, o := left(t, user, "alice"), left(t, user, "bob"), left(t, org, "org"); a != 2 || b != 2 || o != 3 {
				t.Errorf("%d, %d and %d remain, not 2, 2 and 3", a, b, o)
			}
		})
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
			line := fmt.Sprint(o.Action, o.Limits, o.Cost, o.Decision.Allowed)
			for _, s := range o.Subjects {
				line += fmt.Sprint(" | ", s.Action, s.Limits, s.Cost)
			}
			seen = append(seen, line)
		})
		user, org := limits(store)
		_, _ = core.All(t.Context(), user.For("alice", "post"), org.For("org", "any").Cost(2))
		_, _ = user.Allow(t.Context(), "alice", "post")
		want := []string{"any[FixedWindow(2, 1h)] 2 true | post[FixedWindow(4, 1h)] 1 | any[FixedWindow(2, 1h)] 2", "post[FixedWindow(4, 1h)] 1 true"}
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

// Limiters share a store if it is the same one, and not if it only wraps the same one.
func TestSharesStore(t *testing.T) {
	store := memorystore.New(nil)
	limiter := func(s core.Store) *core.Limiter { return core.Must(core.New(s, core.FixedWindow(1, time.Hour))) }
	one, slice := limiter(store), limiter(several{store})
	for name, tt := range map[string]struct {
		a, b *core.Limiter
		want bool
	}{
		"one store":                      {one, limiter(store), true},
		"one limiter":                    {one, one, true},
		"derived":                        {one, core.Must(one.With(core.Refundable{})), true},
		"two stores":                     {one, limiter(memorystore.New(nil)), false},
		"decorated":                      {one, limiter(core.FailOpen(store)), false},
		"stores that cannot be compared": {slice, limiter(several{store}), false},
		"one that cannot be compared":    {slice, slice, true},
		"nil":                            {one, nil, false},
		"of nil":                         {nil, one, false},
	} {
		if got := tt.a.SharesStore(tt.b); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// several is a store whose values cannot be compared.
type several []core.Store

func (s several) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return s[0].Take(ctx, c)
}

func (s several) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return s[0].Reset(ctx, user, action, limits)
}

// Stores are seen through decorators, the first one of a Fallback before the second.
func TestStores(t *testing.T) {
	first, second := memorystore.New(nil), memorystore.New(nil)
	divided := core.Divide(second, 2)
	inner := core.Fallback(first, divided)
	outer := core.Shadow(inner)
	want := []core.Store{outer, inner, first, divided, second}
	if got := slices.Collect(core.Stores(outer)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for most := range want {
		seen := 0
		for range core.Stores(outer) {
			if seen++; seen > most {
				break
			}
		}
		if seen != most+1 {
			t.Errorf("%d stores after a break at %d", seen, most+1)
		}
	}
	if got := slices.Collect(core.Stores(nil)); got != nil {
		t.Errorf("nil has %v", got)
	}
}

// joining is a flaky store that decides together.
type joining struct{ *flaky }

func (joining) Joins(string, string) bool { return true }

// togetherAndInTurn are stores that decide about several subjects at once, and one after the other.
var togetherAndInTurn = map[string]func() core.Store{
	"together": func() core.Store { return memorystore.New(nil) },
	"in turn":  func() core.Store { return &apart{store: memorystore.New(nil)} },
}

func TestWaitAll(t *testing.T) {
	for name, store := range togetherAndInTurn {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store()
				user := core.Must(core.New(s, core.MovingWindow(1, time.Second)))
				org := core.Must(core.Must(core.New(s, core.ElasticWindow(1, 3*time.Second))).With(
					core.BanPolicy{Refusals: 2, Within: time.Hour, Bans: []time.Duration{time.Hour}}))
				subjects := []core.Subject{user.For("alice", "post"), org.For("org", "post")}
				start := time.Now()
				for i := range 3 {
					d, err := core.WaitAll(t.Context(), time.Minute, subjects...)
					if took, want := time.Since(start), time.Duration(i)*3*time.Second; err != nil || !d.Allowed || took < want || took > want+want/8 {
						t.Fatalf("after %s: %+v, %v; want it after %s", took, d, err, want)
					}
				}
				at := time.Now()
				d, err := core.WaitAll(t.Context(), time.Second, subjects...)
				if err != core.ErrRefused || d.Allowed || d.Subject != 1 || name == "together" && !time.Now().Equal(at) {
					t.Errorf("a turn that is too late: %+v, %v after %s", d, err, time.Since(at))
				}
				if s, err := org.Status(t.Context(), "org", "post"); err != nil || s.Ban.Refusals != 1 {
					t.Errorf("%+v, %v; want one refusal", s.Ban, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if d, err := core.WaitAll(ctx, time.Minute, subjects...); err != context.Canceled || d.Allowed {
					t.Errorf("canceled: %+v, %v", d, err)
				}
			})
		})
	}
}

// A slot of one subject is released with any of the decision's limiters. Who waits for it gets it at
// once, and those with the same subjects in the order of arrival.
func TestWaitAllGetsAReleasedSlot(t *testing.T) {
	for name, store := range togetherAndInTurn {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store()
				user := core.Must(core.New(s, core.InFlight(9).Lease(time.Hour)))
				org := core.Must(core.New(s, core.InFlight(1).Lease(time.Hour), core.FixedWindow(9, time.Hour)))
				taken, err := core.All(t.Context(), user.For("alice", "post"), org.For("org", "post"))
				if err != nil || !taken.Allowed {
					t.Fatal(taken, err)
				}
				begun := time.Now()
				var order []int
				var wg sync.WaitGroup
				for i := range 3 {
					wg.Go(func() {
						d, err := core.WaitAll(t.Context(), time.Minute, user.For("bob", "post"), org.For("org", "post"))
						if took, want := time.Since(begun), time.Duration(600+10*i)*time.Millisecond; err != nil || !d.Allowed || took != want {
							t.Errorf("%d after %s: %+v, %v; want it after %s", i, took, d, err, want)
						}
						order = append(order, i)
						time.Sleep(10 * time.Millisecond)
						if err := user.Release(t.Context(), d); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				time.Sleep(600 * time.Millisecond)
				if err := user.Release(t.Context(), taken); err != nil {
					t.Error(err)
				}
				wg.Wait()
				if !slices.Equal(order, []int{0, 1, 2}) {
					t.Errorf("they passed as %v", order)
				}
			})
		})
	}
}

// A caller that waits for one subject is not behind those who wait for that one and another.
func TestWaitAllDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memorystore.New(nil)
		user, org := core.Must(core.New(store, core.FixedWindow(9, time.Hour))), core.Must(core.New(store, core.FixedWindow(1, time.Minute)))
		if d, err := org.Allow(t.Context(), "org", "post"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = core.WaitAll(t.Context(), time.Hour, user.For("alice", "post"), org.For("org", "post"))
		})
		synctest.Wait()
		begun := time.Now()
		for _, subjects := range [][]core.Subject{{user.For("alice", "post")}, {user.For("alice", "post"), org.For("other", "post")}} {
			if d, err := core.WaitAll(t.Context(), time.Hour, subjects...); err != nil || !d.Allowed || time.Since(begun) != 0 {
				t.Errorf("after %s: %+v, %v", time.Since(begun), d, err)
			}
		}
		wg.Wait()
	})
}

// A foreign store's decision may be about any subject.
func TestAllOfAForeignStore(t *testing.T) {
	l := core.Must(core.New(foreign{}, core.FixedWindow(5, time.Minute)))
	for _, cost := range []int{0, 1} {
		if d, err := core.All(t.Context(), l.For("alice", "post"), l.For("org", "post").Cost(cost)); err != nil || d.Subject < 0 || d.Subject > 1 {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

type foreign struct{}

func (foreign) Joins(string, string) bool { return true }
func (foreign) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{Allowed: c.Mode == machine.ModeCharge, Limit: 5, Subject: 7}, nil, nil
}
func (foreign) Reset(context.Context, string, string, []core.Limit) error { return nil }

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

// A caller whose deadline comes before the turn is refused, and has the refusal, as by WaitAll.
func TestWaitAllEndsWithTheDeadline(t *testing.T) {
	for name, limit := range map[string]core.Limit{"a slot": core.InFlight(1), "a window": core.FixedWindow(1, time.Minute)} {
		for _, n := range []int{1, 2} {
			t.Run(fmt.Sprint(name, ", subjects: ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memorystore.New(nil)
					user, org := core.Must(core.New(s, limit)), core.Must(core.New(s, core.FixedWindow(9, time.Hour)))
					subjects := []core.Subject{user.For("alice", "post"), org.For("org", "post")}[:n]
					if d, err := core.All(t.Context(), subjects...); err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
					defer cancel()
					d, err := core.WaitAll(ctx, time.Hour, subjects...)
					if err != core.ErrRefused || d.Allowed || d.Reason == "" || d.RetryAfter <= 0 || d.RetryAfter > time.Minute {
						t.Errorf("%+v, %v", d, err)
					}
				})
			})
		}
	}
}

// A store that has Amend and yet issues no receipt, as redisstore with CLThrottle, passes nothing.
func TestAllOfAStoreWithoutReceipts(t *testing.T) {
	l := core.Must(core.New(receiptless{&apart{store: memorystore.New(nil)}}, core.FixedWindow(5, time.Minute)))
	if d, err := core.All(t.Context(), l.For("alice", "post"), l.For("org", "post")); !errors.Is(err, core.ErrConfig) || d != (core.Decision{}) {
		t.Errorf("%+v, %v", d, err)
	}
}

type receiptless struct{ *apart }

func (s receiptless) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	t := *c.Terms
	t.Receipt = false
	c.Terms = &t
	return s.apart.Take(ctx, c)
}

// A slot that All gives back, since another subject refuses, goes at once to a caller that waits for it.
func TestAWaiterGetsASlotThatAllGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hesitant{memorystore.New(nil), "alice"}
		org, user := core.Must(core.New(s, core.InFlight(1))), core.Must(core.New(s, core.FixedWindow(1, time.Hour)))
		begun := time.Now()
		go func() { _, _ = core.All(t.Context(), org.For("org", "post"), user.For("alice", "post")) }()
		time.Sleep(150 * time.Millisecond) // both have been looked at, and the organization is charged
		other := core.Must(core.New(s.Store, core.FixedWindow(1, time.Hour)))
		_, _ = other.Allow(t.Context(), "alice", "post")
		if d, err := org.Wait(t.Context(), "org", "post"); err != nil || !d.Allowed || time.Since(begun) != 200*time.Millisecond {
			t.Errorf("after %s: %+v, %v", time.Since(begun), d, err)
		}
	})
}

// hesitant needs some time for a user, and decides about nobody together.
type hesitant struct {
	*memorystore.Store
	user string
}

func (hesitant) Joins(string, string) bool { return false }

func (s hesitant) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if c.User == s.user {
		time.Sleep(100 * time.Millisecond)
	}
	return s.Store.Take(ctx, c)
}

// WaitAll sits out a ban of any subject, also one that comes while it waits. If it gives up, that is one
// refusal of the subject that refuses, and of no other.
func TestWaitAllWithBans(t *testing.T) {
	policy := core.BanPolicy{Refusals: 3, Within: time.Hour, Bans: []time.Duration{time.Hour}}
	for name, store := range map[string]func() core.Store{
		"together": func() core.Store { return memorystore.New(nil) },
		"in turn":  func() core.Store { return hesitant{memorystore.New(nil), "nobody"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store()
				user := core.Must(core.Must(core.New(s, core.FixedWindow(2, 10*time.Second))).With(policy))
				org := core.Must(core.Must(core.New(s, core.FixedWindow(9, time.Hour))).With(policy))
				wait := func(most time.Duration) (core.Decision, time.Duration, error) {
					begun := time.Now()
					d, err := core.WaitAll(t.Context(), most, user.For("alice", "post"), org.For("org", "post"))
					return d, time.Since(begun), err
				}
				refusals := func(l *core.Limiter, who string) core.BanStatus {
					s, err := l.Status(t.Context(), who, "post")
					if err != nil {
						t.Fatal(err)
					}
					return s.Ban
				}
				if err := org.Ban(t.Context(), "org", "post", 3*time.Second); err != nil {
					t.Fatal(err)
				}
				if d, took, err := wait(time.Minute); err != nil || !d.Allowed || took != 3*time.Second {
					t.Errorf("while the organization is banned: %+v, %s, %v", d, took, err)
				}
				if d, took, err := wait(time.Minute); err != nil || !d.Allowed || took != 0 {
					t.Errorf("after that: %+v, %s, %v", d, took, err)
				}
				time.AfterFunc(5*time.Second, func() { _ = user.Ban(t.Context(), "alice", "post", 20*time.Second) })
				if d, took, err := wait(time.Minute); err != nil || !d.Allowed || took != 25*time.Second {
					t.Errorf("banned while it waits: %+v, %s, %v", d, took, err)
				}
				if u, o := refusals(user, "alice"), refusals(org, "org"); u.Refusals != 0 || o.Refusals != 0 {
					t.Errorf("waiting counted as refusals: %+v, %+v", u, o)
				}
				_, _, _ = wait(0)
				for i := range 2 {
					if d, took, err := wait(time.Second); !errors.Is(err, core.ErrRefused) || d.Subject != 0 || took != 0 {
						t.Errorf("%d: %+v, %s, %v", i, d, took, err)
					}
				}
				if u, o := refusals(user, "alice"), refusals(org, "org"); u.Refusals != 2 || o.Refusals != 0 {
					t.Errorf("after two refusals: %+v, %+v", u, o)
				}
				if d, _, err := wait(time.Second); !errors.Is(err, core.ErrRefused) || d.Reason != core.ReasonLimited && d.Reason != core.ReasonBanned {
					t.Errorf("%+v, %v", d, err)
				}
				if u := refusals(user, "alice"); !u.Banned || u.Level != 1 {
					t.Errorf("after three refusals: %+v", u)
				}
				if d, took, err := wait(2 * time.Hour); err != nil || !d.Allowed || took != time.Hour {
					t.Errorf("after the ban: %+v, %s, %v", d, took, err)
				}
			})
		})
	}
}

// A subject that costs nothing has no part in a refusal, also of a caller whose time ends while others are
// before it.
func TestWaitAllWithASubjectThatCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memorystore.New(nil)
		user, org := core.Must(core.New(s, core.FixedWindow(1, time.Hour))), core.Must(core.New(s, core.InFlight(1)))
		_, _ = user.Allow(t.Context(), "alice", "post")
		_, _ = org.Allow(t.Context(), "org", "post")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				d, err := core.WaitAll(ctx, time.Minute, user.For("alice", "post").Cost(0), org.For("org", "post"))
				if !errors.Is(err, core.ErrRefused) || d.Subject != 1 || d.Reason != core.ReasonInFlight || d.RetryAfter != 50*time.Second {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		all.Wait()
	})
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

// A MovingWindow writes each unit, so one call writes a bounded number.
func TestACostOfAMovingWindowIsBounded(t *testing.T) {
	const most = 1_000_000
	store := &counting{Store: memorystore.New(nil)}
	moving := core.Must(core.Must(core.New(store, core.MovingWindow(5*most, time.Hour))).With(core.Refundable{}))
	for _, tt := range []struct {
		name    string
		limiter *core.Limiter
		cost    int
		err     error
		allowed bool
	}{
		{"as many as one call writes", moving, most, nil, true},
		{"one more", moving, most + 1, core.ErrCost, false},
		{"the whole quota", moving, 5 * most, core.ErrCost, false},
		{"above the quota it is refused, as with any limit", moving, 5*most + 1, nil, false},
		{"beside another limit", core.Must(core.New(store, core.FixedWindow(9*most, time.Hour), core.MovingWindow(5*most, time.Hour).Shadow())), most + 1, core.ErrCost, false},
		{"another limit writes a count", core.Must(core.New(store, core.FixedWindow(9*most, time.Hour))), 9 * most, nil, true},
	} {
		store.most = 0
		d, err := tt.limiter.AllowN(t.Context(), tt.name, "upload", tt.cost)
		if !errors.Is(err, tt.err) || d.Allowed != tt.allowed {
			t.Errorf("%s: %+v, %v", tt.name, d, err)
		}
		if _, err = core.All(t.Context(), tt.limiter.For(tt.name+", all", "upload").Cost(tt.cost)); !errors.Is(err, tt.err) {
			t.Errorf("%s, by All: %v", tt.name, err)
		}
	}
	store.most = 0
	d, err := moving.Surcharge(t.Context(), "bob", "upload", 2*most+most/2)
	if err != nil || d.Remaining != 2*most+most/2 || store.most != most {
		t.Errorf("a surcharge: %+v, %v, at most %d at once", d, err, store.most)
	}
	d, err = moving.Allow(t.Context(), "carol", "upload")
	if err != nil {
		t.Fatal(err)
	}
	if err = moving.Settle(t.Context(), d, 3*most); err != nil {
		t.Error(err)
	}
	if d, err = moving.Peek(t.Context(), "carol", "upload"); err != nil || d.Remaining != 2*most || store.most != most {
		t.Errorf("after Settle: %+v, %v, at most %d at once", d, err, store.most)
	}
}

// counting remembers the highest cost that is not above a quota.
type counting struct {
	core.Store
	most int64
}

func (s *counting) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if c.Mode != machine.ModePeek {
		s.most = max(s.most, c.Cost)
	}
	return s.Store.Take(ctx, c)
}

func (s *counting) Unwrap() core.Store { return s.Store }
