package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// joining is a flaky store that decides together.
type joining struct{ *flaky }

func (joining) Joins(string, string) bool { return true }

// togetherAndInTurn are stores that decide about several subjects at once, and one after the other.
var togetherAndInTurn = map[string]func() core.Store{
	"together": func() core.Store { return memorystore.New(nil) },
	"in turn":  func() core.Store { return &apart{store: memorystore.New(nil)} },
}

// "With several subjects no turn is reserved."
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
