package redisstore

// The protocol: a charge becomes words of a command, and a reply becomes readings.
//
//	command    FCALL or EVALSHA of take, how many keys, a key for each limit of each charge, then a word
//	           for each charge, then the repeats, then the slots
//	word       its mode, and a rule for each limit; equal words at the end are sent once
//	mode       p peek, c charge, r charge with a receipt, f charge what there is room for, o charge above
//	           the quota too; "?" if the caller waits when refused, so that no limit records the refusal;
//	           ":" and how far ahead of its time a meter may admit it
//	rule       " ", "&" if it is the first of a further subject, the kind, " ", its numbers with ","
//	           between them, "~" if it is a shadow, "!" if only failures are charged, by f
//	repeats    if charges are repeated in a row: for each of these "*", the number of the charge, ":" and
//	           how often it is repeated after the first time; all in one word
//	slots      if charges may take slots: "=" and the number of each, with "," between them
//	reply      for each charge its numbers, or "!" and an error; one value alone is not in an array
//	numbers    with a receipt the instant; those of each limit
//
//	amend      to refund, release or renew: the keys of the limits that it concerns; the instant of the
//	           charge, and a word with a rule for each limit
//	its reply  1, or 0 if the lease of a slot that is enforced has ended
//
// Each file of lua has the numbers of its machine at its top. Examples: what is asked, the words
// after the keys, and the reply. Times are microseconds.
//
//	Funnel(15, Per(1, time.Second)), empty
//	    c funnel 1000000,15000000
//	    2000001
//	FixedWindow(100, time.Hour), the first action, with a receipt
//	    r fixed 1,100,3600000000
//	    1767323045678901 3 3600000000
//	the refund of that action
//	    1767323045678901 | fixed 1,3600000000,1767326645678901,1
//	    1
//	CalendarWindow(100, core.Day, nil), the first action, at 03:04:05.678901 UTC
//	    c calendar 1,100,86400000000,1767225600000000,1767312000000000,1767398400000000,1767484800000000
//	    3 75354321099
//	FixedWindow(100, time.Hour), SlidingWindow(1, time.Minute) and a BanPolicy, 20 s after an action
//	    c fixed 1,100,3600000000 sliding 1,1,60000000 ban 0,3,60000000,7200000000,300000000
//	    3 3580000000 2 40000000 40000000 3 60000000 0 0
//	FixedWindow(5, time.Minute) of a user and FixedWindow(100, time.Minute) of their organization, new
//	    c fixed 1,5,60000000 &fixed 1,100,60000000
//	    3 60000000 3 60000000

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// A request is an encoded charge, without its keys.
type request struct {
	of        core.Charge // without user and action
	word      any         // a string
	amendable bool        // the reply has the instant of the decision, and what amendments need
	slots     bool        // it may take slots
	size      int         // numbers in the reply
	weight    int         // how long it takes, in simple charges

	// The request is valid from start until before end, by this process's clock in microseconds since 1970: within
	// the current periods of its calendars. Without a calendar they are 0 and MaxInt64.
	start, end int64
}

// request returns the request of a charge. Most charges of a limiter have the same one, so there is a cache.
// It keeps no other cost, since the costs of some limiters differ each time.
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

// matches reports whether the request is that of a charge, but for the cost.
func (r *request) matches(c *core.Charge) bool {
	return c.More == nil && r.of.Ask == c.Ask && r.of.Receipt == c.Receipt && core.SameLimits(r.of.Limits, c.Limits)
}

// timely reports whether the request is for the time of a clock. Without a calendar it is for any, and the
// clock is not read.
func (r *request) timely(clock func() time.Time) bool {
	if r.end == math.MaxInt64 {
		return true
	}
	now := clock().UnixMicro()
	return r.start <= now && now < r.end
}

// newRequest encodes a charge. now is the time by this process's clock, in microseconds since 1970.
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

// scratch has room for the numbers of a rule.
var scratch = sync.Pool{New: func() any { return new([24]int64) }}

// modes has the letter of each mode, if no receipt is asked for.
var modes = [...]byte{machine.ModeCharge: 'c', machine.ModePatient: 'c', machine.ModePeek: 'p', machine.ModeForce: 'f', machine.ModeOwe: 'o'}

// appendMode appends the beginning of a charge's word.
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

// appendLimit appends a rule without what begins it.
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

// perUser replaces the action in the key of a limit that counts all of a user's actions.
const perUser = "*:"

