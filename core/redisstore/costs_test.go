//go:build !race

package redisstore_test

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// costs decides n times, each time at another cost if they vary.
func costs(tb testing.TB, l *core.Limiter, n int, vary bool) {
	for i := range n {
		cost := 500
		if vary {
			cost += i % 397
		}
		if d, err := l.AllowN(tb.Context(), user, action, cost); err != nil || !d.Allowed {
			tb.Fatal(d, err)
		}
	}
}

func tokens(tb testing.TB) *core.Limiter {
	return core.Must(core.New(reliable(tb, redistest.Start(tb).Addr), core.TokenBucket(1_000_000_000, core.Per(1_000_000_000, time.Hour))))
}

// The costs of a language model differ each time. They take at most a tenth more allocations than equal ones.
func TestVaryingCostsAllocateLittleMore(t *testing.T) {
	l := tokens(t)
	costs(t, l, 100, true)
	constant := testing.AllocsPerRun(20, func() { costs(t, l, 100, false) })
	varying := testing.AllocsPerRun(20, func() { costs(t, l, 100, true) })
	if varying > 1.1*constant {
		t.Errorf("%.1f allocations a decision, and %.1f if the cost varies", constant/100, varying/100)
	}
	t.Logf("%.1f allocations a decision, and %.1f if the cost varies", constant/100, varying/100)
}

func BenchmarkCosts(b *testing.B) {
	for name, vary := range map[string]bool{"constant": false, "varying": true} {
		b.Run(name, func(b *testing.B) {
			l := tokens(b)
			b.ReportAllocs()
			b.ResetTimer()
			costs(b, l, b.N, vary)
		})
	}
}
