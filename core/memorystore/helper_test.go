package memorystore

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tailcut/tailcut/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// clock is a clock in the test's hands, in microseconds.
type clock struct{ us int64 }

// clockEpoch is when instant 0 of the clock was, in 1992.
const clockEpoch = 7e14

func (c *clock) now() int64              { return c.us }
func (c *clock) epoch() int64            { return clockEpoch }
func (c *clock) time() time.Time         { return time.UnixMicro(c.us + clockEpoch) }
func (c *clock) advance(d time.Duration) { c.us += int64(d / time.Microsecond) }

// storeOf makes a store of so many keys, and its clock.
func storeOf(maxKeys int) (*clock, *Store) {
	c := &clock{}
	return c, newStore(&Options{MaxKeys: maxKeys}, c.now, c.epoch)
}

func allow(t *testing.T, l *core.Limiter, user string) core.Decision {
	t.Helper()
	d, err := l.Allow(ctx, user, "a")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// check looks for what must hold of the store whatever happened before.
func (s *Store) check(t testing.TB) {
	t.Helper()
	total := int64(0)
	for i := range s.shards {
		sh := &s.shards[i]
		total += sh.keys.check(t, fmt.Sprint("the keys of shard ", i))
		if sh.keys.shared != nil {
			sh.keys.shared.check(t, fmt.Sprint("the shared states of shard ", i))
		}
	}
	if total != s.used.Load() || total > s.max {
		t.Fatalf("the store counts %d keys, has %d and may have %d", s.used.Load(), total, s.max)
	}
}

func (tab *table) check(t testing.TB, name string) (used int64) {
	t.Helper()
	kept := 0
	for at := range tab.slots {
		sl := &tab.slots[at]
		if sl.key == 0 {
			if *sl != (slot{}) {
				t.Fatalf("%s: slot %d has no key and is not empty", name, at)
			}
			continue
		}
		used++
		if found, ok := tab.search(sl.key); !ok || found != at {
			t.Fatalf("%s: slot %d is not found, but %d, %v", name, at, found, ok)
		}
		if sl.hasData {
			kept++
		}
	}
	if used != tab.used.Load() || used*100 > int64(len(tab.slots))*maxLoad {
		t.Fatalf("%s: %d keys are counted, and %d are in %d slots", name, tab.used.Load(), used, len(tab.slots))
	}
	p := tab.pool
	if p == nil {
		p = new(pool)
	}
	if have := len(p.all) - len(p.free); have != kept {
		t.Fatalf("%s: the pool holds %d for %d keys", name, have, kept)
	}
	for _, i := range p.free {
		if p.all[i] != nil {
			t.Fatalf("%s: a dropped value is still there: %+v", name, p.all[i])
		}
	}
	return used
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
