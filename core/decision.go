package core

// Decision: the answer to a caller.

import (
	"math"
	"time"
)

// Never is the RetryAfter of an action that can never pass: its cost is above the quota. With
// [Divide] that is the share's quota, so after an outage the action may pass.
const Never = time.Duration(math.MaxInt64)

// A Decision is a limiter's answer.
type Decision struct {
	Allowed bool

	// Source says who answered.
	Source Source

	// Limit is the quota of the binding limit: its maximum count or its capacity.
	Limit int

	// Remaining, from 0 to Limit, is the cost that would still pass right now. With
	// several limits it is the least of all.
	Remaining int

	// RetryAfter is 0 if allowed. Else it is the wait until the same cost passes, if
	// nothing else is charged meanwhile: a microsecond earlier it does not pass. It is
	// [Never] if the cost can never pass. With [ReasonInFlight] it is the wait until a lease ends, and
	// a slot that is released ends it sooner. If another limit refuses too, it is the other limit's: the
	// slots may be taken for longer.
	//
	// It can be too long after the clock stepped back or the time of day was set, for [ReasonFull], for a Peek
	// by a limiter with a smaller max on a shared window, and with [SourceCache]. With [SourceLease] it is the
	// time until the process may ask Redis again, usually at most 27.5 ms, or what is left of the wait that
	// Redis has told. It can be too short if a cost is above a bucket's Initial and the bucket is forgotten
	// meanwhile.
	RetryAfter time.Duration

	// ResetAfter is the time until the binding limit has its full quota again. See
	// [Limit.Initial] for an unused bucket.
	ResetAfter time.Duration

	// Binding is the index, from 0, of the limit that Limit, RetryAfter and ResetAfter describe: of the
	// limits that refuse, the one with the longest RetryAfter; if all allow, the one with the least
	// Remaining. Ties go to the longer ResetAfter, then to the first. If an InFlight limit refuses and
	// another limit too, the other one binds, unless the cost can never pass.
	Binding int

	// Reason says why an action was refused, or would have been.
	Reason Reason

	// Shadow is the index, from 0, of the shadow limit that Reason is about if it is
	// ReasonShadowed or ReasonNear: shadow limits come after the enforced ones. Otherwise it is 0.
	Shadow int

	// BanLevel is how many bans in a row a [BanPolicy] has given, including the current one.
	BanLevel int

	// Subject is the index, from 0, of the subject of [All] that the decision is about: of those that
	// refuse, the one with the longest RetryAfter; if all allow, the one with the least
	// Remaining. Ties go as for Binding.
	Subject int

	receipt *Record // with several subjects the first of a list
}

// Cell returns the decision as the five integers of a reply of CL.THROTTLE:
//
//	0  0 if allowed, 1 if refused
//	1  the limit
//	2  what remains
//	3  seconds until a retry passes; -1 if allowed, or if it never can
//	4  seconds until the limit has its full quota
//
// Seconds are rounded up.
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

// A Reason says why an action was refused.
type Reason string

// The reasons. An allowed action has none, except ReasonShadowed and ReasonNear: see
// [Shadow] and [Limit.Shadow].
const (
	ReasonLimited  Reason = "limited"   // a limit has no room
	ReasonNothing  Reason = "nothing"   // the limit is Nothing
	ReasonBanned   Reason = "banned"    // by a BanPolicy or by Ban
	ReasonInFlight Reason = "in-flight" // InFlight has no free slot; one may be released at any moment
	ReasonFull     Reason = "full"      // the store has no room for another key: see memorystore.Options
	ReasonShadowed Reason = "shadowed"  // allowed; a shadow limit would have refused it
	ReasonNear     Reason = "near"      // allowed; a shadow limit has at most a fifth left
)

// A Source says who answered.
type Source uint8

// The sources of a decision.
const (
	SourceNone     Source = iota // no store: FailOpen or Shadow let it pass
	SourceStore                  // the limiter's store
	SourceFallback               // the second store of Fallback
	SourceCache                  // an in-process cache: a recent refusal of the limiter's store
	SourceLease                  // this process, by the units that it holds: see [Limit.Leased]
)

// String returns "store", "fallback", "cache", "lease" or "none".
func (s Source) String() string {
	names := [...]string{SourceNone: "none", SourceStore: "store", SourceFallback: "fallback", SourceCache: "cache", SourceLease: "lease"}
	if int(s) < len(names) {
		return names[s]
	}
	return "none"
}