// keys returns the keys of the limits of all subjects of a charge.
func (w *wire) keys(c *core.Charge) []string {
	keys := make([]string, 0, len(c.Limits))
	for _, p := range c.Parts() {
		keys = w.appendKeys(keys, p.User, p.Action, p.Limits)
	}
	return keys
}

// appendKeys appends the keys of a user's limits for an action.
func (w *wire) appendKeys(keys []string, user, action string, limits []core.Limit) []string {
	var buf [128]byte
	b := w.appendUser(buf[:0], user)
	own := len(b)
	b = append(appendPart(b, action), ':')
	shared := len(b)
	for i := range limits {
		identity := limits[i].Identity()
		if limits[i].IsPerUser() {
			keys = append(keys, string(b[:own])+perUser+identity)
		} else {
			keys = append(keys, string(append(b[:shared], identity...)))
		}
	}
	return keys
}

// appendUser appends the beginning of the keys of a user. The action and the limit's identity
// follow. Any two users, actions and limits have different keys, whatever their bytes.
// Keys are valid UTF-8. They have one pair of braces, around the user or their tag, so that all limits of
// a user are in one cluster slot, which the user cannot choose. After a tag that is not the user the
// user follows, before the colon: so whatever the tags are, no two users have one key.
func (w *wire) appendUser(b []byte, user string) []byte {
	b = append(b, w.options.Prefix...)
	b = append(b, ":{"...)
	tag := w.tag(user)
	b = append(w.appendName(b, tag), '}')
	if tag != user {
		b = w.appendName(b, user)
	}
	return append(b, ':')
}

// tag is what the keys of a user have in braces, before it is escaped.
func (w *wire) tag(user string) string {
	if w.options.Tag != nil {
		return cmp.Or(w.options.Tag(user), user)
	}
	return user
}

// takeArgs returns the arguments of take for charges. Of equal charges in a row it sends the
// first, and how often it is repeated. A word is an encoded charge without its keys. If the last words are equal,
// only the first of them is sent, which saves 5 % of a batch of one limiter's charges.
func takeArgs(calls []*batch.Call) []any {
	args := make([]any, head, head+1+len(calls)*(1+len(calls[0].Keys)))
	var buf [16]any
	var repeats, slots []byte
	words, again := slices.Grow(buf[:0], len(calls)), 0
	for i, c := range calls {
		if c.Number > 0 {
			slots = strconv.AppendInt(append(slots, ','), c.Number, 10)
		}
		if i > 0 && c.Word == calls[i-1].Word && slices.Equal(c.Keys, calls[i-1].Keys) {
			again++
			continue
		}
		repeats, again = appendRepeat(repeats, len(words), again), 0
		words = append(words, c.Word)
		args = box(args, c.Keys)
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
	if slots != nil {
		slots[0] = '='
		args = append(args, slots)
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

// box appends keys to the arguments of a command.
func box(args []any, keys []string) []any {
	for _, k := range keys {
		args = append(args, k)
	}
	return args
}

// distribute gives each charge its part of the reply: its numbers, or "!" and an error.
func distribute(reply []any, calls []*batch.Call) {
	ok := true
	for _, c := range calls {
		text, failed := "", false
		if len(reply) > 0 {
			text, _ = reply[0].(string)
			text, failed = strings.CutPrefix(text, "!")
		}
		switch {
		case ok && failed:
			c.Err, reply = plainError(text), reply[1:]
		case !ok || len(reply) < c.Size:
			c.Err, ok = ErrReply, false // the parts after it cannot be found
		default:
			c.Reply, reply = reply[:c.Size:c.Size], reply[c.Size:]
		}
	}
	if len(reply) > 0 {
		for _, c := range calls {
			c.Reply, c.Err = nil, errors.Join(c.Err, ErrReply)
		}
	}
}

// decode reads the part of a reply that distribute has found for one charge: first, if the charge
// is amendable, the instant, and then the numbers of each limit.
func (r *request) decode(values []any) (readings []machine.Reading, now int64, err error) {
	numbers := make([]int64, 0, len(values))
	for _, v := range values {
		n, ok := v.(int64)
		if !ok || n < 0 {
			return nil, 0, ErrReply
		}
		numbers = append(numbers, n)
	}
	if r.amendable {
		now, numbers = numbers[0], numbers[1:]
	}
	readings = make([]machine.Reading, 0, len(r.of.Limits)) // mostly, there is one subject
	for _, p := range r.of.Parts() {
		for j := range p.Limits {
			var v machine.Reading
			v, numbers = readingOf(p.Limits[j].Rule(), numbers, p.Cost, r.amendable)
			readings = append(readings, v)
		}
	}
	return readings, now, nil
}
