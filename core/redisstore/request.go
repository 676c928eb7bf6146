package redisstore

// The request of a charge: its word, which protocol.go describes, and the cache of requests.

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A request is an encoded charge, without its keys.
type request struct {
	of        core.Charge // without user and action
	word      any         // a string
	amendable bool        // the reply has the instant of the decision, and the numbers for an amendment
	slots     bool        // the charge may take slots
	size      int         // how many numbers the reply has
	weight    int         // how long Redis takes for it, in charges of a counter

	// A request with calendar windows is valid from start until just before end: within the current
	// periods of these windows. Times are by the clock of this process, in microseconds since 1970.
	// Without a calendar start is 0 and end is MaxInt64.
	start, end int64
}

// request returns the request of a charge. Most charges of a limiter have an equal request, so
// requests are cached. For the limits of a charge, the cache keeps one request, of the first cost,
// because with some limiters the cost differs each time.
func (w *wire) request(c *core.Charge) request {
	at := &w.requests[c.Limits[0].Rule().Hash%uint64(len(w.requests))]
	last := at.Load()
	current := last != nil && last.timely(w.clock)
	if current && last.matches(c) && last.of.Cost == c.Cost {
		return *last
	}
	r := newRequest(c, w.clock().UnixMicro())
	if c.More == nil && !(current && last.matches(c)) {
		kept := r
		at.Store(&kept)
	}
	return r
}

// matches reports whether a charge has the request r, apart from the cost.
func (r *request) matches(c *core.Charge) bool {
	return c.More == nil && r.of.Ask == c.Ask && r.of.Receipt == c.Receipt && core.SameLimits(r.of.Limits, c.Limits)
}

// timely reports whether the request is valid now. If it has no calendar, timely does not read the
// clock.
func (r *request) timely(clock func() time.Time) bool {
	if r.end == math.MaxInt64 {
		return true
	}
	now := clock().UnixMicro()
	return r.start <= now && now < r.end
}

// newRequest encodes a charge. now is the time by the clock of this process, in microseconds since
// 1970.
func newRequest(c *core.Charge, now int64) request {
	r := request{of: *c, amendable: c.Receipt && c.Mode.NeedsRoom() && c.Writes(), end: math.MaxInt64}
	r.of.User, r.of.Action = "", ""
	if r.amendable {
		r.size++
	}
	word := appendMode(make([]byte, 0, 128), c, r.amendable)
	numbers := scratch.Get().(*[24]int64)
	defer scratch.Put(numbers)
	for part, p := range c.Parts() {
		for i := range p.Limits {
			rule := p.Limits[i].Rule()
			word = append(word, ' ')
			if part > 0 && i == 0 {
				word = append(word, '&')
			}
			word = appendLimit(word, rule, formOf(rule).args(rule, numbers[:0], p.Cost, c.Ban, now))
			r.size += replySize(rule, r.amendable)
			r.weight += weight(rule, p.Cost)
			r.slots = r.slots || rule.TakesSlots() && c.Mode.NeedsRoom() && c.Writes()
			if rule.Calendar != nil {
				start, end := rule.Calendar.Period(now)
				r.start, r.end = max(r.start, start), min(r.end, end)
			}
		}
	}
	r.word = string(word)
	return r
}

// scratch has memory for the numbers of a rule.
var scratch = sync.Pool{New: func() any { return new([24]int64) }}

// modes has the letter of each mode for a charge without a receipt.
var modes = [...]byte{machine.ModeCharge: 'c', machine.ModePatient: 'c', machine.ModePeek: 'p', machine.ModeForce: 'f', machine.ModeOwe: 'o'}

// appendMode appends the beginning of a word: the mode and what belongs to it.
func appendMode(b []byte, c *core.Charge, amendable bool) []byte {
	mode := modes[c.Mode]
	switch {
	case !c.Writes():
		mode = modes[machine.ModePeek]
	case amendable:
		mode = 'r'
	}
	b = append(b, mode)
	if c.Mode == machine.ModePatient && c.Writes() {
		b = append(b, '?')
	}
	if c.Ahead > 0 {
		b = strconv.AppendInt(append(b, ':'), c.Ahead, 10)
	}
	return b
}

// appendLimit appends a rule: its kind, its numbers and its marks.
func appendLimit(b []byte, r *machine.Rule, numbers []int64) []byte {
	b = append(b, r.Kind.String()...)
	separator := byte(' ')
	for _, n := range numbers {
		b = strconv.AppendInt(append(b, separator), n, 10)
		separator = ','
	}
	if r.Shadow {
		b = append(b, '~')
	}
	if r.Failures {
		b = append(b, '!')
	}
	return b
}
