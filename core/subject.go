package core

// Subject: a user and an action of a limiter.

import (
	"reflect"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// A Subject is a user and an action of a limiter, for [All]. [Limiter.For] makes it.
type Subject struct {
	limiter      *Limiter
	user, action string
	cost         int
}

// For returns the subject of user and action, for [All]. The action costs one unit.
func (l *Limiter) For(user, action string) Subject { return Subject{l, user, action, 1} }

// Cost returns the subject for an action that costs n units: see [Limiter.AllowN].
func (s Subject) Cost(n int) Subject {
	s.cost = n
	return s
}

// SharesStore reports whether both limiters have one store, so that [All] can decide about subjects of both.
func (l *Limiter) SharesStore(other *Limiter) bool {
	if l == nil || other == nil {
		return false
	}
	return l == other || reflect.ValueOf(l.store).Comparable() && l.store == other.store
}

// SharesState reports whether two subjects have the same user and share the state of a limit or of
// a [BanPolicy]. [All] does not decide about two such subjects together.
func (s Subject) SharesState(o Subject) bool {
	if s.user != o.user || s.limiter == nil || o.limiter == nil {
		return false
	}
	for i := range s.limiter.limits {
		l := &s.limiter.limits[i]
		for j := range o.limiter.limits {
			other := &o.limiter.limits[j]
			if l.sharesState(other) && (l.rule.PerUser || s.action == o.action) {
				return true
			}
		}
	}
	return false
}

// Within returns the subject for an action that is a part of another action: d is the decision of l
// that has admitted the other action. An example is a request that passes the same middleware
// twice. The subject takes no slot of [InFlight] that d has taken for the same user and action. So
// the action is not refused because of its own slots, and does not wait for them. If it costs more
// than d has taken, it takes the difference. All other limits charge it. Release d after the action
// has ended.
func (s Subject) Within(l *Limiter, d Decision) Subject {
	if !s.limiter.SharesStore(l) {
		return s
	}
	for r := d.receipt; r != nil; r = r.next {
		for i := range r.Limits {
			if r.User == s.user && r.Limits[i].rule.TakesSlots() && r.charged(i) {
				s.exempt(&r.Limits[i], r.Action, r.Taken(i).Cost)
			}
		}
	}
	return s
}

// exempt makes a subject's limiter one that does not take the slots again that the action has. This
// limiter has separate queues for Wait: in the original's queues a caller that waits for these very
// slots may come first.
func (s *Subject) exempt(taken *Limit, action string, slots int64) {
	i := slices.IndexFunc(s.limiter.limits, func(l Limit) bool { return l.sharesState(taken) })
	if i < 0 || slots == 0 || !taken.rule.PerUser && action != s.action {
		return
	}
	l := *s.limiter
	l.limits, l.waitQueues = slices.Clone(l.limits), newWaitQueues()
	l.limits[i].rule.Held += slots
	l.makeTerms()
	s.limiter = &l
}

// never reports whether the cost can never pass.
func (s *Subject) never() bool { return int64(s.cost) > s.limiter.smallest }

// jointCharge is the charge of all subjects.
func jointCharge(subjects []Subject, ask machine.Ask) Charge {
	s := &subjects[0]
	c := Charge{s.user, s.action, int64(s.cost), s.limiter.terms[ask.Mode]}
	if ask.Ahead == 0 && len(subjects) == 1 {
		return c
	}
	t := *c.Terms
	t.Ask, t.Receipt = ask, ask.Ahead > 0 // a reserved turn may be given back
	for i := range subjects {
		t.Receipt = t.Receipt || subjects[i].limiter.refundable && ask.Mode.NeedsRoom()
	}
	if len(subjects) > 1 {
		t.More = make([]Part, len(subjects)-1)
	}
	for i := range t.More {
		s := &subjects[i+1]
		t.More[i] = Part{s.user, s.action, int64(s.cost), s.limiter.limits}
	}
	c.Terms = &t
	return c
}
