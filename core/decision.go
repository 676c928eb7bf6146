package core

// Decision: the answer to a caller, and how it is made from the readings of the limits.

import (
	"math"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Never is the RetryAfter of an action that can never pass, because its cost is above the quota of
// an enforced limit. With [Divide] the cost may be above the quota of the share only. Then the
// action may pass when the store with the whole limit answers again.
const Never = time.Duration(math.MaxInt64)

// A Decision is a limiter's answer.
type Decision struct {
	Allowed bool

	// Source says where the decision comes from, such as the store or its fallback.
	Source Source

	// Limit is the quota of the binding limit: its maximum count or its capacity.
	Limit int

	// Remaining, from 0 to Limit, is the highest cost that would pass right now. If there are
	// several limits, it is the lowest of their numbers.
	Remaining int

	// RetryAfter is 0 if the action is allowed, and [Never] if its cost can never pass. Otherwise it
	// is the time after which the same cost passes, if nothing is charged or given back in that
	// time. A microsecond earlier the cost does not pass.
	//
	// If Reason is [ReasonInFlight], RetryAfter is the time until enough leases end. Slots that are
	// released are free sooner. If another limit refuses too, RetryAfter is that of the other limit,
	// even if the slots are taken for longer.
	//
	// RetryAfter can be too long in cases such as these:
	//   - The clock has stepped back, or the time of day was set.
	//   - Reason is [ReasonFull], or Source is [SourceCache].
	//   - Source is [SourceLease]. The process may then ask Redis again after RetryAfter.
	//   - The decision is that of a Peek, and its limiter has a smaller max than another limiter
	//     that shares the window.
	//
	// RetryAfter can be too short, for example if the cost is above the Initial of a bucket, and the
	// bucket is forgotten in the meantime.
	RetryAfter time.Duration

	// ResetAfter is the time until the binding limit has its full quota again. For a bucket that
	// was never used see [Limit.Initial].
	ResetAfter time.Duration

	// Binding is the index, from 0, of the limit that Limit, RetryAfter and ResetAfter describe:
	//   - If limits refuse, it is the one with the longest RetryAfter among those that refuse. An
	//     InFlight that refuses binds only if no limit of another kind refuses, or if the cost is
	//     above the quota of the InFlight.
	//   - If all limits allow, it is the one with the least Remaining.
	//
	// If two limits are equal in this, the one with the longer ResetAfter binds. If they are equal
	// in that too, the first one binds.
	//
	// During a ban, RetryAfter and ResetAfter are at least the time until the ban ends.
	Binding int

	// Reason says why an action was refused. For an allowed action it is ReasonShadowed, ReasonNear
	// or empty.
	Reason Reason

	// If Reason is ReasonShadowed or ReasonNear, Shadow is the index of the shadow limit that Reason
	// is about. The index counts from 0, first the enforced limits and then the shadow limits. If
	// Reason is something else, or if the store [Shadow] has allowed a refused action, Shadow is 0.
	Shadow int

	// BanLevel is the number of bans in a row that a [BanPolicy] has given to the user. The present
	// ban counts too, unless it is one of [Limiter.Ban].
	BanLevel int

	// Subject is the index, from 0, of the subject of [All] that the decision is about. If subjects
	// refuse, it is one of these, in most cases the one with the longest RetryAfter. If all subjects
	// allow, it is the one with the least Remaining. If two are equal in this, the one with the longer
	// ResetAfter comes first.
	Subject int

	receipt *Record // if there are several subjects, the first of a list
}

// Cell returns the decision as the five integers of a reply of CL.THROTTLE, with seconds rounded
// up:
//
//	0  0 if allowed, 1 if refused
//	1  the limit
//	2  what remains
//	3  seconds until a retry passes; -1 if the action is allowed, or can never pass
//	4  seconds until the limit has its full quota
func (d Decision) Cell() [5]int64 {
	cell := [5]int64{0, int64(d.Limit), int64(d.Remaining), -1, seconds(d.ResetAfter)}
	if !d.Allowed {
		cell[0] = 1
		if d.RetryAfter != Never {
			cell[3] = seconds(d.RetryAfter)
		}
	}
	return cell
}

func seconds(d time.Duration) int64 {
	return int64(d/time.Second) + int64(min(1, max(0, d%time.Second)))
}

// A Reason says why an action was refused, or what a shadow limit would have done.
type Reason string

// The reasons. ReasonShadowed and ReasonNear are reasons of allowed actions: see [Shadow] and
// [Limit.Shadow]. The other reasons are those of refused actions.
const (
	ReasonLimited  Reason = "limited"   // a limit has no room
	ReasonNothing  Reason = "nothing"   // the limit is Nothing
	ReasonBanned   Reason = "banned"    // by a BanPolicy or by Ban
	ReasonInFlight Reason = "in-flight" // InFlight has no free slot; one may be released at any moment
	ReasonFull     Reason = "full"      // the store has no room for another key: see memorystore.Options
	ReasonShadowed Reason = "shadowed"  // allowed; a shadow limit, or the store inside Shadow, would have refused it
	ReasonNear     Reason = "near"      // allowed; a shadow limit has at most a fifth left
)

// A Source says where a decision comes from.
type Source uint8

// The sources of a decision.
const (
	SourceNone     Source = iota // no store has an answer: FailOpen or Shadow has decided
	SourceStore                  // the limiter's store
	SourceFallback               // the second store of Fallback
	SourceCache                  // an in-process cache: a recent refusal of the limiter's store
	SourceLease                  // this process, by units that it has taken in advance: see [Limit.Leased]
)

// String returns "store", "fallback", "cache", "lease" or "none".
func (s Source) String() string {
	names := [...]string{SourceNone: "none", SourceStore: "store", SourceFallback: "fallback", SourceCache: "cache", SourceLease: "lease"}
	if int(s) < len(names) {
		return names[s]
	}
	return "none"
}

// join replaces d by the decision about one more subject, if that subject binds.
func (d *Decision) join(one *Decision) {
	if one.claim().binds(d.claim()) {
		*d = *one
	}
}

// A claim has what says which of two limits or subjects binds: see [Decision].Binding.
type claim struct {
	refusal                refusal
	remaining              int
	retryAfter, resetAfter time.Duration
}

// A refusal says how strongly a limit or subject refuses. InFlight refuses less strongly than other
// limits, because a slot may be free at any moment.
type refusal uint8

const (
	notRefused refusal = iota
	refusedInFlight
	refused
)

func (d *Decision) claim() claim {
	o := claim{refused, d.Remaining, d.RetryAfter, d.ResetAfter}
	if d.Allowed {
		o.refusal = notRefused
	} else if d.Reason == ReasonInFlight {
		o.refusal = refusedInFlight
	}
	return o
}

// binds reports whether the limit or subject of o binds, and not that of d, which came first.
func (o claim) binds(d claim) bool {
	switch {
	case o.refusal != d.refusal:
		return o.refusal > d.refusal
	case o.refusal == notRefused && o.remaining != d.remaining:
		return o.remaining < d.remaining
	case o.retryAfter != d.retryAfter:
		return o.retryAfter > d.retryAfter
	}
	return o.resetAfter > d.resetAfter
}

// add adds the reading of the i-th limit to the decision about a cost. It is called in the order of
// the limits: enforced ones, shadow ones, and that of the ban policy.
func (d *Decision) add(r *machine.Rule, i int, cost int64, v *machine.Reading) {
	if r.Ban != nil || r.Shadow {
		d.addOther(r, i, v)
		return
	}
	limit := claim{remaining: int(r.Remaining(v)), resetAfter: micros(v.Rest.Ceil())}
	if !v.Fits {
		limit.retryAfter = retryAfter(r, cost, v)
		if limit.refusal = refused; r.TakesSlots() && cost <= r.Max {
			limit.refusal = refusedInFlight
		}
	}
	if i == 0 || limit.binds(d.claim()) {
		d.Binding, d.Limit, d.RetryAfter, d.ResetAfter = i, int(r.Max), limit.retryAfter, limit.resetAfter
		if d.Allowed, d.Reason = v.Fits, reasons[limit.refusal]; limit.refusal == refused {
			d.Reason = limited(r.Max)
		}
	}
	if i == 0 || limit.remaining < d.Remaining {
		d.Remaining = limit.remaining
	}
}

var reasons = [...]Reason{notRefused: "", refusedInFlight: ReasonInFlight, refused: ReasonLimited}

// limited returns the reason of a refusal by a limit with that quota.
func limited(quota int64) Reason {
	if quota == 0 {
		return ReasonNothing
	}
	return ReasonLimited
}

// addOther adds the reading of a shadow limit, or of the limit of a ban policy.
func (d *Decision) addOther(r *machine.Rule, i int, v *machine.Reading) {
	switch {
	case r.Ban != nil:
		d.BanLevel = int(v.Detail)
		d.Allowed = d.Allowed && v.Fits
		if v.Wait > 0 && !d.Allowed {
			d.Reason, d.Remaining, d.Shadow = ReasonBanned, 0, 0
			d.RetryAfter = max(d.RetryAfter, micros(v.Wait))
			d.ResetAfter = max(d.ResetAfter, micros(v.Wait))
		}
	case d.Allowed && !v.Fits && d.Reason != ReasonShadowed:
		d.Reason, d.Shadow = ReasonShadowed, i
	case d.Allowed && d.Reason == "" && r.Remaining(v) <= r.Max/5:
		d.Reason, d.Shadow = ReasonNear, i
	}
}

// retryAfter returns the time until a cost fits, or Never.
func retryAfter(r *machine.Rule, cost int64, v *machine.Reading) time.Duration {
	switch {
	case v.Fits:
		return 0
	case cost > r.Max:
		return Never
	}
	return micros(v.Wait)
}
