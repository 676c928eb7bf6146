package refusals

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A flood of refused users takes no more memory than there is.
func TestRefusalsAreBounded(t *testing.T) {
	n := New(server{}, func() time.Duration { return 0 }, false)
	limits := []core.Limit{core.Funnel(2, core.Every(time.Minute))}
	const most = rows * perRow
	for i := range 8 * most {
		c := core.Charge{User: fmt.Sprint("user ", i), Action: "a", Cost: 1, Terms: &core.Terms{Limits: limits}}
		for _, want := range []core.Source{core.SourceStore, core.SourceCache} {
			d, r, err := n.Take(t.Context(), c)
			if err != nil || r != nil || d.Allowed || d.Source != want { // the charge has not asked for a record
				t.Fatalf("%+v, %v, %v, want it from %v", d, r, err, want)
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

// A server has no room, unless a function in the context says otherwise.
type server struct{}

type fullKey struct{}

func (server) Decide(ctx context.Context, _ core.Charge) (readings []machine.Reading, now int64, err error) {
	if full, ok := ctx.Value(fullKey{}).(func() bool); ok && !full() {
		return []machine.Reading{{Fits: true}}, 0, nil
	}
	return []machine.Reading{{Rest: machine.Span{Whole: 120_000_000}, Wait: 60_000_000}}, 0, nil
}

func (server) Amend(context.Context, *core.Record, machine.Amendment) (bool, error) { return true, nil }

func (server) Reset(context.Context, string, string, []core.Limit) error { return nil }

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
	d, _, err := a.Take(context.WithValue(a.Context(), fullKey{}, func() bool {
		meanwhile()
		return full
	}), c)
	if err != nil || d.Allowed == full {
		a.Errorf("%s: %+v, %v", action, d, err)
	}
	return d.Source
}

func newAsker(t *testing.T) *asker {
	perUser := []core.Limit{core.Funnel(2, core.Every(time.Minute)).PerUser()}
	charge := core.Charge{User: "u", Cost: 1, Terms: &core.Terms{Limits: perUser}}
	return &asker{t, New(server{}, func() time.Duration { return 0 }, false), charge}
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
	a.change("u", "b")(new(error))
	if got := a.take("a", true, nothing); got != core.SourceStore {
		t.Errorf("after the change: from %v", got)
	}
}

// A charge by other limits may change the state, also if it is refused.
func TestAChargeByOtherLimitsDropsARefusal(t *testing.T) {
	a := newAsker(t)
	other := *a
	other.charge.Terms = &core.Terms{Limits: []core.Limit{core.Funnel(3, core.Every(time.Minute)).PerUser()}}
	a.take("a", true, nothing)
	other.take("a", true, nothing)
	if got := a.take("a", true, nothing); got != core.SourceStore {
		t.Errorf("from %v", got)
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
