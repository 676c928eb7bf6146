package core

import (
	"context"
	"math"
	"time"
)

// A Store decides charges atomically and owns the clock. [Limiter] calls it with
// a context that is not done and a charge that is valid.
//
// Take decides one charge: all of its limits agree and are charged, or none is.
// A charge with Peek set is answered and never written. The answer is the same
// as that of [Charge.Check] and [Charge.Commit] on the states that the store
// keeps, in one atomic step at one instant of the store's clock.
//
// Reset forgets the states of the limits for that user and action.
//
// Errors say that there is no decision; a store never turns one into a verdict. An
// error that concerns only the keys of one charge is an [ErrKey], or a few of them
// could have [Fallback] and the like take the store for one that fails.
//
// A store whose states are spread over servers that fail each by itself has a method
// Part(user string) string, which names the one that has the user's states. [Fallback]
// and the like then count failures of each apart. Part must not block.
//
// A store that cannot serve every limiter has a method Accept(limits []Limit) error
// too, which [New] asks; a decorator passes the question on. One that has a shorter
// way to decide the commonest charge has the methods of [ShortStore].
//
// Package core/storetest holds an implementation to all this. A decorator is a
// Store around a Store: see [FailOpen], [Fallback], [Divide], [Shadow] and [Observe].
type Store interface {
	Take(ctx context.Context, c Charge) (Decision, error)
	Reset(ctx context.Context, user, action string, limits []Limit) error
}

// A ShortStore has a shorter way than Take to decide a charge that is [Charge.Short].
type ShortStore interface {
	Store

	// TakeOne decides such a charge, if it can do so soon: if the store knows the key and
	// need not wait for it. If not, Take is asked.
	TakeOne(user, action string, l *Limit, cost int64) Level

	// Is says whether that is the store itself: not one that embeds it, and so has
	// its methods, but has a Take of its own.
	Is(Store) bool
}

// accept asks a store whether it can serve a limiter of these limits.
func accept(store Store, limits []Limit) error {
	if s, ok := store.(interface{ Accept(limits []Limit) error }); ok {
		return s.Accept(limits)
	}
	return nil
}

// A Charge is what a limiter asks of its store: may User do Action, at Cost, by
// all of Limits? Stores read it and do not keep or change what it points to.
type Charge struct {
	User, Action string
	Limits       []Limit // no two of one identity
	Cost         int64   // units, at least 1
	Peek         bool    // only say what would happen

	// Force charges what there is room for, up to Cost, and passes whatever that is.
	Force bool

	// Receipt asks for a decision that can be given back: see [Decision.Issue].
	Receipt bool

	// Ahead, in microseconds, lets buckets and funnels admit an action that long
	// before there is room for it. It comes with Receipt, which says how long that is.
	Ahead int64

	status *Status // to be filled in by Answer
}

// Short is whether the charge is one that [Limit.Pour] decides: as most are, of one
// [Limit.Plain] limit, with nothing set but a Cost of no more than the quota.
func (c *Charge) Short() bool {
	return len(c.Limits) == 1 && c.Limits[0].Plain() && c.Cost <= int64(c.Limits[0].max) &&
		!c.Peek && !c.Force && !c.Receipt && c.Ahead == 0
}

// alone is whether the charge is one of a ladder alone: a look at it, or a ban by
// hand that lasts Cost microseconds.
func (c *Charge) alone() bool { return c.Limits[0].kind == KindLadder }

// A State is what a store keeps for one limit of one user and action. The zero
// State is that of a limit for which nothing is kept. A store loads it, passes it
// through [Charge.Check] and [Charge.Commit], and writes it back if Changed.
//
// One of three machines is used, by the limit's kind.
type State struct {
	Kept     bool  // something is kept; if not, the rest is ignored
	Fits     bool  // set by Check: this limit has room for the charge
	Changed  bool  // set by Commit: write it back
	Meter    Meter // Funnel, Throttle and TokenBucket
	Counter  Counter
	Trail    *Trail    // SlidingWindow and MovingWindow
	Standing *Standing // BanPolicy

	shift int64 // how far the trail's entries are ahead of the clock
}

// Expires is the instant from which the state need not be kept: the limit is
// whole again, or a bucket with Initial is forgotten.
func (s *State) Expires(l *Limit) int64 {
	switch {
	case l.kind == KindLadder:
		return l.forgotten(s.Standing)
	case l.kind == KindTokenBucket && l.initial > 0:
		return s.Meter.Last + l.memory
	case !l.windowed():
		return s.Meter.Expires()
	case s.Trail != nil:
		return s.Trail.newest() + l.span
	default:
		return s.Counter.End
	}
}

// RefusedUntil is the instant before which an action of cost 1 is refused, if
// nothing else happens; it may be past.
func (s *State) RefusedUntil(l *Limit) int64 {
	switch {
	case l.kind == KindLadder:
		return s.Standing.Until
	case !l.windowed():
		return s.Meter.RefusedUntil(l, 1)
	case s.Trail != nil:
		return s.Trail.free(l, 1)
	case s.Counter.Count >= int64(l.max):
		return s.Counter.End
	}
	return 0
}

