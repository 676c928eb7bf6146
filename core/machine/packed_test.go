package machine

import (
	"testing"

	"pgregory.net/rapid"
)

// A trail that is packed after each charge decides as one that never is, whether it grows
// longer than fits or empties.
func TestPackedTrailsDecideAsTrailsDo(t *testing.T) {
	kinds := []Kind{KindSlidingWindow, KindSlidingRefused, KindMovingWindow}
	rapid.Check(t, func(t *rapid.T) {
		r := NewWindow(rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.Int64Range(1, 300).Draw(t, "max"), 10*second)
		var plain, packed State
		var words [TrailWords]int64
		var kept *Blocks
		now, n := 1000*second, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(-second, 5*second).Draw(t, "move")
			a := Ask{Cost: rapid.Int64Range(1, r.Max).Draw(t, "cost")}
			if decide(&r, &plain, now, a) != decide(&r, &packed, now, a) {
				t.Fatal("they decide apart")
			}
			var was, is Reading
			r.Read(&was, &plain, now, &a)
			r.Read(&is, &packed, now, &a)
			if was != is {
				t.Fatalf("%+v, and packed %+v", was, is)
			}
			newest := r.Expires(&packed) - r.Period
			n, kept = packed.Trail.Pack(&words)
			packed.Trail = Trail{}
			if kept != nil {
				packed.Trail.UnpackBlocks(&words, kept)
			} else {
				packed.Trail.Unpack(&words, n, newest)
			}
			for i := range plain.Trail.Len() {
				if plain.Trail.At(i) != packed.Trail.At(i) {
					t.Fatalf("entry %d is %d, and packed %d", i, plain.Trail.At(i), packed.Trail.At(i))
				}
			}
		}
	})
}
