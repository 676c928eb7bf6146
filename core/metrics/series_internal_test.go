package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// What has been counted before is counted again without the lock, whatever it is counted under.
func TestCountsWaitForNobody(t *testing.T) {
	limit := func(i int) *core.Limit {
		l := core.FixedWindow(1, time.Hour).Named(fmt.Sprint(i))
		return &l
	}
	for _, c := range []struct {
		name, action string
		limits       int // before it
	}{
		{"a long action", strings.Repeat("a", 300), 0},
		{"an action that is not UTF-8", "a\xff", 0},
		{"an action beyond the bound", "b", 2},
		{"a long action beyond the bound", strings.Repeat("b", 300), 2},
		{"a limit beyond the bound", "c", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(&Options{MaxPairs: 2})
			for i := range c.limits {
				m.find(fmt.Sprint(i), limit(i))
				m.gauge(fmt.Sprint(i))
			}
			s, g := m.find(c.action, limit(999)), m.gauge(c.action)
			m.mu.Lock()
			defer m.mu.Unlock()
			done := make(chan bool)
			go func() { done <- m.find(c.action, limit(999)) == s && m.gauge(c.action) == g }()
			select {
			case same := <-done:
				if !same {
					t.Error("it is counted elsewhere the second time")
				}
			case <-time.After(time.Minute):
				t.Error("it waits for the lock")
			}
		})
	}
}
