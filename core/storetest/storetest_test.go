package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"pgregory.net/rapid"
)

// mapStore is the smallest correct Store: it keeps everything for ever behind one
// mutex.
type mapStore struct {
	mu     sync.Mutex
	now    func() int64 // microseconds
	states map[stateID]machine.State
	greedy bool // gives nothing back
}

type stateID struct{ user, action, identity string }

func idOf(user, action string, l *core.Limit) stateID {
	if l.IsPerUser() {
		action = ""
	}
	return stateID{user, action, l.Identity()}
}

func newMapStore(now func() int64) *mapStore {
	return &mapStore{now: now, states: map[stateID]machine.State{}}
}

func (s *mapStore) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var entries []machine.Entry
	for _, p := range c.Parts() {
		for _, l := range p.Limits {
			entries = append(entries, machine.Entry{State: s.states[idOf(p.User, p.Action, &l)]})
		}
	}
	var d core.Decision
	r := c.Commit(&d, entries, now, c.Check(entries, now))
	for _, p := range c.Parts() {
		s.write(p.User, p.Action, p.Limits, entries)
		entries = entries[len(p.Limits):]
	}
	if r != nil && !s.greedy {
		r.By = s
	}
	return d, r, nil
}

func (s *mapStore) Joins(string, string) bool { return true }

func (s *mapStore) write(user, action string, limits []core.Limit, entries []machine.Entry) {
	for i, l := range limits {
		if entries[i].Dirty {
			s.states[idOf(user, action, &l)] = entries[i].State
		}
	}
}

// Dated: the instants count from 1970.
func (s *mapStore) Dated() {}

// Amend makes the store a core.Amender. One that is none has not this method, and leaves Record.By nil.
func (s *mapStore) Amend(_ context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]machine.Entry, len(r.Limits))
	for i, l := range r.Limits {
		entries[i].State = s.states[idOf(r.User, r.Action, &l)]
	}
	done = r.Amend(entries, s.now(), a)
	s.write(r.User, r.Action, r.Limits, entries)
	return done, nil
}

func (s *mapStore) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		delete(s.states, idOf(user, action, &l))
	}
	return nil
}

// mapFixture is a mapStore that sweeps, or not.
func mapFixture(sweeps bool) Fixture {
	now := time.Now().UnixMicro()
	s := newMapStore(func() int64 { return now })
	return Fixture{Store: s, Now: func() time.Time { return time.UnixMicro(now) }, Advance: func(d time.Duration) {
		now += int64(d / time.Microsecond)
		if !sweeps {
			return
		}
		for id, state := range s.states {
			if (state.Expires+999)/1000*1000 <= now {
				delete(s.states, id)
			}
		}
	}}
}

// A store may forget a state as soon as it need not be kept, and Redis does so at
// the next millisecond. Nothing in the suite may depend on it.
func TestSweptMapStore(t *testing.T) {
	Run(t, func(testing.TB) Fixture { return mapFixture(true) })
}

// A store whose clock runs by itself, and one that cannot give back and has no time of day, pass what remains of the suite.
func TestAStoreThatCanDoLessPassesTheRest(t *testing.T) {
	Run(t, func(testing.TB) Fixture {
		s := newMapStore(func() int64 { return time.Now().UnixMicro() })
		s.greedy = true
		return Fixture{Store: struct{ core.Store }{s}, Traces: 50} // without Amend and Dated
	})
}

// What the model says about the future comes true in the model.
func TestModelKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := int64(0)
		tr := &trace{t: rt, model: newModel(0), honest: true, f: Fixture{
			Store:   newMapStore(func() int64 { return now }),
			Advance: func(d time.Duration) { now += int64(d / time.Microsecond) },
			Now:     func() time.Time { return time.UnixMicro(now) },
		}}
		tr.play()
	})
}

// The suite tests only the kinds that everyKind has, and Trace those that the model has. ParseLimit reads
// those that it knows.
func TestEveryKindIsTested(t *testing.T) {
	model, listed := map[machine.Kind]bool{}, map[machine.Kind]bool{}
	for k := range kinds {
		r := rule{kind: k, max: 2, period: 1000, n: 1, d: 1000, initial: 1, unit: core.Day}
		l := r.limit()
		model[l.Rule().Kind] = true
	}
	for _, l := range everyKind(2, sec) {
		listed[l.Rule().Kind] = true
		if read, err := core.ParseLimit(l.String()); err != nil || read != l {
			t.Errorf("%s as text is %s, %v", l, read, err)
		}
	}
	for k := range machine.Kinds() {
		if k != machine.KindBan && (!model[k] || !listed[k]) { // a ban is a policy's
			t.Errorf("kind %d, %q: in the model %t, in everyKind %t", k, k, model[k], listed[k])
		}
	}
}
