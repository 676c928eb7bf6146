package machine

// Refunds, releases and renewals: they change what a charge has taken.

// Taken is what an admitted charge has taken: Cost units at the instant At. If the action had some
// slots already, Cost is less than the charge's cost: see [Rule.Takes]. Reading is the reading just
// after the charge.
type Taken struct {
	At, Cost int64
	Reading  Reading
}

// An Amendment changes what an admitted charge has taken.
type Amendment struct {
	Verb  Verb
	Units int64 // for a refund, from 1 to the cost
}

// A Verb says what an [Amendment] does.
type Verb uint8

// The verbs. A release or renewal amends charges of InFlight. A refund amends charges of the other
// limits. No verb changes the state of a ban policy.
const (
	VerbRefund  Verb = iota // give units back
	VerbRelease             // free the slots, because the action has ended
	VerbRenew               // start the lease of the slots again
)

// TakesSlots reports whether the limit is InFlight. A charge of InFlight is released instead of
// refunded.
func (r *Rule) TakesSlots() bool { return r.Kind.Form() == FormSlots }

// Takes returns how many units a charge takes. InFlight does not take the Held slots of an action
// again.
func (r *Rule) Takes(cost int64) int64 { return max(0, cost-r.Held) }

// CanAmend reports whether the verb of an amendment is for the rule: a release or renewal for
// InFlight, and a refund for the other kinds.
func (r *Rule) CanAmend(a Amendment) bool { return r.TakesSlots() == (a.Verb != VerbRefund) }

// Amend changes the state of an entry: it refunds, releases or renews what the charge t has taken.
// It sets Dirty if the store must write the state, or delete it because it has expired. If nothing
// is left to amend, or if a refund could give back too much, it changes nothing. It also refunds
// nothing if now is before t.At. After a refund the state has no more room than if the action had
// never happened. A bucket with Initial that the action has started is an exception: it stays
// started.
//
// A refund of a meter changes the end of its debt: the instant at which the debt will have drained.
//
//   - Let e be the earliest of these ends: the end just after the charge, the remembered ends of
//     later refunds, and the present end.
//   - The refund gives back the time in which its units drain, but at most the time from now to e.
//     The end becomes earlier by that time. The new end is remembered as the refund's end.
//   - The remembered ends of all other refunds since the charge become earlier by the same time.
//
// If turns are reserved for waiting callers, only the last charge can be refunded.
//
// A meter forgets a refund in cases such as these:
//
//   - The clock stepped back, and the debt changed because of that.
//   - A later refund has the same end or an earlier one.
//   - A later refund has an end that is past.
//   - Everything that was charged before the last refund has drained.
//
// A meter remembers at most eight refunds. If there are nine, it merges two successive refunds into
// a new one: the two whose ends are nearest, in whole microseconds. If several pairs are equally
// near, it merges the first pair. The new refund has the earlier end and the later place in the
// sequence. So a refund may give back less, but never more.
func (r *Rule) Amend(e *Entry, t Taken, now int64, a Amendment) {
	e.Dirty = false
	if e.Expires > now && r.CanAmend(a) && (r.TakesSlots() || now >= t.At) {
		e.State, e.Dirty = r.machine.amend(r, now, t, a, e.State)
	}
}
