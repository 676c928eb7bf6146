package redisstore

// The protocol: how charges become the arguments of a command, and how its reply becomes readings.
//
// The arguments of FCALL or EVALSHA of the program take are, in this order: how many keys follow; a
// key for each limit of each charge; a word for each charge; the repeats; the slots. If several
// words at the end are equal, one of them is sent.
//
//	a word     the mode of the charge, and a rule for each limit
//	a mode     a letter: p to peek, c to charge, r to charge with a receipt, f to charge what there
//	           is room for, o to charge above the quota too. Then "?" if the caller waits when
//	           refused, so that no limit records the refusal. Then, if a meter may admit the charge
//	           ahead of its time, ":" and the time
//	a rule     " "; "&" if it is the first rule of a further subject; the kind; " "; its numbers
//	           with "," between them; "~" if it is a shadow; "!" if only the modes f and o charge
//	           the limit
//	repeats    one argument with "*", the number of a charge, ":", and how often this charge is
//	           repeated after the first time, for each charge that is repeated. It is missing if
//	           none is
//	slots      "=" and the number of the first slot of each charge that may take slots, with ","
//	           between the numbers. It is missing if no charge may take slots
//	the reply  for each charge its numbers, or "!" and an error. A reply of one value is not in an
//	           array
//	numbers    the instant, if the charge has a receipt; then the numbers of each limit
//
// The program amend refunds, releases or renews. Its arguments are the keys of the limits whose
// states it changes, the instant of the charge, and a word with a rule for each of these limits.
// Its reply is 0 if it does not find the slots of an enforced limit, for example because their lease
// has ended. Otherwise its reply is 1.
//
// Each file of lua has the numbers of its machine at its top, if it is for a machine. An example has
// three lines: what is asked, the words after the keys, and the reply. Times are in microseconds.
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
	amendable bool        // the reply has the instant of the decision, and the numbers for an amendment
	slots     bool        // the charge may take slots
	size      int         // how many numbers the reply has
	weight    int         // how long Redis takes for it, in charges of a counter

	// Calendars make a request valid only from start until before end: within their current periods
	// by the clock of this process, in microseconds since 1970. Without a calendar start is 0 and
	// end is MaxInt64.
	start, end int64
}

// request returns the request of a charge. Most charges of a limiter have an equal request, so
// requests are cached. The cache keeps the first cost only, since the costs of some limiters differ
// each time.
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

// perUser stands in a key for the action, if the limit counts all actions of a user together.
const perUser = "*:"

// keys returns a key for each limit of a charge, in the order of the limits.
func (w *wire) keys(c *core.Charge) []string {
	keys := make([]string, 0, len(c.Limits))
	for _, p := range c.Parts() {
		keys = w.appendKeys(keys, p.User, p.Action, p.Limits)
	}
	return keys
}

// appendKeys appends a key for each of the limits of a user and an action.
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

// appendUser appends the beginning of a user's keys: the prefix and the user. The action and the
// limit's identity follow. For example, a key is "tailcut:{alice}:reply:funnel:...". These hold for
// all keys, whatever bytes the names have:
//
//   - The keys of two users, of two actions, or of two limits with different identities differ. But
//     a PerUser limit has one key for all actions.
//   - A key is valid UTF-8.
//   - A key has one pair of braces, around the user or around the user's tag. Therefore all limits
//     of a user are in one slot of a Cluster, and braces in the name of the user do not change the
//     slot.
//   - If the tag is not the user, the user follows after the braces. Therefore two users with the
//     same tag have different keys.
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

// tag returns the text that the keys of a user have in braces, before it is escaped.
func (w *wire) tag(user string) string {
	if w.options.Tag != nil {
		return cmp.Or(w.options.Tag(user), user)
	}
	return user
}

// takeArgs returns the arguments of the program take. If equal charges follow each other, takeArgs
// writes the first of them, and how often it is repeated. If several words at the end are equal,
// takeArgs writes one of them, which saves 5 % of the time of a batch if its charges are by one
// limiter.
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

// appendRepeat appends how often a charge is repeated. number says which charge of the batch it is.
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

// distribute gives each charge its part of the reply, which is either its numbers, or "!" and an
// error.
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

// decode reads the part of a reply that belongs to one charge. If the charge is amendable, the
// instant comes first. The numbers of each limit follow.
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
