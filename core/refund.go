package core

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Refundable makes a limiter whose decisions can be given back with [Limiter.Refund].
// It is an [Option], since keeping a receipt costs each decision an allocation.
//
//	posts, err := posts.With(core.Refundable{})
type Refundable struct{}

func (Refundable) extend(l *Limiter) error {
	l.receipts = true
	return nil
}

// A Receipt says what an allowed charge has taken, for a store that gives it back.
type Receipt struct {
	User, Action string
	Limits       []Limit
	Cost         int64
	At           int64     // the instant of the charge, on the store's clock
	Readings     []Reading // of each limit, after it

	spent atomic.Bool
	by    Refunder
}

// A Refunder is a store that can give back.
type Refunder interface {
	// Refund gives back units, 1 to Cost, of what a charge of this store has taken,
	// in one atomic step: see [Receipt.Give].
	Refund(ctx context.Context, r *Receipt, units int64) error
}

// Issue makes the receipt of a decision valid. A store that is a [Refunder] calls it
// on what it answers to a charge with Receipt.
func (d *Decision) Issue(by Refunder) {
	if d.receipt != nil {
		d.receipt.by = by
	}
}

func newReceipt(c *Charge, readings []Reading, now int64) *Receipt {
	return &Receipt{
		User: c.User, Action: c.Action, Limits: c.Limits, Cost: c.Cost,
		At: now, Readings: append([]Reading(nil), readings...),
	}
}

// ErrNoReceipt is the error of a Refund of what cannot be given back: the limiter has
// no [Refundable], or the store keeps none.
var ErrNoReceipt = errors.New("core: the decision has no receipt; give the limiter Refundable with With")

// Refund gives back what the decision has charged, to all of its limits: an action
// that failed costs nothing. It gives no more than if the action had never happened, so
// what the time has given back already, it does not give again. A decision is given back
// once: doing it again does nothing, and neither does giving back a refusal.
//
// Some actions are kept as they are, since giving back would give more: one that has
// opened a FixedWindow in which there were others since; one in an ElasticWindow that
// is older than its period; one in a SlidingWindow with CountRefused that is full; and
// one in a bucket or funnel while others wait for a turn behind it. So is one in a
// MovingWindow that admitted more than 65,536 since, for the time that it would take.
// What was attempted and refused in between stays refused.
//
// A bucket or funnel gives back no more than is left of the debt that there was after
// the action, or after what others were given back since. It remembers eight of those
// until the debt of then has drained; the more there are, the less it may give.
//
// A store does not remember what was forgotten in between, by [Limiter.Reset], a
// restart, a store that was full, a clock that stepped back, a lower quota, or another
// limiter's Initial or ForgetAfter: a bucket or funnel may then get more than the action
// still weighed, up to what it had taken.
//
// An error means that it may not have been given back, and it then never will be.
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	if d.receipt == nil {
		return l.RefundN(ctx, d, 0)
	}
	return l.RefundN(ctx, d, int(d.receipt.Cost))
}

