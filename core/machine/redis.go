package machine

// What package redisstore sends to the Lua functions of a machine, and how it reads their replies.

// Args appends the numbers of the rule, of a cost and of an Ask's Ban, which the machine's Lua function args
// reads. unix is the time by this process's clock, in microseconds since 1970; a rule with a Calendar needs it.
func (r *Rule) Args(b []int64, cost, ban, unix int64) []int64 {
	b = r.machine.args(r, b, cost, ban)
	if r.Calendar != nil {
		b = r.Calendar.appendPeriods(b, unix)
	}
	return b
}

// Reply makes a reading of the numbers that the Lua function read has returned for a cost, and
// returns the numbers after them. None is negative. The lowest bit of the first says whether the
// rule has room. amendable says whether the charge may be amended.
func (r *Rule) Reply(n []int64, cost int64, amendable bool) (v Reading, rest []int64) {
	v, rest = r.machine.reply(r, n, cost, amendable)
	v.Fits = n[0]&1 == 1
	return v, rest
}

// ReplySize is how many numbers the Lua function read returns.
func (r *Rule) ReplySize(amendable bool) int {
	_, rest := r.Reply(zeros[:], 1, amendable)
	return len(zeros) - len(rest)
}

var zeros [8]int64 // nothing writes to it

// AmendArgs appends the numbers that the Lua function amend reads.
func (r *Rule) AmendArgs(b []int64, t Taken, a Amendment) []int64 {
	return r.machine.amendArgs(r, b, t, a)
}

// Weight is how long Redis takes to charge a cost, in charges of a counter.
func (r *Rule) Weight(cost int64) int {
	if entries := kinds[r.Kind].entries; entries > 0 {
		return 4 + int(min(cost, r.Max)/entries)
	}
	return 1
}

// windowArgs are the numbers of a window. Lua's integers end at 2^53; for a window all costs above
// the quota are alike.
func windowArgs(r *Rule, b []int64, cost int64) []int64 {
	return append(b, min(cost, 1<<40), r.Max, r.Period)
}
