package core_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A member whose own limit is used up floods an organization's route, and another organization's too. What
// is charged to the organization for the member and given back fills its limit for an instant: its
// colleagues were refused then, and when that was recorded, by a ban of the organization.
func TestAFloodOfAMemberBansNoColleagues(t *testing.T) {
	for _, floods := range []int{1, 8} {
		t.Run(fmt.Sprint(floods, " at once"), func(t *testing.T) {
			s := &apart{store: memorystore.New(nil), late: 100 * time.Microsecond}
			perUser := core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
			perOrg := core.Must(core.Must(core.New(s, core.FixedWindow(31, time.Hour))).
				With(core.BanPolicy{Refusals: 1, Within: time.Hour, Bans: []time.Duration{time.Hour}}))
			all := func(member, org string) core.Decision {
				d, err := core.All(t.Context(), perOrg.For(org, "org-post"), perUser.For(member, "post"))
				if err != nil {
					t.Error(err)
				}
				return d
			}
			for range 31 { // the other organization is full
				all(fmt.Sprint("other-", time.Now().UnixNano()), "other")
			}
			var passed atomic.Int64
			var ended atomic.Bool
			var flood, colleagues sync.WaitGroup
			for range floods {
				flood.Go(func() {
					for !ended.Load() {
						if all("mallory", "org").Allowed {
							passed.Add(1)
						}
						all(fmt.Sprint("other-", time.Now().UnixNano()), "other")
					}
				})
			}
			refused := atomic.Int64{}
			for i := range 29 {
				colleagues.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if d := all(fmt.Sprint("colleague-", i), "org"); !d.Allowed {
						refused.Add(1)
						t.Errorf("a colleague is refused: %s", d.Reason)
					}
				})
			}
			colleagues.Wait()
			ended.Store(true)
			flood.Wait()
			if passed.Load() != 2 || refused.Load() > 0 {
				t.Errorf("%d of the member's pass, want 2, and %d colleagues of 29 are refused", passed.Load(), refused.Load())
			}
		})
	}
}

// The subject that refuses is asked alone: the others are not charged, whatever refused before.
func TestARefusedDecisionChargesNobodyElse(t *testing.T) {
	s := &apart{store: memorystore.New(nil)}
	l := core.Must(core.New(s, core.FixedWindow(2, time.Hour)))
	for range 2 {
		_, _ = l.Allow(t.Context(), "mallory", "post")
	}
	for _, subjects := range [][]core.Subject{
		{l.For("org", "post"), l.For("mallory", "post"), l.For("team", "post")},
		{l.For("mallory", "post"), l.For("org", "post")},
	} {
		for range 3 {
			s.asked = nil
			if d, err := core.All(t.Context(), subjects...); err != nil || d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
			if !slices.Equal(s.asked, []string{"mallory"}) {
				t.Errorf("%v are charged", s.asked)
			}
		}
	}
}

// Decisions that race for the last units record no refusal: what refuses may be a charge that is given back.
// Whichever subject is charged first, the other one gets its charge back.
func TestARaceRecordsNoRefusal(t *testing.T) {
	for _, quota := range []int{1, 9} { // of the organization: it is charged first, or last
		t.Run(fmt.Sprint(quota, " for the organization"), func(t *testing.T) {
			s := &apart{store: memorystore.New(nil)}
			bans := core.BanPolicy{Refusals: 1, Within: time.Hour, Bans: []time.Duration{time.Hour}}
			window := core.FixedWindow(2, time.Hour)
			user := core.Must(core.Must(core.New(s, window)).With(bans))
			org := core.Must(core.Must(core.New(s, core.FixedWindow(quota, time.Hour))).With(bans))
			other := core.Must(core.New(s.store, window)) // another process's
			s.first = func() { _, _ = other.AllowN(t.Context(), "alice", "post", 2) }
			banned := func(l *core.Limiter, who string) bool {
				st, err := l.Status(t.Context(), who, "post")
				if err != nil {
					t.Fatal(err)
				}
				return st.Ban.Banned
			}
			all := func(want core.Reason) {
				t.Helper()
				d, err := core.All(t.Context(), user.For("alice", "post"), org.For("org", "post"))
				if err != nil || d.Allowed || d.Reason != want || d.Subject != 0 {
					t.Fatalf("%+v, %v", d, err)
				}
				if n := left(t, org, "org"); n != quota || banned(org, "org") {
					t.Errorf("%d remain to the organization, not %d, or it is banned", n, quota)
				}
			}
			if all(core.ReasonLimited); banned(user, "alice") {
				t.Error("a refusal in a race is recorded")
			}
			if all(core.ReasonBanned); !banned(user, "alice") { // no race
				t.Error("a refusal is not recorded")
			}
		})
	}
}

// A panic of the store while it is asked in turn reaches the caller.
func TestAPanicOfALookReachesTheCaller(t *testing.T) {
	l := core.Must(core.New(&panicking{apart{store: memorystore.New(nil)}}, core.FixedWindow(2, time.Hour)))
	defer func() {
		if v := recover(); v != "mine" {
			t.Errorf("it panics with %v", v)
		}
	}()
	_, _ = core.All(t.Context(), l.For("alice", "post"), l.For("org", "post"))
	t.Error("it returns")
}

type panicking struct{ apart }

func (*panicking) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	panic("mine")
}
