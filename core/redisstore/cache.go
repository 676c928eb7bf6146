package redisstore

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A refusal of Redis is repeated from this cache while it is certain that Redis would refuse
// too, but for at most a second. So a change by another process may be noticed a second late.
const (
	repeat = time.Second

	// After this time one caller asks Redis again, while the others still use the cache.
	renew = 3 * repeat / 4

	rows   = 4096
	perRow = 4
)

// refusals is the cache. A keyed hash gives every user a row, so a user with many refusals
// only evicts those of a few others.
type refusals struct {
	now   func() time.Duration // as it passes here
	seeds [2]maphash.Seed
	rows  [rows]row
}

// A row has a few refusals. It also knows whether an answer that is under way may still be
// cached.
type row struct {
	mu       sync.Mutex
	kept     [perRow]*refusal
	round    uint64        // an answer to a question of an earlier round may be out of date
	changing int           // calls under way that can end a refusal
	distrust time.Duration // until when such a call that failed may still take effect
	who      identity      // who asked last
	by       mark          // by which limits
}

// identity is a user and an action, in 128 bits that clients cannot predict.
type identity struct{ user, action uint64 }

// A mark tells limits apart without a copy of them. The first one's address alone does not tell
// them apart: the caller may have put other limits there.
type mark struct {
	first *core.Limit
	sum   uint64
}

func markOf(limits []core.Limit) mark {
	m := mark{first: &limits[0]}
	for i := range limits {
		r := limits[i].Rule()
		m.sum = m.sum*31 + r.Hash + uint64(r.Max)
	}
	return m
}

// A refusal is an answer of Redis, and when it was asked for and received.
type refusal struct {
	who       identity
	limits    []core.Limit
	cost      int64
	readings  []machine.Reading
	sent, got time.Duration
	until     time.Duration
	renewing  bool
}

// A question is a charge that is sent to Redis.
type question struct {
	row   *row
	who   identity
	by    mark
	sent  time.Duration
	round uint64
}

