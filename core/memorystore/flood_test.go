package memorystore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// Many times as many keys as fit: the store stays within its bound, no decision waits
// long, and the users who were refused before the flood are refused after it.
func TestFlood(t *testing.T) {
	const maxKeys, keys = 20_000, 200_000
	for _, tt := range []struct {
		limit core.Limit
		bytes int64 // a key, at most
	}{
		{core.Funnel(2, core.Per(2, time.Hour)), 100},
		{core.SlidingWindow(2, time.Hour), 160},
	} {
		t.Run(tt.limit.Kind(), func(t *testing.T) {
			s, worst, grown := flood(t, tt.limit, maxKeys, keys)
			if got := s.used.Load(); got > maxKeys || got < maxKeys*9/10 {
				t.Errorf("%d keys are kept of %d", got, maxKeys)
			}
			if grown > maxKeys*tt.bytes {
				t.Errorf("%d bytes are kept for %d keys", grown, maxKeys)
			}
			if worst > 2*time.Second {
				t.Errorf("one decision took %s", worst)
			}
			s.check(t)
		})
	}
}

// flood has a thousand users use up their limit and then so many others act once.
func flood(t testing.TB, limit core.Limit, maxKeys, keys int) (s *Store, worst time.Duration, grown int64) {
	before := int64(heap())
	s = New(&Options{MaxKeys: maxKeys})
	l := core.Must(core.New(s, limit))
	take := func(name string, i, n int) core.Decision {
		key := fmt.Sprint(name, i)
		start := time.Now()
		d, err := l.AllowN(ctx, key, "a", n)
		if worst = max(worst, time.Since(start)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for i := range 1000 {
		take("victim", i, 2)
	}
	for i := range keys {
		if d := take("flood", i, 1); !d.Allowed {
			t.Fatalf("new key %d: %+v", i, d)
		}
	}
	for i := range 1000 {
		if d := take("victim", i, 1); d.Allowed {
			t.Fatalf("the flood forgave the refused user %d", i)
		}
	}
	grown = int64(heap()) - before
	runtime.KeepAlive(s)
	return s, worst, grown
}

// BenchmarkFlood is a flood of 1,000,000 keys into a store of 100,000.
func BenchmarkFlood(b *testing.B) {
	for _, limit := range []core.Limit{core.Funnel(2, core.Per(2, time.Hour)), core.SlidingWindow(2, time.Hour)} {
		b.Run("limit="+limit.Kind(), func(b *testing.B) {
			for b.Loop() {
				const keys = 1_000_000
				start := time.Now()
				_, worst, grown := flood(b, limit, 100_000, keys)
				b.ReportMetric(float64(time.Since(start))/keys, "ns/key")
				b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
				b.ReportMetric(float64(grown)/1e6, "MB")
			}
		})
	}
}

// A user has some actions under way, and others fill the store with new keys, again and again. The user
// never has more at once than the limit says.
func TestAFloodForgetsNoActionUnderWay(t *testing.T) {
	const maxKeys, quota = 40, 3
	for _, flooder := range []core.Limit{core.Funnel(1000, core.Every(24*time.Hour)), core.InFlight(2).Lease(time.Hour)} {
		t.Run(flooder.String(), func(t *testing.T) {
			c, s := storeOf(maxKeys)
			l := core.Must(core.New(s, core.InFlight(quota)))
			others := core.Must(core.New(s, flooder))
			var taken []core.Decision
			for flood := range 10 {
				if d := allow(t, l, "u"); d.Allowed {
					taken = append(taken, d)
				}
				c.advance(2 * time.Second)
				for i := range 10 * maxKeys {
					allow(t, others, fmt.Sprint("new", flood, "-", i))
				}
				for _, d := range taken { // they go on
					if err := l.Renew(ctx, d); err != nil {
						t.Errorf("after flood %d: %v", flood, err)
					}
				}
			}
			if len(taken) != quota {
				t.Errorf("%d actions are under way at once, want %d", len(taken), quota)
			}
			s.check(t)
			for _, d := range taken[1:] {
				if err := l.Release(ctx, d); err != nil {
					t.Error(err)
				}
			}
			c.advance(61 * time.Second) // the lease of the first one ends
			for i := range 10 * maxKeys {
				allow(t, others, fmt.Sprint("last", i))
			}
			if d := allow(t, l, "u"); flooder.Kind() == "funnel" && !d.Allowed {
				t.Errorf("%+v", d)
			}
			s.check(t)
		})
	}
}
