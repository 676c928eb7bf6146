package machine

// What changes a charge afterwards: a refund, a release or a renewal.

// Taken is what an admitted charge has taken: Cost units at the instant At. Cost is the charge's
// cost, less slots that the action had already (see [Rule.Takes]). Reading is that of the state just after the charge.
type Taken struct {
	At, Cost int64
	Reading  Reading
}

// An Amendment changes what an admitted charge has taken.
type Amendment struct {
	Verb  Verb
	Units int64 // of a refund, 1 to the cost
}

// A Verb says what an [Amendment] does.
type Verb uint8

// The verbs. Rule.CanAmend says which kinds of limits a verb can amend.
const (
	VerbRefund  Verb = iota // give units back, as if the action had never happened
	VerbRelease             // free the slots, because the action has ended
	VerbRenew               // have the lease of the slots begin now
)

// TakesSlots reports whether the rule counts actions in progress. Charges of such a rule are
// released, and not refunded.
func (r *Rule) TakesSlots() bool { return r.Kind.Form() == FormSlots }

// Takes returns how many units an action of that cost takes. Slots that the action already has are
// not taken again.
func (r *Rule) Takes(cost int64) int64 { return max(0, cost-r.Held) }

// CanAmend reports whether an amendment can change states of the rule: a release or renewal those
// of InFlight, a refund all others.
func (r *Rule) CanAmend(a Amendment) bool { return r.TakesSlots() == (a.Verb != VerbRefund) }

// Amend amends t in the present state of an entry. If the state is to be written, or deleted
// because it has expired, Amend sets Dirty. If nothing is left to amend, it changes nothing. After
// a refund the state has no more room than if the action had never happened, except that a bucket
// with Initial stays started.
//
// The refund of a meter. The end of a debt is the instant at which it will have drained.
//   - e is the end just after the charge. If the end was earlier after any later refund, or is
//     earlier now, e is the earliest.
//   - The refund gives back the time that its units take at the rate, but at most the time from now
//     to e. So the end now becomes earlier by that time, and this is the refund's end.
//   - The ends of all other refunds since the charge become earlier by the same time.
//
// A refund is forgotten in these cases:
//   - it gave nothing back
//   - its end is not before that of a later refund
//   - the end of a later refund is past
//   - everything that was charged before the last refund has drained
//
// Eight refunds are remembered. If there are nine, two that follow each other become one: the two
// whose ends, in whole microseconds, are nearest, and among equal pairs the first. The new one has
// the earlier end and counts as the later refund. So a refund may give back less, but never more.
func (r *Rule) Amend(e *Entry, t Taken, now int64, a Amendment) {
	e.Dirty = false
	if e.Expires > now && r.CanAmend(a) && (r.TakesSlots() || now >= t.At) {
		e.State, e.Dirty = r.machine.amend(r, now, t, a, e.State)
	}
}
