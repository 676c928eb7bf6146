package machine

// What each kind of limit computes, and what most of them have in common.

// A machine is the arithmetic of the kinds with one form. Its first seven functions have their
// counterparts in its Lua file, in the same sequence. They take and return states by value, so that
// no state moves to the heap. After a Peek a store drops the state, so only charge, refuse and
// amend change what Data points to. These three and check report whether the state has changed.
type machine interface {
	// load reads what save has written.
	load(r *Rule, d *decoder) State

	// check brings a state to now, and reports whether the rule has room.
	check(r *Rule, now, cost int64, a *Ask, s State) (checked State, fits, changed bool)

	// charge charges a checked state that has room. It returns the reading too, for one more unit.
	charge(r *Rule, now, cost int64, a *Ask, s State) (v numbers, detail int64, charged State, changed bool)

	// refuse does not charge a checked state, and returns its reading. If record is set, it records
	// the refusal, or starts a bucket with Initial.
	refuse(r *Rule, now, cost int64, record bool, s State) (v numbers, detail int64, refused State, changed bool)

	// read returns the reading of a checked state. Its Wait is that of the cost.
	read(r *Rule, now, cost int64, s State) (v numbers, detail int64)

	// amend amends what a charge has taken. A state of which nothing is left becomes the zero State.
	amend(r *Rule, now int64, t Taken, a Amendment, s State) (amended State, changed bool)

	// save appends the state in binary form.
	save(r *Rule, b []byte, s State) []byte

	predictable(r *Rule, v Reading, count bool) bool

	// prepay tightens a rule whose units are charged up to so long before their actions.
	prepay(r *Rule, d int64)
}

// numbers are most fields of a [Reading]. They are a separate struct of four words, because the
// compiler keeps no larger struct in registers. Results have the state after the numbers, and
// arguments have it last, so that it stays in the same registers.
type numbers struct {
	Count int64
	Rest  Span
	Wait  int64
}

// plain has two methods that are the same for most machines: a reading determines all later
// readings of the state, and units that are charged before their actions need no stricter rule.
type plain struct{}

func (plain) predictable(*Rule, Reading, bool) bool { return true }

func (plain) prepay(*Rule, int64) {}
