package machine

// A State is what a store keeps for one rule, one user and one action. The zero State stands
// for a rule of which the store keeps nothing.
//
// A store loads a state, passes it to [Rule.Check] and then to [Rule.Charge] or
// [Rule.Refuse], and writes it back if Dirty is set. Package core's Charge does so for
// several rules at once, all or none. The methods of a rule make a State that is on the stack
// escape to the heap, so a store that must not allocate keeps States to use again.
//
// A copy of a State shares Other and the instants of a long Trail with the original. A store
// that may discard what it has decided, as with a compare-and-swap that failed, does not decide
// on a copy: it loads the state again, with [State.UnmarshalBinary].
//
// What every decision of a bucket or funnel uses comes first, in few cache lines.
type State struct {
	Exists bool // the store keeps it; if false, the rest is ignored
	Dirty  bool // the state is to be written

	// Epoch is the store's instant 0, in microseconds since 1970. A store sets it if the rule has a
	// Calendar. The time of day may be set, so it may be another one each time.
	Epoch int64

	Reading // Fits is set by Check, the rest by Read

	next  Span  // the debt of a meter after the charge
	ahead int64 // how far the state is ahead of a clock that stepped back

	Meter   Meter   // buckets and funnels
	Counter Counter // FixedWindow, ElasticWindow and CalendarWindow
	Trail   Trail   // SlidingWindow and MovingWindow
	Other   Other   // what other kinds keep; nil: nothing
}

// Other is a state that few keys have: *[Bans] or *[Slots].
type Other interface{ form() Form }
