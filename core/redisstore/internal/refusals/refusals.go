// Package refusals repeats refusals of Redis for at most a second, and only as long as Redis would
// refuse too if no other process changed the state. So a change by another process may be noticed a
// second late. A refusal by InFlight is repeated for 10 ms at most, because a slot may be released
// at any moment.
package refusals

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	repeat    = time.Second
	slotsFull = 10 * time.Millisecond

	rows   = 4096
	perRow = 4
)

// A Cache is a store that answers an attempt with a recent refusal of the server, if the refusal
// still holds. The refusals are in a table. A keyed hash gives each user a row of the table.
// So a user with many refusals displaces only refusals of users in the same row. Many goroutines
// may use a Cache at once.
type Cache struct {
	server Server
	now    func() time.Duration
	off    bool
	seeds  [2]maphash.Seed
	rows   [rows]row
}

// A Server decides charges, amends them, and deletes states.
type Server interface {
	// Decide returns the reading of each limit of the charge. If the charge asks for a receipt, now
	// is the instant of the decision.
	Decide(ctx context.Context, c core.Charge) (readings []machine.Reading, now int64, err error)

	Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error)
	Reset(ctx context.Context, user, action string, limits []core.Limit) error
}

// New makes an empty cache. now returns the time that has passed in this process. If off is true,
// the cache repeats nothing.
func New(server Server, now func() time.Duration, off bool) *Cache {
	return &Cache{server: server, now: now, off: off, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// Take repeats the refusal of an equal charge. If the cache has none, Take asks the server, and may
// keep the answer. The cache also keeps the limits of the charge, so the caller must not change
// them afterwards.
func (cache *Cache) Take(ctx context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	var q question
	switch {
	case !c.Writes() || cache.off:
	case !c.Mode.NeedsRoom() || c.More != nil || c.Ahead > 0 || c.Ban > 0:
		var result error // if these used err, every charge would allocate it
		for _, p := range c.Parts() {
			defer cache.change(p.User, p.Action)(&result)
		}
		defer func() { result = err }() // runs before the calls deferred above
	default:
		var repeated bool
		if q, repeated = cache.ask(&c, &d); repeated {
			return d, nil, nil
		}
	}
	readings, now, err := cache.server.Decide(ctx, c)
	if err != nil {
		return d, nil, err
	}
	if d, r = c.Answer(readings, now); r != nil {
		r.By = cache
	}
	if q.row != nil {
		cache.note(q, &c, &d, readings)
	}
	return d, r, nil
}

// Amend has the server amend a charge, which can end refusals.
func (cache *Cache) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	defer cache.change(r.User, r.Action)(&err)
	return cache.server.Amend(ctx, r, a)
}

// Reset has the server delete states, which can end refusals.
func (cache *Cache) Reset(ctx context.Context, user, action string, limits []core.Limit) (err error) {
	defer cache.change(user, action)(&err)
	return cache.server.Reset(ctx, user, action, limits)
}

// change notes that a call begins that can end the refusals of a user and an action. It returns a
// function that the caller defers, which notes the end of the call. An answer is not kept if its
// charge was sent before the end of the call. If the call fails, Redis may still run it later.
// Therefore answers of the next second are not kept either.
func (cache *Cache) change(user, action string) (end func(err *error)) {
	r, who := cache.row(user, action)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(who, true)
	r.changing++
	return func(err *error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changing--
		r.round++
		if *err != nil {
			r.distrust = cache.now() + repeat
		}
	}
}

// A question is a charge that the server is asked about.
type question struct {
	row   *row // if nil, the answer is not noted
	who   identity
	sent  time.Duration
	round uint64
}

// ask repeats the refusal of an equal charge. If it repeats none, ask returns the question that
// note needs.
func (cache *Cache) ask(c *core.Charge, d *core.Decision) (q question, repeated bool) {
	r, who := cache.row(c.User, c.Action)
	q = question{row: r, who: who, sent: cache.now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.find(who, c); k != nil {
		if q.sent < k.until && (k.renewing || q.sent < k.renew) {
			*d = k.repeat(c, q.sent)
			return q, true
		}
		k.renewing = true
	}
	q.round = r.enter(who, c)
	return q, false
}

// note notes the answer of the server. It may keep a refusal, and drops refusals that the answer
// has ended.
func (cache *Cache) note(q question, c *core.Charge, d *core.Decision, readings []machine.Reading) {
	r := q.row
	r.mu.Lock()
	defer r.mu.Unlock()
	round := r.enter(q.who, c)
	if ofUser := anyOf(c.Limits, (*core.Limit).IsPerUser); d.Allowed || ofUser && d.Reason == core.ReasonBanned {
		r.forget(q.who, ofUser) // other actions share the states of limits and bans of the user
	}
	if !d.Allowed && round == q.round && r.changing == 0 && q.sent >= r.distrust {
		k := &refusal{who: q.who, limits: c.Limits, cost: c.Cost, readings: readings, got: cache.now()}
		most := q.sent + repeat
		if d.Reason == core.ReasonInFlight || d.Reason == core.ReasonBanned && anyOf(c.Limits, (*core.Limit).TakesSlots) {
			most = k.got + slotsFull
		}
		k.renew = most - (most-q.sent)/4
		k.until = min(q.sent+Sure(lasts(c, d, readings)), most)
		if k.until > q.sent {
			r.keep(c, k)
		}
	}
}

// Sure returns the time by the clock of this process that certainly passes while d passes on the
// server, if the two clocks drift apart by less than a thousandth. The microsecond is for rounding.
func Sure(d time.Duration) time.Duration { return d - d/1000 - time.Microsecond }

// A row has a few refusals. It also knows whether an answer that is under way may still be kept.
type row struct {
	mu       sync.Mutex
	kept     [perRow]*refusal
	round    uint64        // an answer to a question of an earlier round may be out of date
	changing int           // how many calls are under way that can end a refusal
	distrust time.Duration // a call that can end a refusal has failed, and may take effect until then
	who      identity      // who asked last
	by       []core.Limit  // the limits of that question
}

// An identity stands for a user and an action, in 128 bits that clients cannot predict.
type identity struct{ user, action uint64 }

// A refusal is an answer of the server that is repeated.
type refusal struct {
	who      identity
	limits   []core.Limit
	cost     int64
	readings []machine.Reading
	got      time.Duration // when the answer arrived; repeat brings it and the readings to the present
	renew    time.Duration // from then on one caller asks the server again, while the others get the refusal
	until    time.Duration // the refusal is not repeated from then on
	renewing bool          // a caller is asking the server again
}

// row returns the row and the identity of a user and an action.
func (cache *Cache) row(user, action string) (*row, identity) {
	who := identity{maphash.String(cache.seeds[0], user), maphash.Comparable(cache.seeds[1], [2]string{user, action})}
	return &cache.rows[who.user%rows], who
}

// find returns the refusal of an equal charge, or nil.
func (r *row) find(who identity, c *core.Charge) *refusal {
	for _, k := range r.kept {
		if k != nil && k.who == who && k.cost == c.Cost && core.SameLimits(c.Limits, k.limits) {
			return k
		}
	}
	return nil
}

// keep keeps a refusal. It replaces the refusal of an equal charge, or uses an empty place, or
// replaces the refusal that ends first.
func (r *row) keep(c *core.Charge, k *refusal) {
	at := slices.Index(r.kept[:], r.find(k.who, c))
	if at < 0 {
		at = 0
		for i, o := range r.kept {
			if o.until < r.kept[at].until {
				at = i
			}
		}
	}
	r.kept[at] = k
}

// enter returns the row's round, which changes when another user, action or limiter asks. It also
// drops the refusals of this user and action by other limits, because the charge may change the
// states of those limits. For example, two limiters may share a window, with a different max.
func (r *row) enter(who identity, c *core.Charge) uint64 {
	if r.who == who && core.SameLimits(c.Limits, r.by) {
		return r.round
	}
	r.who, r.by = who, c.Limits
	r.round++
	for i, k := range r.kept {
		if k != nil && k.who == who && !core.SameLimits(c.Limits, k.limits) {
			r.kept[i] = nil
		}
	}
	return r.round
}

// forget drops refusals of a user: those of one action, or all of them.
func (r *row) forget(who identity, all bool) {
	for i, k := range r.kept {
		if k != nil && k.who.user == who.user && (all || k.who == who) {
			r.kept[i] = nil
		}
	}
}

// repeat returns the decision that Redis would make now. It brings the readings to the instant now.
// The time since the answer arrived is at most the time since Redis has decided, so RetryAfter is
// not too short. The caller holds the lock of the row.
func (k *refusal) repeat(c *core.Charge, now time.Duration) core.Decision {
	passed := max(0, now-k.got).Microseconds()
	k.got += time.Duration(passed) * time.Microsecond
	for i := range k.readings {
		r := &k.readings[i]
		r.Wait -= passed
		if r.Rest.Whole -= passed; r.Rest.Whole < 0 || r.Rest == (machine.Span{}) {
			*r = machine.Reading{Fits: true}
		}
	}
	d, _ := c.Answer(k.readings, 0)
	d.Source = core.SourceCache
	return d
}

// lasts returns how long an equal charge would get the same answer if nothing else were charged. d
// is a refusal. lasts returns 0 if that time is not known, for example because a limit may have
// recorded the refusal, or because Remaining may grow before RetryAfter.
func lasts(c *core.Charge, d *core.Decision, readings []machine.Reading) time.Duration {
	limits := c.Limits
	records := func(l *core.Limit) bool { return l.Rule().RecordsRefusals() }
	switch {
	case d.RetryAfter == core.Never || d.Reason == core.ReasonInFlight && !alone(c, readings):
		return 0
	case d.Reason == core.ReasonInFlight && c.Cost == 1:
		return d.RetryAfter
	case d.Reason != core.ReasonBanned:
		if c.Cost > 1 || anyOf(limits, records) {
			return 0
		}
		if lease := time.Duration(limits[0].Rule().Prepay) * time.Microsecond; lease > 0 { // then units that other processes hold come back
			return min(d.RetryAfter, lease)
		}
		return d.RetryAfter
	}
	// While a ban lasts, nothing is recorded and Remaining is 0. Which limit binds depends on the
	// limits before the ban policy.
	last := len(limits) - 1
	ban := time.Duration(readings[last].Wait) * time.Microsecond
	unbanned := core.Charge{User: c.User, Action: c.Action, Cost: c.Cost, Terms: &core.Terms{Limits: limits[:last], Ask: c.Ask}}
	own, _ := unbanned.Answer(readings[:last], 0)
	for i := range limits[:last] {
		if r := limits[i].Rule(); !r.TakesSlots() && !r.Predictable(&readings[i], own.Allowed && last > 1) {
			return 0
		}
	}
	if !own.Allowed {
		return min(ban, own.RetryAfter)
	}
	return ban
}

// anyOf reports whether is reports true for a limit. slices.ContainsFunc would copy each limit,
// which has 312 bytes.
func anyOf(limits []core.Limit, is func(*core.Limit) bool) bool {
	for i := range limits {
		if is(&limits[i]) {
			return true
		}
	}
	return false
}

// alone reports whether only InFlight has refused a charge, so that no limit has recorded the
// refusal.
func alone(c *core.Charge, readings []machine.Reading) bool {
	for i := range c.Limits {
		if !readings[i].Fits && !c.Limits[i].Rule().TakesSlots() {
			return false
		}
	}
	return true
}
