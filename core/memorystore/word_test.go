package memorystore

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// together calls two functions at about the same moment, so often: the first a little later
// each time, over and over.
func together(times int, both func(i int) (func(), func())) {
	var begun, ended atomic.Int64
	var other func()
	go func() {
		for i := range int64(times) {
			for begun.Load() <= i {
				runtime.Gosched()
			}
			other()
			ended.Add(1)
		}
	}()
	for i := range times {
		var mine func()
		mine, other = both(i)
		begun.Add(1)
		for range i % 100 {
			begun.Load()
		}
		mine()
		for ended.Load() <= int64(i) {
			runtime.Gosched()
		}
	}
}

// A user comes back, after its key has expired, while another key takes the slot over: the
// action that passes is not forgotten.
func TestAKeyThatIsTakenOverForgetsNoAction(t *testing.T) {
	const users = 6 // as many as fit into the smallest table
	now := int64(1e9)
	s := newStore(&Options{MaxKeys: 100}, func() int64 { return now })
	l := core.Must(core.New(s, core.Funnel(2, core.Every(time.Minute))))
	passed := 0
	together(20_000, func(i int) (func(), func()) {
		if i > 0 {
			if d := allow(t, l, fmt.Sprint(i-1)); d.Remaining != 0 {
				t.Fatalf("round %d: the user's second action is decided as the first: %+v", i, d)
			}
			passed++
		}
		now += int64(time.Hour / time.Microsecond)
		for u := range users {
			allow(t, l, fmt.Sprint(i+u))
		}
		now += int64(time.Hour / time.Microsecond)
		back, stranger := fmt.Sprint(i), fmt.Sprint("new", i)
		return func() { allow(t, l, back) }, func() { allow(t, l, stranger) }
	})
	if passed == 0 {
		t.Error("nothing was tried")
	}
}

// A key moves, since others come and go, while its user acts: no action is forgotten, and no
// other user is charged for it.
func TestAKeyThatMovesForgetsNoAction(t *testing.T) {
	const quota, actions = 1_000_000, 50
	funnel := core.Funnel(quota, core.Every(time.Second))
	var s *Store
	var l *core.Limiter
	together(2000, func(i int) (func(), func()) {
		if i%50 == 0 {
			s = New(&Options{MaxKeys: 1000})
			l = core.Must(core.New(s, funnel))
		}
		first := fmt.Sprint(i)
		allow(t, l, first)
		return func() {
				for range actions {
					allow(t, l, first)
				}
				if d := allow(t, l, first); d.Remaining != quota-actions-2 {
					t.Errorf("round %d: %d actions are left of %d, after %d", i, d.Remaining, quota, actions+2)
				}
			}, func() {
				for j := range 8 {
					allow(t, l, fmt.Sprint("other", i, j))
				}
				for j := range 8 {
					other := fmt.Sprint("other", i, j)
					if d := allow(t, l, other); d.Remaining != quota-2 {
						t.Errorf("round %d: another user has %d actions left of %d, after 2", i, d.Remaining, quota)
					}
					if err := l.Reset(ctx, other, "a"); err != nil {
						t.Error(err)
					}
				}
			}
	})
	s.check(t)
}

// Users at their limit stay refused, though newcomers who are further from whole fill the
// store.
func TestAUserWhoseWordSaysFullIsNotEvicted(t *testing.T) {
	const users, quota = 20, 3
	s := New(&Options{MaxKeys: 2 * users})
	l := core.Must(core.New(s, core.Funnel(quota, core.Every(time.Hour))))
	flood := core.Must(core.New(s, core.Funnel(1000, core.Every(24*time.Hour))))
	for u := range users {
		for range quota {
			allow(t, l, fmt.Sprint(u))
		}
	}
	for i := range 100 * users {
		allow(t, flood, fmt.Sprint("new", i))
	}
	for u := range users {
		if d := allow(t, l, fmt.Sprint(u)); d.Allowed {
			t.Errorf("user %d is forgiven", u)
		}
	}
}
