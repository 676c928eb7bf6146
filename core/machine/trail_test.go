package machine

import "testing"

// A queue of a large max that grows takes at most 13 bytes an entry, and less with more entries.
func TestALongTrailHasLittleSpareRoom(t *testing.T) {
	r, s := NewWindow(KindMovingWindow, 1_000_000, 1000*second), State{}
	for n := 1; n <= 20_000; n++ {
		decide(&r, &s, second+int64(n), 1, Ask{})
		bytes, q := 0, s.Data.(*queue)
		if q.blocks != nil {
			for _, block := range *q.blocks {
				bytes += 8 * cap(block)
			}
		}
		if most := 13 * n; n > 640 && bytes > most || n > oneBlock && bytes > 9*n {
			t.Fatalf("%d entries take %d bytes", n, bytes)
		}
	}
}
