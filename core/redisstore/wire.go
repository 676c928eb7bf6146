package redisstore

// What is sent to the script, and how its reply is read.

import (
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A request is the script's arguments for a charge, without the keys.
type request struct {
	charge core.Charge // without user and action
	spec   any         // a string
	lone   []any       // instead of spec, if it is sent alone and there is a shorter form
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
	o := &request{charge: *c, spec: spec(c), lone: lone(c)}
	o.charge.User, o.charge.Action, o.charge.Limits = "", "", slices.Clone(c.Limits)
	if dated(c) {
		o.size++
	}
	for i := range c.Limits {
		o.size += replySize(&c.Limits[i], dated(c))
		o.weight += weight(&c.Limits[i], c.Cost)
	}
	at.Store(o)
	return o
}

func (o *request) matches(c *core.Charge) bool {
	k := &o.charge
	return k.Ask == c.Ask && k.Receipt == c.Receipt &&
		k.Ahead == c.Ahead && slices.Equal(k.Limits, c.Limits)
}

// dated reports whether the reply has the instant of the decision, and the numbers of meters'
// last refunds.
func dated(c *core.Charge) bool { return c.Receipt && c.Mode == machine.Charge }

// spec is the script's ARGV for a charge.
func spec(c *core.Charge) string {
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
	numbers := func(ns ...int64) {
		for i, n := range ns {
			b = strconv.AppendInt(append(b, separators[min(i, 1)]), n, 10)
		}
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		b = append(b, ' ')
		switch r := l.Rule(); r.Kind {
		case machine.KindTokenBucket, machine.KindFunnel:
			cost := r.Time(min(c.Cost, r.Max+1))
			switch {
			case r.ForgetAfter > 0:
				b = append(b, "initial"...)
				numbers(cost.Whole, r.Burst.Whole, r.Parts, cost.Part, r.Burst.Part, r.Start.Whole, r.Start.Part, r.ForgetAfter)
			case r.Parts > 1:
				b = append(b, "meter"...)
				numbers(cost.Whole, r.Burst.Whole, r.Parts, cost.Part, r.Burst.Part)
			default:
				b = append(b, "meter"...)
				numbers(cost.Whole, r.Burst.Whole, 1)
			}
		case machine.KindBan:
			b = append(b, "ban"...)
			numbers(append([]int64{c.Ban, int64(r.Ban.Refusals), r.Ban.Within, r.Ban.ForgetAfter}, r.Ban.Bans...)...)
		default:
			b = append(b, r.Kind.String()...)
			// Lua's integers end at 2^53. For a window all costs above the quota are alike.
			numbers(min(c.Cost, 1<<40), int64(l.Quota()), l.Period().Microseconds())
		}
		if l.IsShadow() {
			b = append(b, '~')
		}
	}
	return string(b)
}

const separators = " ,"

// lone is the script's ARGV for the only charge of a run, if it is of a lone meter.
func lone(c *core.Charge) []any {
	r := c.Limits[0].Rule()
	if c.Mode != machine.Charge || c.Receipt || c.Patient || c.Ahead > 0 || len(c.Limits) > 1 || c.Limits[0].IsShadow() ||
		r.Kind.Form() != machine.FormMeter || r.Parts > 1 || r.ForgetAfter > 0 {
		return nil
	}
	cost := r.Time(min(c.Cost, r.Max+1))
	return []any{strconv.FormatInt(cost.Whole, 10), strconv.FormatInt(r.Burst.Whole, 10)}
}

// weight is how long the script takes for a limit, in simple charges: a trail writes an entry
// for each unit.
func weight(l *core.Limit, cost int64) int {
	switch l.Rule().Kind {
	case machine.KindSlidingWindow, machine.KindSlidingRefused:
		return 4 + int(min(cost, int64(l.Quota()))/2)
	case machine.KindMovingWindow:
		return 4 + int(min(cost, int64(l.Quota()))/2000)
	}
	return 1
}

// replySize is how many numbers the script replies for a limit.
func replySize(l *core.Limit, dated bool) int {
	switch r := l.Rule(); r.Kind {
	case machine.KindFixedWindow, machine.KindElasticWindow:
		return 2
	case machine.KindTokenBucket, machine.KindFunnel:
		n := 1
		if r.Parts > 1 {
			n++
		}
		if dated {
			n++
		}
		return n
	case machine.KindBan:
		return 4
	}
	return 3
}

// decode appends the readings in a charge's part of the reply: the instant if the charge is
// dated, and then the numbers of each limit.
func decode(c *core.Charge, values []any, readings []machine.Reading) ([]machine.Reading, int64, error) {
	now, dated := int64(0), dated(c)
	if dated {
		if len(values) == 0 {
			return nil, 0, ErrReply
		}
		var ok bool
		if now, ok = values[0].(int64); !ok || now < 0 {
			return nil, 0, ErrReply
		}
		values = values[1:]
	}
	for i := range c.Limits {
		rule := c.Limits[i].Rule()
		var n [4]int64
		size := replySize(&c.Limits[i], dated)
		if len(values) < size {
			return nil, 0, ErrReply
		}
		for j := range size {
			v, ok := values[j].(int64)
			if !ok || v < 0 {
				return nil, 0, ErrReply
			}
			n[j] = v
		}
		values = values[size:]
		v := machine.Reading{Fits: n[0]&1 == 1}
		switch {
		case rule.Kind.Form() == machine.FormMeter:
			if dated {
				v.Refund, n[size-1] = n[size-1], 0
			}
			v.Rest = machine.Span{Whole: n[0] >> 1, Part: n[1]}
		case rule.Kind == machine.KindBan:
			v.Refusals, v.Rest.Whole, v.Wait, v.Level = int(n[0]>>1), n[1], n[2], int(n[3])
		default:
			v.Count, v.Rest.Whole, v.Wait = n[0]>>1, n[1], n[2]
		}
		readings = append(readings, v)
	}
	if len(values) > 0 {
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