// Check reports whether the charge may pass at the instant now, in microseconds on
// the store's clock: whether all limits have room, but for those that are rehearsed.
// It brings the states, one for each limit and in their order, to that instant.
func (c *Charge) Check(states []State, now int64) bool {
	all := true
	for i := range c.Limits {
		l, s := &c.Limits[i], &states[i]
		s.Changed = false
		s.Fits = l.fits(s, now, c)
		all = all && (s.Fits || l.shadow)
	}
	return all
}

// Commit moves the states as [Charge.Check] found them, and answers: if all fit,
// every limit is charged; if not, a limit records what it refuses where its kind
// does so. It leaves Changed set in those to be written: in none for a Peek. The answer
// is filled into the zero Decision.
func (c *Charge) Commit(d *Decision, states []State, now int64) {
	var few [4]Reading
	readings := few[:]
	if len(c.Limits) > len(few) {
		readings = make([]Reading, len(c.Limits))
	}
	pass, rehearsed, banned := true, true, false
	for i := range c.Limits {
		switch l := &c.Limits[i]; {
		case states[i].Fits:
		case l.shadow:
			rehearsed = false
		default:
			pass, banned = false, banned || l.kind == KindLadder
		}
	}
	for i := range c.Limits {
		l, s := &c.Limits[i], &states[i]
		switch {
		case c.Peek:
			s.Changed = false
		case pass && (rehearsed || !l.shadow):
			l.charge(s, now, c)
		default:
			l.hold(s, now, c, pass, banned)
		}
		readings[i].Fits = s.Fits
		l.read(&readings[i], s, now, c.Cost)
	}
	c.answer(d, readings[:len(c.Limits)], now)
}

// A Reading is what a limit's state says about a charge, in integers: what a
// store that decides elsewhere, in Lua say, brings back for [Charge.Answer]. It
// is taken after the charge was decided.
type Reading struct {
	Fits  bool  // this limit alone would have let the charge pass
	Count int64 // windows: what is counted; meters, with Receipt: the last refund; a ladder: the refusals
	Rest  int64 // until the limit is whole, in microseconds rounded down
	Part  int64 // meters: and a fraction of one, in the limit's denominator; a ladder: the rung
	Wait  int64 // trails, if it does not fit: until it would; a ladder: until the ban ends
}

// Answer turns the readings of the charge's limits, in their order, into the
// decision. now is the instant of it, which only a charge with Receipt needs.
func (c *Charge) Answer(readings []Reading, now int64) (d Decision) {
	c.answer(&d, readings, now)
	return d
}

// answer fills in the zero Decision: to copy it costs more than to decide.
func (c *Charge) answer(d *Decision, readings []Reading, now int64) {
	if c.status != nil {
		c.status.fill(c.Limits, readings)
	}
	d.Allowed, d.Source = true, SourceStore
	banned := false
	for i := range c.Limits {
		switch l := &c.Limits[i]; {
		case readings[i].Fits || l.shadow:
		case l.kind == KindLadder:
			banned = true
		default:
			d.Allowed = false
		}
	}
	limited := !d.Allowed
	if d.Allowed = d.Allowed && !banned; !d.Allowed {
		d.Reason = ReasonLimited
	}
	for i := range c.Limits {
		switch l, r := &c.Limits[i], &readings[i]; {
		case l.kind == KindLadder:
			c.punish(d, i, r)
		case !l.shadow:
			c.weigh(d, i, r, limited)
		case d.Allowed && !r.Fits:
			d.Reason = ReasonShadowed
		case d.Allowed && d.Reason == "" && l.remaining(r) <= l.max/5:
			d.Reason = ReasonNear
		}
	}
	if c.Receipt && d.Allowed && !c.Peek {
		d.receipt = newReceipt(c, readings, now)
	}
}

// punish adds what a ladder, which comes after all limits, says. Of a ladder alone
// the numbers are its own.
func (c *Charge) punish(d *Decision, i int, r *Reading) {
	l := &c.Limits[i]
	d.BanLevel = uint8(min(r.Part, math.MaxUint8))
	if i == 0 {
		d.Limit, d.Remaining, d.ResetAfter = l.max, max(0, l.max-int(r.Count)), micros(r.Rest)
		d.Allowed = r.Wait == 0
	}
	if r.Wait > 0 && !d.Allowed {
		d.Reason, d.Remaining = ReasonBanned, 0
		d.RetryAfter = max(d.RetryAfter, micros(r.Wait))
		d.ResetAfter = max(d.ResetAfter, micros(r.Wait))
	}
}