func newRefusals() *refusals {
	base := time.Now()
	return &refusals{
		now:   func() time.Duration { return time.Since(base) },
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
}

func (n *refusals) row(user, action string) (*row, identity) {
	who := identity{maphash.String(n.seeds[0], user), maphash.Comparable(n.seeds[1], [2]string{user, action})}
	return &n.rows[who.user%rows], who
}

// recall repeats a refusal of the same charge. If there is none it begins a question.
func (n *refusals) recall(c *core.Charge) (d core.Decision, known bool, q question) {
	r, who := n.row(c.User, c.Action)
	q = question{row: r, who: who, sent: n.now()}
	r.mu.Lock()
	for _, k := range r.kept {
		if !k.is(who, c) {
			continue
		}
		if q.sent < k.until && (k.renewing || q.sent < k.sent+renew) {
			r.mu.Unlock()
			return k.repeat(c, q.sent), true, q
		}
		k.renewing = true
	}
	q.by = markOf(c.Limits)
	r.ask(&q, c)
	q.round = r.round
	r.mu.Unlock()
	return d, false, q
}

// learn caches Redis's answer if it is a refusal that will last. It keeps the charge's limits.
func (n *refusals) learn(c *core.Charge, q question, d *core.Decision, readings []machine.Reading) {
	r := q.row
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ask(&q, c)
	if d.Allowed {
		r.forget(q.who, perUser(c.Limits))
		return
	}
	hold := holds(c, d, readings)
	// Two synchronized clocks drift apart by less than a thousandth. The microsecond is for
	// rounding.
	if hold -= hold/1000 + time.Microsecond; hold <= 0 || r.round != q.round || r.changing > 0 || q.sent < r.distrust {
		return
	}
	at := 0
	for i, k := range r.kept {
		if k.is(q.who, c) {
			at = i
			break
		}
		if k.ends() < r.kept[at].ends() {
			at = i
		}
	}
	r.kept[at] = &refusal{
		who: q.who, limits: c.Limits, cost: c.Cost, readings: slices.Clone(readings),
		sent: q.sent, got: n.now(), until: q.sent + min(hold, repeat),
	}
}

// change makes a change that can end a refusal. Answers to questions from before its end are
// not cached. If the change fails, Redis may still make it later, so answers of the next second
// are not cached either.
func (n *refusals) change(user, action string, do func() error) error {
	r, who := n.row(user, action)
	r.mu.Lock()
	r.forget(who, true)
	r.changing++
	r.mu.Unlock()
	err := do()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changing--
	r.round++
	if err != nil {
		r.distrust = n.now() + repeat
	}
	return err
}

// ask drops the user's refusals by other limits, since this charge may change their state: an
// action in a larger window can lengthen the wait for a smaller one.
func (r *row) ask(q *question, c *core.Charge) {
	if r.who == q.who && r.by == q.by {
		return
	}
	r.who, r.by = q.who, q.by
	r.round++
	for i, k := range r.kept {
		if k != nil && k.who == q.who && !slices.Equal(k.limits, c.Limits) {
			r.kept[i] = nil
		}
	}
}

// forget drops a user's refusals: of one action, or of all.
func (r *row) forget(who identity, all bool) {
	for i, k := range r.kept {
		if k != nil && k.who.user == who.user && (all || k.who == who) {
			r.kept[i] = nil
		}
	}
}

// perUser reports whether a charge by these limits moves states that other actions of the
// user share.
func perUser(limits []core.Limit) bool {
	return slices.ContainsFunc(limits, func(l core.Limit) bool { return l.IsPerUser() })
}

func (k *refusal) is(who identity, c *core.Charge) bool {
	return k != nil && k.who == who && k.cost == c.Cost && slices.Equal(k.limits, c.Limits)
}

func (k *refusal) ends() time.Duration {
	if k == nil {
		return 0
	}
	return k.until
}

// repeat returns the answer that Redis would give at the instant now. Since it decided, at
// least as much time has passed as since the answer arrived, so RetryAfter is not too short.
func (k *refusal) repeat(c *core.Charge, now time.Duration) core.Decision {
	passed := max(0, now-k.got).Microseconds()
	var few [4]machine.Reading
	readings := append(few[:0], k.readings...)
	for i := range readings {
		r := &readings[i]
		r.Wait -= passed
		if r.Rest.Whole -= passed; r.Rest.Whole < 0 || r.Rest == (machine.Span{}) {
			*r = machine.Reading{Fits: true}
		}
	}
	d := c.Answer(readings, 0)
	d.Source = core.SourceCache
	return d
}

// holds is how long an equal charge gets the same answer, if nothing else is charged. It is 0
// if the refusal is recorded, or if Remaining may grow at an instant that the readings do not
// tell.
func holds(c *core.Charge, d *core.Decision, readings []machine.Reading) time.Duration {
	last := len(c.Limits) - 1
	switch {
	case d.RetryAfter == core.Never:
		return 0
	case c.Limits[last].Rule().Kind != machine.KindBan:
		for i := range c.Limits {
			if c.Limits[i].Rule().Kind.RecordsRefusals() {
				return 0
			}
		}
		if c.Cost > 1 {
			return 0
		}
		return d.RetryAfter
	case d.Reason != core.ReasonBanned:
		return 0
	}
	// While a ban lasts, nothing is recorded and Remaining is 0. The other limits say which
	// of them binds.
	limits := *c
	limits.Limits, limits.Receipt = c.Limits[:last], false
	ban := time.Duration(readings[last].Wait) * time.Microsecond
	own := limits.Answer(readings[:last], 0)
	for i := range limits.Limits {
		switch r := limits.Limits[i].Rule(); r.Kind {
		case machine.KindSlidingWindow, machine.KindSlidingRefused, machine.KindMovingWindow:
			if own.Allowed && last > 1 && readings[i].Count > 0 { // its count will fall at an unknown instant
				return 0
			}
		case machine.KindTokenBucket:
			if r.ForgetAfter > 0 && (own.Allowed || readings[i].Rest == r.Start) { // it may not fill before its first action
				return 0
			}
		}
	}
	if !own.Allowed {
		return min(ban, own.RetryAfter)
	}
	return ban
}
