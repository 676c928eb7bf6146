package memorystore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

var benchLimits = map[string][]core.Limit{
	"sliding": {core.SlidingWindow(100, time.Minute)},
	"refused": {core.SlidingWindow(100, time.Minute).CountRefused()},
	"moving":  {core.MovingWindow(100, time.Minute)},
	"fixed":   {core.FixedWindow(1000, time.Minute)},
	"elastic": {core.ElasticWindow(1000, time.Minute)},
	"bucket":  {core.TokenBucket(1000, core.Per(1000, time.Minute))},
	"initial": {core.TokenBucket(1000, core.Per(1000, time.Minute)).Initial(500)},
	"funnel":  {core.Funnel(1000, core.Per(1000, time.Minute))},
	"plenty":  {core.Funnel(1_000_000_000, core.Per(1_000_000_000, 24*time.Hour))},
	"two":     {core.MovingWindow(100, time.Minute), core.FixedWindow(10_000, 24*time.Hour)},
	"three":   {core.Funnel(1000, core.Per(1000, time.Minute)), core.FixedWindow(1000, time.Hour), core.FixedWindow(10_000, 24*time.Hour)},
	"four":    {core.Funnel(1000, core.Per(1000, time.Minute)), core.FixedWindow(1000, time.Hour), core.FixedWindow(10_000, 24*time.Hour), core.FixedWindow(100_000, 365*24*time.Hour)},
}

// BenchmarkAllow is one decision, of each limit and over so many keys.
func BenchmarkAllow(b *testing.B) {
	for _, limit := range []string{"sliding", "refused", "moving", "fixed", "elastic", "bucket", "initial", "funnel", "plenty", "two", "three"} {
		for _, keys := range []int{1, 10_000, 1_000_000} {
			if keys == 1_000_000 && limit != "funnel" {
				continue
			}
			b.Run(fmt.Sprintf("limit=%s/keys=%d", limit, keys), func(b *testing.B) {
				l := core.Must(core.New(New(nil), benchLimits[limit]...))
				users := make([]string, keys)
				for i := range users {
					users[i] = fmt.Sprintf("user%013d", i)
					_, _ = l.Allow(ctx, users[i], "like")
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.Uint64(); pb.Next(); {
						i = i*6364136223846793005 + 1442695040888963407
						if _, err := l.Allow(ctx, users[(i>>33)%uint64(keys)], "like"); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkMemory is what a key keeps alive, after each has been used once, and for
// windows until they were full.
func BenchmarkMemory(b *testing.B) {
	const keys = 100_000
	for _, tt := range []struct {
		name  string
		limit core.Limit
		cost  int
	}{
		{"fixed", core.FixedWindow(1000, time.Hour), 1},
		{"funnel", core.Funnel(1000, core.Per(1000, time.Hour)), 1},
		{"initial", core.TokenBucket(1000, core.Per(1000, time.Hour)).Initial(500), 1},
		{"sliding5", core.SlidingWindow(5, time.Hour), 5},
		{"sliding100", core.SlidingWindow(100, time.Hour), 100},
		{"flight5", core.InFlight(5), 5},
		{"flight100", core.InFlight(100), 100},
		{"moving1000", core.MovingWindow(1000, time.Hour), 1000},
	} {
		b.Run("limit="+tt.name, func(b *testing.B) {
			for b.Loop() {
				s := New(nil)
				l := core.Must(core.New(s, tt.limit))
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				n := keys
				if tt.cost > 100 {
					n /= 10
				}
				for i := range n {
					if _, err := l.AllowN(ctx, fmt.Sprintf("user%013d", i), "a", tt.cost); err != nil {
						b.Fatal(err)
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/float64(n), "B/key")
				runtime.KeepAlive(s)
			}
		})
	}
}
