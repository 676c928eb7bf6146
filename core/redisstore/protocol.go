package redisstore

// The protocol: a charge becomes words of a command, and a reply becomes readings.
//
//	command    FCALL or EVALSHA, how many keys, the keys of all limits, then the words
//	charge     its mode, and a rule for each limit; equal ones at the end are sent once
//	mode       0 peek, 1 charge, 2 charge with a receipt, 3 force; "?" if the caller is
//	           patient; ":" and how far ahead of its time it may be admitted
//	rule       " ", the kind, " ", its numbers with "," between them, "~" if it is a shadow
//	repeats    for charges that are repeated in a row "*", the number of the charge, ":" and how
//	           often it is repeated after the first time
//	reply      for each charge its numbers, or "!" and an error; one value alone is no array
//	numbers    with a receipt the instant; those of each limit
//
//	refund     the keys of the limits that were charged; the instant of the charge, and a word
//	           with a rule for each limit
//	its reply  1, or 0 if the charge was made later than now
//
// Each file of lua has the numbers of its machine at its top. Examples: what is asked, the words
// after the keys, and the reply. Times are microseconds.
//
//	Funnel(15, Per(1, time.Second)), empty
//	    1 funnel 1000000,15000000,1,0,0
//	    2000001
//	FixedWindow(100, time.Hour), the first action, with a receipt
//	    2 fixed 1,100,3600000000
//	    1767323045678901 3 3600000000
//	the refund of that action
//	    1767323045678901 | fixed 1,3600000000,1767326645678901,1
//	    1
//	FixedWindow(100, time.Hour), SlidingWindow(1, time.Minute) and a BanPolicy, 20 s after an action
//	    1 fixed 1,100,3600000000 sliding 1,1,60000000 ban 0,3,60000000,7200000000,300000000
//	    3 3580000000 2 40000000 40000000 3 60000000 0 0

import (
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A request is a charge's word, without the keys.
type request struct {
	charge core.Charge // without user and action
	word   any         // a string
	size   int         // numbers in the reply
	weight int         // how long it takes, in simple charges
}

// request returns the request of a charge. Most charges of a limiter have the same one, so
// there is a cache.
func (s *Store) request(c *core.Charge) *request {
	at := &s.requests[maphash.String(s.seed, c.Limits[0].Identity())%uint64(len(s.requests))]
	if o := at.Load(); o != nil && o.matches(c) {
		return o
	}
	o := &request{charge: *c, word: word(c)}
	o.charge.User, o.charge.Action, o.charge.Limits = "", "", slices.Clone(c.Limits)
	if dated(c) {
		o.size++
	}
	for i := range c.Limits {
		rule := c.Limits[i].Rule()
		o.size += rule.ReplySize(dated(c))
		o.weight += rule.Weight(c.Cost)
	}
	at.Store(o)
	return o
}

func (o *request) matches(c *core.Charge) bool {
	k := &o.charge
	return k.Ask == c.Ask && k.Receipt == c.Receipt && slices.Equal(k.Limits, c.Limits)
}

// dated reports whether the reply has the instant of the decision, and the numbers of meters'
// last refunds.
func dated(c *core.Charge) bool { return c.Receipt && c.Mode == machine.Charge }

// word is the word of a charge.
func word(c *core.Charge) string {
	var few [256]byte
	b := append(few[:0], '1')
	switch {
	case c.Mode == machine.Peek:
		b[0] = '0'
	case c.Mode == machine.Force:
		b[0] = '3'
	case c.Receipt:
		b[0] = '2'
	}
	if c.Patient {
		b = append(b, '?')
	}
	if c.Ahead > 0 {
		b = strconv.AppendInt(append(b, ':'), c.Ahead, 10)
	}
	var numbers [8]int64
	for i := range c.Limits {
		l := &c.Limits[i]
		b = appendRule(b, l.Rule().Kind, l.Rule().Args(numbers[:0], c.Ask))
		if l.IsShadow() {
			b = append(b, '~')
		}
	}
	return string(b)
}

func appendRule(b []byte, kind machine.Kind, numbers []int64) []byte {
	b = append(append(b, ' '), kind.String()...)
	separator := byte(' ')
	for _, n := range numbers {
		b = strconv.AppendInt(append(b, separator), n, 10)
		separator = ','
	}
	return b
}

// decode appends the readings in a charge's part of the reply: the instant if the charge is
// dated, and then the numbers of each limit.
func decode(c *core.Charge, values []any, readings []machine.Reading) ([]machine.Reading, int64, error) {
	var few [16]int64
	numbers := few[:0]
	for _, v := range values {
		n, ok := v.(int64)
		if !ok || n < 0 {
			return nil, 0, ErrReply
		}
		numbers = append(numbers, n)
	}
	now, dated := int64(0), dated(c)
	if dated {
		if len(numbers) == 0 {
			return nil, 0, ErrReply
		}
		now, numbers = numbers[0], numbers[1:]
	}
	for i := range c.Limits {
		rule := c.Limits[i].Rule()
		size := rule.ReplySize(dated)
		if len(numbers) < size {
			return nil, 0, ErrReply
		}
		readings, numbers = append(readings, rule.Reply(numbers[:size], dated)), numbers[size:]
	}
	if len(numbers) > 0 {
		return nil, 0, ErrReply
	}
	return readings, now, nil
}

// distribute gives each charge its part of the script's reply: its numbers, or "!" and an
// error. A reply of one value is not in an array.
func distribute(reply any, err error, calls []*call) {
	values, ok := reply.([]any)
	if !ok && reply != nil {
		values, ok = calls[0].scalar[:], true
		values[0] = reply
	}
	for _, c := range calls {
		text, failed := "", false
		if len(values) > 0 {
			text, _ = values[0].(string)
			text, failed = strings.CutPrefix(text, "!")
		}
		switch {
		case err != nil:
			c.err = err
		case ok && failed:
			c.err, values = plainError(text), values[1:]
		case !ok || len(values) < c.size:
			c.err, ok = ErrReply, false // the parts after it cannot be found
		default:
			c.values, values = values[:c.size:c.size], values[c.size:]
		}
	}
	if len(values) > 0 {
		for _, c := range calls {
			c.values, c.err = nil, errors.Join(c.err, ErrReply)
		}
	}
}
