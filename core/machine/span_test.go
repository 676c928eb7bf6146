package machine

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The units between two spans are those of exact arithmetic, at each multiple of a unit and next to it.
func TestUnitsAreExact(t *testing.T) {
	const century = 100 * 365 * 24 * 3600 * second
	random := rand.New(rand.NewPCG(1, 2))
	below := func(most int64) int64 { // of any magnitude
		return min(most, int64(math.Exp(random.Float64()*math.Log(float64(most)+1))))
	}
	product := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
	parts := func(r *Rule, s Span) *big.Int {
		n := product(s.Whole, r.Parts)
		return n.Add(n, big.NewInt(s.Part))
	}
	for range 200_000 {
		n, period := below(1e9), below(century)
		if random.IntN(4) == 0 {
			period = 1 + random.Int64N(3)
		}
		r := NewMeter(KindFunnel, 1e9, n, period)
		b := Span{below(century), random.Int64N(r.Parts)}
		a := b.add(spanOf(r.pace, below(1e9)-1, r.Parts), r.Parts)
		for range 2 {
			a = a.sub(Span{Part: min(1, r.Parts-1)}, r.Parts)
		}
		for range 4 {
			a = a.add(Span{Part: min(1, r.Parts-1)}, r.Parts)
			left := parts(&r, a)
			left.Sub(left, parts(&r, b))
			want := left.Div(left, big.NewInt(r.pace)).Int64()
			if got := r.units(a, b); got != max(0, want) {
				t.Fatalf("%d per %d us, %v to %v: %d units, want %d", n, period, b, a, got, want)
			}
		}
	}
}
