package refusals

import (
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A flood of refused users takes no more memory than there is.
func TestRefusalsAreBounded(t *testing.T) {
	n := New(func() time.Duration { return 0 })
	limits := []core.Limit{core.Funnel(2, core.Every(time.Minute))}
	const most = rows * perRow
	for i := range 8 * most {
		c := &core.Charge{User: fmt.Sprint("user ", i), Action: "a", Limits: limits, Ask: machine.Ask{Cost: 1}}
		ask := func() (core.Decision, []machine.Reading, error) {
			full := []machine.Reading{{Rest: machine.Span{Whole: 120_000_000}}}
			return c.Answer(full, 0), full, nil
		}
		for _, want := range []core.Source{core.SourceStore, core.SourceCache} {
			if d, err := n.Take(c, ask); err != nil || d.Allowed || d.Source != want {
				t.Fatalf("%+v, %v; want the source %v", d, err, want)
			}
		}
	}
	kept := 0
	for i := range n.rows {
		for _, k := range n.rows[i].kept {
			if k != nil {
				kept++
			}
		}
	}
	if kept > most || kept < most*9/10 {
		t.Errorf("%d are kept of at most %d", kept, most)
	}
}
