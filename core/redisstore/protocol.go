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
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
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

// refundWord returns the limits to which units are given back, and the word with their rules.
func refundWord(r *core.Receipt, units int64) (charged []core.Limit, word string) {
	var b []byte
	var numbers [8]int64
	for i := range r.Limits {
		if r.Charged(i) {
			charged = append(charged, r.Limits[i])
			rule, taken := r.Limits[i].Rule(), machine.Taken{At: r.At, Cost: r.Cost, Reading: r.Readings[i]}
			b = appendRule(b, rule.Kind, rule.RefundArgs(numbers[:0], taken, units))
		}
	}
	return charged, string(b)
}

// takeArgs returns the arguments of take for charges. Of equal charges in a row it sends the
// first, and how often it is repeated. If the last charges have equal words, it sends these
// once, which saves 5 % of a batch of one limiter's charges.
func takeArgs(calls []*batch.Call) []any {
	args := make([]any, head, head+1+len(calls)*(1+len(calls[0].Keys)))
	var few [16]any
	var repeats []byte
	words, again := slices.Grow(few[:0], len(calls)), 0
	for i, c := range calls {
		word := c.Args.(*request).word
		if i > 0 && word == calls[i-1].Args.(*request).word && slices.Equal(c.Keys, calls[i-1].Keys) {
			again++
			continue
		}
		repeats, again = appendRepeat(repeats, len(words), again), 0
		words = append(words, word)
		args = appendKeys(args, c.Keys)
	}
	repeats = appendRepeat(repeats, len(words), again)
	for n := len(words); n > 1 && words[n-1] == words[n-2]; n-- {
		words = words[:n-1]
	}
	args[head-1] = len(args) - head
	args = append(args, words...)
	if repeats != nil {
		args = append(args, repeats)
	}
	return args
}

// appendRepeat appends how often the charge of that number is repeated, if it is.
func appendRepeat(b []byte, number, again int) []byte {
	if again == 0 {
		return b
	}
	return fmt.Appendf(b, "*%d:%d", number, again)
}

// appendKeys appends keys to the arguments of a command.
func appendKeys(args []any, keys []string) []any {
	for _, k := range keys {
		args = append(args, k)
	}
	return args
}

// distribute gives each charge its part of the reply: its numbers, or "!" and an error.
func distribute(reply []any, calls []*batch.Call) {
	ok := true
	for _, c := range calls {
		size := c.Args.(*request).size
		text, failed := "", false
		if len(reply) > 0 {
			text, _ = reply[0].(string)
			text, failed = strings.CutPrefix(text, "!")
		}
		switch {
		case ok && failed:
			c.Err, reply = plainError(text), reply[1:]
		case !ok || len(reply) < size:
			c.Err, ok = ErrReply, false // the parts after it cannot be found
		default:
			c.Reply, reply = reply[:size:size], reply[size:]
		}
	}
	if len(reply) > 0 {
		for _, c := range calls {
			c.Reply, c.Err = nil, errors.Join(c.Err, ErrReply)
		}
	}
}

// decode reads a charge's part of the reply, which distribute has found: the instant if the charge
// is dated, and then the numbers of each limit.
func decode(c *core.Charge, values []any) (readings []machine.Reading, now int64, err error) {
	numbers := make([]int64, 0, len(values))
	for _, v := range values {
		n, ok := v.(int64)
		if !ok || n < 0 {
			return nil, 0, ErrReply
		}
		numbers = append(numbers, n)
	}
	dated := dated(c)
	if dated {
		now, numbers = numbers[0], numbers[1:]
	}
	readings = make([]machine.Reading, len(c.Limits))
	for i := range readings {
		rule := c.Limits[i].Rule()
		size := rule.ReplySize(dated)
		readings[i], numbers = rule.Reply(numbers[:size], dated), numbers[size:]
	}
	return readings, now, nil
}
