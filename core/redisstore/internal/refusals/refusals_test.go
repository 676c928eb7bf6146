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
	n := New(func() time.Duration { return 0 }, false)
	limits := []core.Limit{core.Funnel(2, core.Every(time.Minute))}
	const most = rows * perRow
	for i := range 8 * most {
		c := core.Charge{User: fmt.Sprint("user ", i), Action: "a", Cost: 1, Terms: &core.Terms{Limits: limits}}
		full := []machine.Reading{{Rest: machine.Span{Whole: 120_000_000}, Wait: 60_000_000}}
		for _, want := range []core.Source{core.SourceStore, core.SourceCache} {
			d, _, err := n.Decide(&c, answer(&c, full))
			if err != nil || d.Allowed || d.Source != want {
				t.Fatalf("%+v, %v, want it from %v", d, err, want)
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

// answer is what Redis answers.
func answer(c *core.Charge, readings []machine.Reading) func() (core.Decision, *core.Record, []machine.Reading, error) {
	return func() (core.Decision, *core.Record, []machine.Reading, error) {
		d, r := c.Answer(readings, 0)
		return d, r, readings, nil
	}
}

// asker takes charges of one user against a funnel of all actions, and reads from where the answer
// came.
type asker struct {
	*testing.T
	*Cache
	charge core.Charge
}

func (a *asker) take(action string, full bool, meanwhile func()) core.Source {
	c := a.charge
	c.Action = action
	d, _, err := a.Decide(&c, func() (core.Decision, *core.Record, []machine.Reading, error) {
		meanwhile()
		readings := []machine.Reading{{Fits: !full}}
		if full {
			readings[0].Rest.Whole, readings[0].Wait = 120_000_000, 60_000_000
		}
		return answer(&c, readings)()
	})
	if err != nil || d.Allowed == full {
		a.Errorf("%s: %+v, %v", action, d, err)
	}
	return d.Source
}

func newAsker(t *testing.T) *asker {
	perUser := []core.Limit{core.Funnel(2, core.Every(time.Minute)).PerUser()}
	charge := core.Charge{User: "u", Cost: 1, Terms: &core.Terms{Limits: perUser}}
	return &asker{t, New(func() time.Duration { return 0 }, false), charge}
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
	a.Change("u", "b")(new(error))
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
