package core

// Subject: a user and an action of a limiter.

import (
	"reflect"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// A Subject is a user and an action of a limiter, for [All]. [Limiter.For] makes a Subject.
type Subject struct {
	limiter      *Limiter
	user, action string
	cost         int
}

// For returns the subject of user and action, for [All]. The action costs one unit. [Subject.Cost]
// sets another cost.
func (l *Limiter) For(user, action string) Subject { return Subject{l, user, action, 1} }

// Cost returns a copy of the subject whose action costs n units: see [Limiter.AllowN].
func (s Subject) Cost(n int) Subject {
	s.cost = n
	return s
}

// SharesStore reports whether l and the limiter other have the same store. If they have, [All] can
// decide about subjects of both limiters.
func (l *Limiter) SharesStore(other *Limiter) bool {
	if l == nil || other == nil {
		return false
	}
	return l == other || reflect.ValueOf(l.store).Comparable() && l.store == other.store
}

// SharesState reports whether two subjects have the same user and share the state of a limit or of
// a [BanPolicy]. [All] returns an error for two such subjects.
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

// Within returns the subject for an inner action: a part of another action, the outer one. For
// example, a request passes the same middleware twice. The argument d is the decision of l that has
// admitted the outer action.
//
// The inner action uses the slots of [InFlight] that d has taken for the same user and action, or
// for the same user if the limit has PerUser. So it is not refused because of these slots, and does
// not wait for them. If the inner action costs more than d has taken, it takes the difference. All
// other limits are charged as usual. Release d after the inner action has ended.
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

// exempt replaces the subject's limiter by a copy that does not take slots again that the action
// already has. The limits are copied too, so the copy has separate queues for Wait. In the
// original's queues the subject could wait behind a caller that waits for these slots.
func (s *Subject) exempt(taken *Limit, action string, slots int64) {
	i := slices.IndexFunc(s.limiter.limits, func(l Limit) bool { return l.sharesState(taken) })
	if i < 0 || slots == 0 || !taken.rule.PerUser && action != s.action {
		return
	}
	l := *s.limiter
	l.limits = slices.Clone(l.limits)
	l.limits[i].rule.Held += slots
	l.makeTerms()
	s.limiter = &l
}

// never reports whether the cost is above a quota, so that it can never pass.
func (s *Subject) never() bool { return int64(s.cost) > s.limiter.smallest }

// jointCharge returns the charge that asks about all subjects.
func jointCharge(subjects []Subject, ask machine.Ask) Charge {
	s := &subjects[0]
	c := Charge{s.user, s.action, int64(s.cost), s.limiter.terms[ask.Mode]}
	if ask.Ahead == 0 && len(subjects) == 1 {
		return c
	}
	t := *c.Terms
	t.Ask, t.Receipt = ask, ask.Ahead > 0 // a turn that Wait reserves may be given back
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
