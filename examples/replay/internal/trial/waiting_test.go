package trial

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"pgregory.net/rapid"
)

// A run lets go of users who are gone for a day.
func TestARunSweeps(t *testing.T) {
	var log strings.Builder
	for _, at := range []string{"01T08:00:00", "01T08:00:01", "03T08:00:00"} {
		fmt.Fprintf(&log, `{"time":"2026-11-%sZ","method":"GET","path":"/","remote_addr":"10.0.0.1"}`+"\n", at)
	}
	p := newPipeline(Options{}, new(route.Routes), []string{route.All})
	if err := p.run(t.Context(), strings.NewReader(log.String())); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.shards {
		for i := range s.members[1:] {
			if !reflect.ValueOf(s.members[1+i].Member).FieldByName("recent").IsNil() {
				t.Error("it keeps what a user did two days ago")
			}
		}
	}
}

// Actions come out in order of time, those of one instant as they went in.
func TestWaitingIsReleasedInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type action struct {
			at int64
			n  uint32
		}
		var w waiting
		var in, out []action
		do := func(m uint32, at int64, cost uint32) {
			if m != cost {
				t.Fatalf("%d comes with the cost of %d", m, cost)
			}
			out = append(out, action{at, m})
		}
		newest := int64(1_700_000_000) * second
		for i := range uint32(rapid.IntRange(1, 300).Draw(t, "actions")) {
			newest += rapid.SampledFrom([]int64{0, 1, second, 600 * second, hour, 5000 * second, 100 * day}).Draw(t, "step")
			at := newest - rapid.SampledFrom([]int64{0, 0, 1, 999_999, second, 3599 * second, hour}).Draw(t, "back")
			w.release((newest-hour)/second, do)
			w.add(i, at, i)
			in = append(in, action{at, i})
		}
		w.release(w.oldest+ring, do)
		slices.SortStableFunc(in, func(a, b action) int { return cmp.Compare(a.at, b.at) })
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("%v, want %v", out, in)
		}
		if n := len(w.space); n > 1 {
			t.Fatalf("%d chunks for 300 actions", n)
		}
	})
}
