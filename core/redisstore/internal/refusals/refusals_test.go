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
			full := []machine.Reading{{Rest: machine.Span{Whole: 120_000_000}, Wait: 60_000_000}}
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

// asker takes charges of one user against a funnel of all actions, and reads from where the answer
// came.
type asker struct {
	*testing.T
	*Cache
	limits []core.Limit
}

func (a *asker) take(action string, full bool, meanwhile func()) core.Source {
	c := &core.Charge{User: "u", Action: action, Limits: a.limits, Ask: machine.Ask{Cost: 1}}
	d, err := a.Take(c, func() (core.Decision, []machine.Reading, error) {
		meanwhile()
		readings := []machine.Reading{{Fits: !full}}
		if full {
			readings[0].Rest.Whole, readings[0].Wait = 120_000_000, 60_000_000
		}
		return c.Answer(readings, 0), readings, nil
	})
	if err != nil || d.Allowed == full {
		a.Errorf("%s: %+v, %v", action, d, err)
	}
	return d.Source
}

func newAsker(t *testing.T) *asker {
	return &asker{t, New(func() time.Duration { return 0 }), []core.Limit{core.Funnel(2, core.Every(time.Minute)).PerUser()}}
}

func nothing() {}

// A change by one action can end the refusals of the user's other actions.
func TestAChangeDropsTheRefusalsOfAllActions(t *testing.T) {
	a := newAsker(t)
	for _, want := range []core.Source{core.SourceStore, core.SourceCache} {
		if got := a.take("a", true, nothing); got != want {
			t.Fatalf("from %v, want %v", got, want)
		}
	}
	if err := a.Change(&core.Charge{User: "u", Action: "b"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := a.take("a", true, nothing); got != core.SourceStore {
		t.Errorf("after the change: from %v", got)
	}
}

// Of two answers on their way, Redis may have made the refusal before the admission, and the refusal
// may arrive after it. It is then out of date.
func TestARefusalThatAnAdmissionOvertookIsNotKept(t *testing.T) {
	a := newAsker(t)
	asked, admitted, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
	a.take("b", false, func() {
		go func() {
			defer close(refused)
			a.take("a", true, func() {
				close(asked)
				<-admitted
			})
		}()
		<-asked
	})
	close(admitted)
	<-refused
	if got := a.take("a", true, nothing); got != core.SourceStore {
		t.Errorf("from %v", got)
	}
}
