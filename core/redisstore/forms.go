package redisstore

// This file says which numbers the store sends to the Lua functions of each machine, and which
// numbers these functions reply. The first comments of a Lua file say what its numbers mean. A
// number in Lua is exact up to 2^53.

import "github.com/tailcut/tailcut/core/machine"

// A form says how to ask, on Redis, the limits that have one form of state.
type form struct {
	// args appends the numbers for the Lua function args. The argument ban is Ask.Ban. The argument
	// unix is the time by the clock of this process, in microseconds since 1970.
	args func(r *machine.Rule, b []int64, cost, ban, unix int64) []int64

	// reply makes a reading from the first numbers in n, which the Lua function named read has
	// replied. It returns the rest of n. The argument cost is the cost of the charge. The argument
	// amendable says whether the charge may be amended.
	reply func(r *machine.Rule, n []int64, cost int64, amendable bool) (v machine.Reading, rest []int64)

	// amendArgs appends the numbers for the Lua function amendArgs.
	amendArgs func(r *machine.Rule, b []int64, t machine.Taken, a machine.Amendment) []int64

	// entries returns how many entries Redis writes in the time that the charge of a counter takes.
	// It returns 0 if the form writes no entries.
	entries func(r *machine.Rule) int64
}

// forms has the form of each machine.Form.
var forms = [...]form{
	machine.FormMeter:   {meterArgs, meterReply, meterAmendArgs, none},
	machine.FormCounter: {counterArgs, counterReply, counterAmendArgs, none},
	machine.FormTrail:   {windowArgs, trailReply, trailAmendArgs, trailEntries},
	machine.FormBans:    {banArgs, banReply, banAmendArgs, none},
	machine.FormSlots:   {slotArgs, slotReply, slotAmendArgs, logEntries},
}

func formOf(r *machine.Rule) *form { return &forms[r.Kind.Form()] }

// readingOf makes the reading of a rule from the first numbers in n, and returns the rest of n. No
// number in n is negative. The lowest bit of the first number says whether the rule has room.
func readingOf(r *machine.Rule, n []int64, cost int64, amendable bool) (v machine.Reading, rest []int64) {
	v, rest = formOf(r).reply(r, n, cost, amendable)
	v.Fits = n[0]&1 == 1
	return v, rest
}

// replySize returns how many numbers the Lua function read replies for a rule.
func replySize(r *machine.Rule, amendable bool) int {
	_, rest := readingOf(r, zeros[:], 1, amendable)
	return len(zeros) - len(rest)
}

var zeros [8]int64 // nothing writes to it

// weight returns how long Redis takes to charge a cost. The unit is the charge of a counter.
func weight(r *machine.Rule, cost int64) int {
	if entries := formOf(r).entries(r); entries > 0 {
		return 4 + int(min(cost, r.Max)/entries)
	}
	return 1
}

func none(*machine.Rule) int64 { return 0 }

func logEntries(*machine.Rule) int64 { return 2 }

func trailEntries(r *machine.Rule) int64 {
	if r.Kind == machine.KindMovingWindow { // a ring
		return 2000
	}
	return logEntries(r)
}

func meterArgs(r *machine.Rule, b []int64, cost, _, _ int64) []int64 {
	span := r.Time(min(cost, 2*r.Max))
	b = append(b, span.Whole, r.Burst.Whole)
	if r.Parts > 1 || r.ForgetAfter > 0 {
		b = append(b, r.Parts, span.Part, r.Burst.Part)
	}
	if r.ForgetAfter > 0 {
		b = append(b, r.Start.Whole, r.Start.Part, r.ForgetAfter)
	}
	return b
}

func meterReply(r *machine.Rule, n []int64, cost int64, amendable bool) (v machine.Reading, rest []int64) {
	v.Rest.Whole, n = n[0]>>1, n[1:]
	if r.Parts > 1 {
		v.Rest.Part, n = n[0], n[1:]
	}
	if amendable {
		v.Detail, n = n[0], n[1:]
	}
	v.Wait = r.Delay(v.Rest, r.Time(cost))
	return v, n
}

