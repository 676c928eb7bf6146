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
//	           repeated after the first time, for each charge that is repeated. The argument is
//	           missing if no charge is repeated
//	slots      "=" and the number of the first slot of each charge that may take slots, with ","
//	           between the numbers. The argument is missing if no charge may take slots
//	the reply  for each charge its numbers, or "!" and an error. A reply of one value is not in an
//	           array
//	numbers    the instant, if the charge has a receipt; then the numbers of each limit
//
// The program amend refunds, releases or renews. Its arguments are the keys of the limits whose
// states it changes, the instant of the charge, and a word with a rule for each of these limits.
// Its reply is 0 if it does not find the slots of an enforced limit, for example because their lease
// has ended. Otherwise its reply is 1.
//
// If a Lua file is for a machine, its first comments say the machine's numbers. An example has
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
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// takeArgs returns the arguments of the program take. If equal charges follow each other, takeArgs
// writes the first of them, and how often it is repeated. If several words at the end are equal,
// takeArgs writes one of them, which saves 5 % of the time of a batch if all its charges are by one
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
