package notice_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core/notice"
)

// Of events at the same instant one is due. After a minute one is due again, unless it is logged once.
func TestDue(t *testing.T) {
	for name, c := range map[string]struct {
		event interface{ Due() bool }
		want  [3]int32 // at once, after just under a minute, after a minute
	}{
		"once":                  {new(notice.Once), [3]int32{1, 0, 0}},
		"at most once a minute": {new(notice.Rarely), [3]int32{1, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i, pause := range []time.Duration{0, time.Minute - 1, 1} {
					time.Sleep(pause)
					var due atomic.Int32
					var wait sync.WaitGroup
					for range 10 {
						wait.Go(func() {
							if c.event.Due() {
								due.Add(1)
							}
						})
					}
					if wait.Wait(); due.Load() != c.want[i] {
						t.Errorf("%d: %d are due, want %d", i, due.Load(), c.want[i])
					}
				}
			})
		})
	}
}

// What was never seen is due at miss number many, once. After Seen nothing is due.
func TestNever(t *testing.T) {
	for name, c := range map[string]struct{ seenAfter, due int }{
		"never seen": {10, 1}, "seen late": {2, 0}, "seen first": {0, 0}, "seen afterwards": {3, 1},
	} {
		var n notice.Never
		due := 0
		for i := range 10 {
			if i == c.seenAfter {
				n.Seen()
			}
			if n.Due(3) {
				due++
			}
		}
		if due != c.due {
			t.Errorf("%s: due %d times, want %d", name, due, c.due)
		}
	}
}