func meterAmendArgs(r *machine.Rule, b []int64, t machine.Taken, a machine.Amendment) []int64 {
	give := r.Time(a.Units)
	return append(b, give.Whole, give.Part, r.Parts, t.At+t.Reading.Rest.Whole, t.Reading.Rest.Part,
		r.Burst.Whole, r.Burst.Part, t.Reading.Detail)
}

// windowArgs appends the numbers of a window. Costs above 2^40 are sent as 2^40, because they are
// above any quota.
func windowArgs(r *machine.Rule, b []int64, cost, _, _ int64) []int64 {
	return append(b, min(cost, 1<<40), r.Max, r.Period)
}

// counterArgs appends the numbers of a window. For a CalendarWindow it also appends the starts of
// the periods around the time of this process. So a server whose clock differs by up to a period
// can decide. A start before 1970 becomes 0, because the Lua reads no negative numbers.
func counterArgs(r *machine.Rule, b []int64, cost, _, unix int64) []int64 {
	b = windowArgs(r, b, cost, 0, 0)
	if r.Calendar != nil {
		for _, start := range r.Calendar.Starts(unix) {
			b = append(b, max(0, start))
		}
	}
	return b
}

func counterReply(r *machine.Rule, n []int64, _ int64, _ bool) (v machine.Reading, rest []int64) {
	if v.Count = n[0] >> 1; v.Count > 0 || r.Calendar == nil {
		v.Rest.Whole, v.Wait = n[1], n[1]
	} else {
		v.Detail = n[1]
	}
	return v, n[2:]
}

func counterAmendArgs(r *machine.Rule, b []int64, t machine.Taken, a machine.Amendment) []int64 {
	all := int64(0)
	if t.Opened(a.Units) {
		all = 1
	}
	return append(b, a.Units, r.Period, t.At+t.Reading.Rest.Whole, all)
}

func trailReply(_ *machine.Rule, n []int64, _ int64, _ bool) (v machine.Reading, rest []int64) {
	v.Count, v.Rest.Whole, v.Wait = n[0]>>1, n[1], n[2]
	return v, n[3:]
}

func trailAmendArgs(r *machine.Rule, b []int64, _ machine.Taken, a machine.Amendment) []int64 {
	return append(b, a.Units, r.Period, r.Max)
}

func banArgs(r *machine.Rule, b []int64, _, ban, _ int64) []int64 {
	return append(append(b, ban, int64(r.Ban.Refusals), r.Ban.Within, r.Ban.ForgetAfter), r.Ban.Bans...)
}

func banReply(_ *machine.Rule, n []int64, _ int64, _ bool) (v machine.Reading, rest []int64) {
	v.Count, v.Rest.Whole, v.Wait, v.Detail = n[0]>>1, n[1], n[2], n[3]
	return v, n[4:]
}

func banAmendArgs(_ *machine.Rule, b []int64, _ machine.Taken, _ machine.Amendment) []int64 { return b }

func slotArgs(r *machine.Rule, b []int64, cost, _, _ int64) []int64 {
	if cost <= r.Max { // a higher cost never fits
		cost = r.Takes(cost)
	}
	return windowArgs(r, b, cost, 0, 0)
}

func slotReply(r *machine.Rule, n []int64, cost int64, amendable bool) (v machine.Reading, rest []int64) {
	v, n = trailReply(r, n, cost, amendable)
	if amendable {
		v.Detail, n = n[0], n[1:]
	}
	return v, n
}

func slotAmendArgs(r *machine.Rule, b []int64, t machine.Taken, a machine.Amendment) []int64 {
	renew := int64(0)
	if a.Verb == machine.VerbRenew {
		renew = 1
	}
	return append(b, renew, r.Period, t.Reading.Detail, t.Cost)
}
