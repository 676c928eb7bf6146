package later_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core/internal/later"
)

var errDown = errors.New("down")

// The pauses grow as long as nothing is found, up to a minute. A server that fails is asked at least once a second, until
// the lease has ended.
func TestPauses(t *testing.T) {
	ms := func(n ...int) (all []time.Duration) {
		for _, n := range n {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	for name, c := range map[string]struct {
		lease time.Duration
		now   bool
		try   func(n int) (bool, error)
		want  []time.Duration // since the start
	}{
		"found at once":      {time.Minute, true, func(int) (bool, error) { return true, nil }, ms(0)},
		"found later":        {time.Minute, false, func(n int) (bool, error) { return n == 3, nil }, ms(125, 375, 875)},
		"not found":          {8 * time.Second, true, func(int) (bool, error) { return false, nil }, ms(0, 125, 375, 875, 1875, 3875, 7875)},
		"a short lease":      {80 * time.Millisecond, true, func(int) (bool, error) { return false, nil }, ms(0, 10, 30, 70)},
		"a failure":          {5 * time.Second, false, func(int) (bool, error) { return false, errDown }, ms(125, 375, 875, 1875, 2875, 3875, 4875)},
		"a panic":            {time.Second, false, func(int) (bool, error) { panic("theirs") }, ms(125, 375, 875)},
		"failure, not found": {8 * time.Second, true, func(n int) (bool, error) { return false, []error{errDown, nil}[n%2] }, ms(0, 125, 375, 875, 1875, 2875, 4875, 6875)},
		"a long lease": {365 * 24 * time.Hour, true, func(int) (bool, error) { return false, nil },
			ms(0, 125, 375, 875, 1875, 3875, 7875, 15875, 31875, 63875)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, got := time.Now(), []time.Duration(nil)
				try := later.Try(func() (bool, error) {
					got = append(got, time.Since(start))
					return c.try(len(got))
				})
				if c.now {
					try.Now(c.lease)
				} else {
					try.Again(c.lease)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(got) != len(c.want) {
					t.Fatalf("tried at %v, want %v", got, c.want)
				}
				for i := range got {
					if got[i] != c.want[i] {
						t.Fatalf("tried at %v, want %v", got, c.want)
					}
				}
				if n := later.Waiting(); n != 0 {
					t.Errorf("%d wait", n)
				}
			})
		})
	}
}

// The process waits for at most 10,000 tries, in no goroutine. What is beyond is dropped.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried atomic.Int64
		fill := func() {
			for range later.Most + 50 {
				later.Try(func() (bool, error) { tried.Add(1); return true, nil }).Again(time.Minute)
			}
		}
		fill()
		if n := later.Waiting(); n != later.Most {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Second)
		fill()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := tried.Load(); n != 2*later.Most || later.Waiting() != 0 {
			t.Errorf("%d were tried, and %d wait", n, later.Waiting())
		}
	})
}