// RefundN is [Limiter.Refund] of n units of what was charged, 0 to all of them; the
// rest can then not be given back any more.
func (l *Limiter) RefundN(ctx context.Context, d Decision, n int) error {
	r := d.receipt
	rehearsed := l.receipts && d.Reason == ReasonShadowed // and by Shadow(store), if there is no receipt
	switch {
	case n < 0 || r != nil && int64(n) > r.Cost:
		return ErrCost
	case r == nil && (!d.Allowed || d.Source == SourceNone || rehearsed):
		return nil
	case r == nil || r.by == nil:
		return ErrNoReceipt
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if n == 0 || r.spent.Swap(true) {
		return nil
	}
	return r.by.Refund(ctx, r, int64(n))
}

// turn is how long after the charge the last of the turns comes that it reserved.
func (r *Receipt) turn() time.Duration {
	var turn int64
	for i := range enforced(r.Limits) {
		if l := &r.Limits[i]; !l.windowed() {
			turn = max(turn, span{r.Readings[i].Rest, r.Readings[i].Part}.sub(l.full, l.den).ceil())
		}
	}
	return micros(turn)
}

// Charged is whether the charge has taken from the i-th limit.
func (r *Receipt) Charged(i int) bool {
	if l := &r.Limits[i]; l.kind == KindLadder {
		return false
	} else if !l.shadow {
		return true
	}
	for j := range r.Limits {
		if r.Limits[j].shadow && !r.Readings[j].Fits {
			return false
		}
	}
	return true
}

// Give gives back units to the states, one for each limit in their order, at the
// instant now. It sets Changed in those to be written, and clears Kept in those to be
// forgotten.
func (r *Receipt) Give(states []State, now, units int64) {
	for i := range r.Limits {
		l, s, was := &r.Limits[i], &states[i], &r.Readings[i]
		s.Changed = false
		if !s.Kept || now < r.At || !r.Charged(i) {
			continue
		}
		switch l.kind {
		case KindFixedWindow, KindElasticWindow:
			s.Changed = l.giveCounter(s, r, was, now, units)
		case KindTokenBucket, KindFunnel:
			s.Changed = l.giveMeter(s, r, was, now, units)
		default:
			s.Changed = l.giveTrail(s, r, now, units)
		}
	}
}

// giveMeter takes time from the debt: that of the units, but no more than would be
// left of all the debt that there was after the charge, or after any refund since, had
// there been no other since.
// What others added since is not the action's to give back, and neither is what has
// drained by itself. While turns are to come only the last of them is given back: those
// behind keep theirs, and a newcomer would pass together with them.
func (l *Limit) giveMeter(s *State, r *Receipt, was *Reading, now, units int64) bool {
	m := &s.Meter
	at, after := span{m.At, int64(m.Part)}, span{r.At + was.Rest, was.Part}
	if int64(m.Den) != l.den && m.Part > 0 {
		at = span{m.At + 1, 0}
	}
	left := m.Given.limit(after, was.Count, l.den)
	if left.more(at) { // a lower quota has cut the debt
		left = at
	}
	left.whole -= now
	switch {
	case left.whole < 0 || left == (span{}) || m.gone() <= now:
		return false
	case m.Turns != 0 && at != after && span{at.whole - now, at.part}.more(l.full):
		return false
	}
	give := l.times(units)
	if give.more(left) {
		give = left
	}
	switch {
	case l.initial == 0:
		m.Last = UnknownLast
	case m.Last == UnknownLast:
		m.Last = now
	}
	before := at.ceil()
	at = at.sub(give, l.den)
	m.Given = m.Given.add(at, give, before, was.Count, l.den, now)
	m.At, m.Part, m.Den = at.whole, uint32(at.part), uint32(l.den)
	return true
}

// maxLows is how many lows are kept apart.
const maxLows = 8

func (g *Given) last() int64 {
	if g == nil {
		return 0
	}
	return g.Lows[len(g.Lows)-1].Refund
}

// limit is when all is drained that may be given back of a charge that knew of the
// refunds up to known, after which the debt was to be gone at after.
func (g *Given) limit(after span, known, den int64) span {
	if g == nil {
		return after
	}
	for i := range g.Lows {
		if low := &g.Lows[i]; low.Refund > known { // and the later ones are higher
			if at := low.as(den); after.more(at) {
				return at
			}
			break
		}
	}
	return after
}

// as is the instant in parts of den, rounded down.
func (w *Low) as(den int64) span {
	if int64(w.Den) != den {
		return span{w.At, 0}
	}
	return span{w.At, int64(w.Part)}
}

// add adds a refund, at the instant now, of a charge that knew of those up to known:
// what it gave, and when the debt is gone and was to be gone before. Had there been no
// such charge, the debt would have been less by as much after those that it did not
// know of. A low speaks for those before that are not lower, and the last that is over,
// which leaves nothing, for all of them. If they are too many, the two that are nearest
// to each other become one, the lower.
func (g *Given) add(at, gave span, before, known, den, now int64) *Given {
	next := &Given{Until: before}
	push := func(refund int64, at span) {
		for n := len(next.Lows); n > 0 && !at.more(next.Lows[n-1].as(den)); n-- {
			next.Lows = next.Lows[:n-1]
		}
		if at.whole < now {
			next.Lows = next.Lows[:0]
		}
		next.Lows = append(next.Lows, Low{refund, at.whole, uint32(at.part), uint32(den)})
	}
	if g != nil {
		next.Until, next.Lows = max(before, g.Until), make([]Low, 0, len(g.Lows)+1)
		for i := range g.Lows {
			low := &g.Lows[i]
			left := low.as(den)
			if low.Refund > known {
				left = left.sub(gave, den)
			}
			push(low.Refund, left)
		}
	}
	push(max(g.last()+1, now), at)
	if n := len(next.Lows); n > maxLows {
		nearest := 0
		for i := range n - 1 {
			if next.Lows[i+1].At-next.Lows[i].At < next.Lows[nearest+1].At-next.Lows[nearest].At {
				nearest = i
			}
		}
		next.Lows[nearest].Refund = next.Lows[nearest+1].Refund
		next.Lows = append(next.Lows[:nearest+1], next.Lows[nearest+2:]...)
	}
	return next
}

func (l *Limit) giveCounter(s *State, r *Receipt, was *Reading, now, units int64) bool {
	n := &s.Counter
	if l.kind == KindElasticWindow {
		if now >= r.At+l.span {
			return false // the window may be another
		}
	} else {
		opened := was.Count == r.Cost && units == r.Cost
		if n.End != r.At+was.Rest || opened && n.Count > units {
			return false
		}
	}
	n.Count -= units
	s.Kept = n.Count > 0 // or it is whole
	return true
}

// maxSince bounds how many entries move up when one is taken out.
const maxSince = 1 << 16

func (l *Limit) giveTrail(s *State, r *Receipt, now, units int64) bool {
	t := s.Trail
	if l.kind == KindSlidingRefused && t.Len()-t.dead(now-l.span) >= l.max {
		return false // older entries may have made room for newer ones
	}
	to := t.dead(r.At)
	from := max(t.dead(r.At-1), to-int(units))
	if from == to || l.kind == KindMovingWindow && t.Len()-to > maxSince {
		return false
	}
	t.remove(from, to)
	s.Kept = t.n > 0
	return true
}
