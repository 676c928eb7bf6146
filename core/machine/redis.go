package machine

// What package redisstore sends to the Lua functions of a machine, and how it reads their replies.

// Args appends the numbers of the rule and the ask, which the machine's Lua function args reads.
func (r *Rule) Args(b []int64, a Ask) []int64 { return kinds[r.Kind].machine.args(r, b, a) }

// ReplySize is how many numbers the Lua function read returns. dated says whether the charge may be
// refunded.
func (r *Rule) ReplySize(dated bool) int { return kinds[r.Kind].machine.replySize(r, dated) }

// Reply makes a reading of the numbers that the Lua function read has returned: there are ReplySize,
// and none is negative. The lowest bit of the first number says whether the rule has room.
func (r *Rule) Reply(n []int64, dated bool) Reading {
	v := kinds[r.Kind].machine.reply(r, n, dated)
	v.Fits = n[0]&1 == 1
	return v
}

// RefundArgs appends the numbers that the Lua function refund reads.
func (r *Rule) RefundArgs(b []int64, t Taken, units int64) []int64 {
	return kinds[r.Kind].machine.refundArgs(r, b, t, units)
}

// Weight is how long Redis takes to charge a cost, in charges of a counter.
func (r *Rule) Weight(cost int64) int { return kinds[r.Kind].machine.weight(r, cost) }

// windowArgs are the numbers of a window. Lua's integers end at 2^53; for a window all costs above
// the quota are alike.
func windowArgs(r *Rule, b []int64, a Ask) []int64 {
	return append(b, min(a.Cost, 1<<40), r.Max, r.Period)
}