// weigh adds the i-th limit's reading to the decision. It is the one place that
// knows Remaining, RetryAfter and ResetAfter, and which limit binds. limited is
// whether one of them refuses.
func (c *Charge) weigh(d *Decision, i int, r *Reading, limited bool) {
	l := &c.Limits[i]
	remaining := l.remaining(r)
	retry := time.Duration(0)
	if !r.Fits {
		retry = l.retry(r, c.Cost)
	}
	reset := micros(span{r.Rest, r.Part}.ceil())
	binds := true
	switch {
	case i == 0:
	case !limited && remaining != d.Remaining:
		binds = remaining < d.Remaining
	case retry != d.RetryAfter:
		binds = retry > d.RetryAfter
	default:
		binds = reset > d.ResetAfter
	}
	if binds {
		d.Binding, d.Limit, d.RetryAfter, d.ResetAfter = i, l.max, retry, reset
	}
	if i == 0 || remaining < d.Remaining {
		d.Remaining = remaining
	}
}

// untouched is the decision of a charge that nobody could decide: the quota of the
// first limit, as if nothing had happened. What can never pass still cannot.
func (c *Charge) untouched() Decision {
	if c.status != nil {
		whole := make([]Reading, len(c.Limits))
		for i := range whole {
			whole[i].Fits = true
		}
		c.status.fill(c.Limits, whole)
	}
	d := Decision{Allowed: true, Limit: c.Limits[0].max, Remaining: c.Limits[0].max}
	if c.Force || c.alone() {
		return d
	}
	enforced := enforced(c.Limits)
	for i := range enforced {
		quota := enforced[i].max
		if d.Allowed && c.Cost > int64(quota) {
			d.Allowed, d.Limit, d.Binding, d.RetryAfter, d.Reason = false, quota, i, Never, ReasonLimited
		}
	}
	if !d.Allowed {
		for i := range enforced {
			d.Remaining = min(d.Remaining, enforced[i].max)
		}
	}
	return d
}

func (l *Limit) fits(s *State, now int64, c *Charge) bool {
	switch l.kind {
	case KindFixedWindow, KindElasticWindow:
		return l.fitsCounter(s, now, c)
	case KindTokenBucket, KindFunnel:
		return l.fitsMeter(s, now, c)
	case KindLadder:
		return l.fitsLadder(s, now, c.alone() && !c.Peek)
	default:
		return l.fitsTrail(s, now, c)
	}
}

func (l *Limit) charge(s *State, now int64, c *Charge) {
	cost := c.Cost
	if c.Force && l.windowed() {
		var r Reading
		l.read(&r, s, now, cost)
		if cost = min(cost, int64(l.remaining(&r))); cost == 0 {
			l.hold(s, now, c, true, false)
			return
		}
	}
	switch l.kind {
	case KindFixedWindow, KindElasticWindow:
		l.chargeCounter(s, now, cost)
	case KindTokenBucket, KindFunnel:
		l.chargeMeter(s, now, c)
	case KindLadder:
		if !c.alone() {
			cost = 0
		}
		l.climb(s, now, cost, false)
		return
	default:
		l.chargeTrail(s, now, cost)
	}
	s.Kept, s.Changed = true, true
}

// hold is what becomes of a state when the charge is refused, by this limit or
// by another. pass is whether only those that are rehearsed refuse; banned, whether
// a ban does, of which nothing is recorded.
func (l *Limit) hold(s *State, now int64, c *Charge, pass, banned bool) {
	mine := !s.Fits && !banned && c.Cost <= int64(l.max)
	switch {
	case l.kind == KindLadder:
		l.climb(s, now, 0, !pass && !banned)
	case mine && l.kind == KindElasticWindow:
		s.Counter.End = now + l.span
		s.Changed = true
	case mine && l.kind == KindSlidingRefused:
		l.chargeTrail(s, now, c.Cost)
		s.Changed = true
	case mine && l.initial > 0 && !s.Kept:
		s.Meter.Last = now
		s.Kept, s.Changed = true, true
	case s.shift > 0:
		s.Trail.base -= s.shift
		s.shift = 0
		s.Changed = true
	}
}

// read fills in the zero Reading.
func (l *Limit) read(r *Reading, s *State, now, cost int64) {
	switch l.kind {
	case KindFixedWindow, KindElasticWindow:
		l.readCounter(r, s, now)
	case KindTokenBucket, KindFunnel:
		r.Rest, r.Part, r.Count = s.Meter.At-now, int64(s.Meter.Part), s.Meter.Given.last()
	case KindLadder:
		l.readLadder(r, s, now)
	default:
		l.readTrail(r, s, now, cost)
	}
}

func (l *Limit) remaining(r *Reading) int {
	if !l.windowed() {
		debt := span{r.Rest, r.Part}
		if debt.more(l.full) { // turns are reserved
			return 0
		}
		return int(l.units(l.full.sub(debt, l.den)))
	}
	return max(0, l.max-int(r.Count))
}

func (l *Limit) retry(r *Reading, cost int64) time.Duration {
	switch {
	case cost > int64(l.max):
		return Never
	case !l.windowed():
		return micros(span{r.Rest, r.Part}.add(l.times(cost), l.den).sub(l.full, l.den).ceil())
	case l.kind == KindFixedWindow || l.kind == KindElasticWindow:
		return micros(r.Rest)
	}
	return micros(r.Wait)
}
