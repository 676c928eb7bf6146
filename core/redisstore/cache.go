package redisstore

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A refusal that Redis has given is repeated from here for as long as it is certain
// that Redis would refuse too, and no longer than a second: so long may what other
// processes do go unnoticed.
const (
	repeat = time.Second

	// So long after it was asked for one caller asks again, and does not hold up the others.
	renew = 3 * repeat / 4

	rows   = 4096
	perRow = 4
)

// refusals are those refusals. Every user and action has its row, by a keyed hash, so
// whoever has many of them only pushes out a few of others.
type refusals struct {
	now   func() time.Duration // as it passes here
	seeds [2]maphash.Seed
	rows  [rows]row
}

// A row is a few refusals, and what tells whether an answer that is under way may
// still become one of them.
type row struct {
	mu       sync.Mutex
	kept     [perRow]*refusal
	round    uint64        // what was asked before its last change may be out of date
	changing int           // calls under way that can end a refusal
	blind    time.Duration // until when one that failed may still do so
	who      identity      // the last to ask
	limits   *core.Limit   // and by which limits
}

// identity is a user and action, in 128 bits that nobody can foresee.
type identity [2]uint64

// A refusal is what Redis said, and when it was asked and had answered.
type refusal struct {
	who       identity
	limits    []core.Limit
	cost      int64
	readings  []machine.Reading
	sent, got time.Duration
	until     time.Duration
	renewing  bool
}

// A question is a charge that Redis is to decide.
type question struct {
	row   *row
	who   identity
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
	var who identity
	for i, seed := range n.seeds {
		who[i] = maphash.Comparable(seed, [2]string{user, action})
	}
	return &n.rows[who[0]%rows], who
}

// recall repeats a refusal of the same charge, or notes that it is asked for.
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
	r.ask(who, c)
	q.round = r.round
	r.mu.Unlock()
	return d, false, q
}

// learn takes note of Redis's answer.
func (n *refusals) learn(c *core.Charge, q question, d *core.Decision, readings []machine.Reading) {
	r := q.row
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ask(q.who, c)
	if d.Allowed {
		r.forget(q.who)
		return
	}
	hold := holds(c, d, readings)
	// A thousandth is more than two clocks drift apart while they are kept right, and
	// the microsecond is the one that is under way.
	if hold -= hold/1000 + time.Microsecond; hold <= 0 || r.round != q.round || r.changing > 0 || q.sent < r.blind {
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

// change makes a change that can end a refusal. Nothing is repeated that was asked for
// before it was done, and nothing that is asked for soon after it has failed: it may
// be done later.
func (n *refusals) change(user, action string, do func() error) error {
	r, who := n.row(user, action)
	r.mu.Lock()
	r.forget(who)
	r.changing++
	r.mu.Unlock()
	err := do()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changing--
	r.round++
	if err != nil {
		r.blind = n.now() + repeat
	}
	return err
}

// ask drops refusals by other limits, whose state these may move: a larger window's
// action can lengthen the wait for a smaller one.
func (r *row) ask(who identity, c *core.Charge) {
	if r.who == who && r.limits == &c.Limits[0] {
		return
	}
	r.who, r.limits = who, &c.Limits[0]
	r.round++
	for i, k := range r.kept {
		if k != nil && k.who == who && !slices.Equal(k.limits, c.Limits) {
			r.kept[i] = nil
		}
	}
}

func (r *row) forget(who identity) {
	for i, k := range r.kept {
		if k != nil && k.who == who {
			r.kept[i] = nil
		}
	}
}

func (k *refusal) is(who identity, c *core.Charge) bool {
	return k != nil && k.who == who && k.cost == c.Cost &&
		(&k.limits[0] == &c.Limits[0] && len(k.limits) == len(c.Limits) || slices.Equal(k.limits, c.Limits))
}

func (k *refusal) ends() time.Duration {
	if k == nil {
		return 0
	}
	return k.until
}

// repeat is what Redis would say at the instant now. The time that has passed there
// since is at least what has passed here since its answer, and nobody is told to come
// back too early.
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

// holds is how long it is known what an equal charge would be told, if nothing else
// happens: not at all, if refusing it would be recorded, or if there is something left,
// of which a window does not say how it grows.
func holds(c *core.Charge, d *core.Decision, readings []machine.Reading) time.Duration {
	last := len(c.Limits) - 1
	switch {
	case d.RetryAfter == core.Never:
		return 0
	case c.Limits[last].Rule().Kind != machine.KindBan:
		for i := range c.Limits {
			if k := c.Limits[i].Rule().Kind; k == machine.KindElasticWindow || k == machine.KindSlidingRefused {
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
	// While a ban lasts nothing is recorded and nothing is left. Which limit binds is a
	// matter of the limits.
	limits := *c
	limits.Limits, limits.Receipt = c.Limits[:last], false
	ban := time.Duration(readings[last].Wait) * time.Microsecond
	if own := limits.Answer(readings[:last], 0); !own.Allowed {
		return min(ban, own.RetryAfter)
	}
	for i := range limits.Limits {
		l := &limits.Limits[i]
		switch l.Rule().Kind {
		case machine.KindSlidingWindow, machine.KindSlidingRefused, machine.KindMovingWindow:
			if last > 1 && readings[i].Count > 0 { // does not say when it will be less
				return 0
			}
		case machine.KindTokenBucket:
			if l.Rule().ForgetAfter > 0 { // does not fill before it is used
				return 0
			}
		}
	}
	return ban
}
