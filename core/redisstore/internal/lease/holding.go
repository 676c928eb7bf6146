package lease

// What the process holds for one user, action and list of limits, and how much it takes.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	maxUnits = 1 << 16 // of a take: it bounds how long the server is busy
	portion  = 4       // a take is at most this part of what remains
	farFor   = 4       // leases: so long no take begins after one that took longer than a lease

	// Near the limit what remains is taken in small portions, or one by one. A process may then ask
	// so many times at once, and after that every askEvery, or with a shorter lease than 50 ms nearly
	// twice in each. So with 50 ms it sends fewer commands near the limit than far from it.
	// Between that it refuses by itself.
	maxAsks  = 32
	askEvery = 27 * time.Millisecond
)

// A holding is guarded by its shard.
type holding struct {
	user, action string
	limits       []core.Limit
	lease        time.Duration
	bans         bool // a ban policy counts refusals, so the server must see them all
	dropped      bool // nobody uses it any more

	grants []*grant // the oldest first
	taking *flight  // not nil while a take is under way

	// How much is used: in the epoch that began then, which lasts as long as a lease, and in the ones
	// before, of which each counts half of the next.
	epoch        time.Time
	used, before int64
	emptied      bool      // the last grant was used up before its end
	far          time.Time // until when the server is too far away for a take

	// What the last answer of the server said.
	known   bool
	last    core.Decision
	at      time.Time
	refused int64     // the cost that was refused
	until   time.Time // until when it is refused again
	asks    time.Time // when all asks will have been spent, see pay
}

// A grant is units that were taken at once. Guarded by the shard are left and over.
type grant struct {
	table   *Table
	shard   *shard
	receipt *core.Receipt // of all
	left    int64
	over    bool      // it has ended, and what was left was given back or lost
	got     time.Time // when they arrived
	end     time.Time // by the monotonic clock
	wall    int64     // by the time of day: a machine that sleeps may stop the other clock
}

// A flight is a take that is under way, and the callers who wait for it.
type flight struct {
	done             chan struct{}
	planned, claimed int64 // units
	err              error
}

func (g *grant) ended(now time.Time) bool {
	return g.over || !now.Before(g.end) || now.UnixNano() >= g.wall
}

// use takes a cost from a grant that has it, or returns nil.
func (h *holding) use(cost int64, now time.Time) *grant {
	for _, g := range h.grants {
		if g.left >= cost && !g.ended(now) {
			g.left -= cost
			h.emptied = g.left == 0
			h.count(cost, now)
			return g
		}
	}
	return nil
}

// left is how many units the process holds.
func (h *holding) left(now time.Time) (n int64) {
	for _, g := range h.grants {
		if !g.ended(now) {
			n += g.left
		}
	}
	return n
}

// count notes that units were used.
func (h *holding) count(units int64, now time.Time) {
	h.turn(now)
	h.used += units
}

// turn begins a new epoch if the last one is over.
func (h *holding) turn(now time.Time) {
	past := now.Sub(h.epoch)
	if past < h.lease {
		return
	}
	h.before = max(h.used, h.before/2)
	h.before >>= min(62, int64(past/h.lease)-1)
	h.used, h.epoch = 0, now
}

// idle reports whether a holding knows nothing that matters.
func (h *holding) idle(now time.Time) bool {
	return len(h.grants) == 0 && h.taking == nil && now.Sub(h.epoch) > 4*h.lease && !now.Before(h.until) && !now.Before(h.asks)
}

// drop discards the grants, and returns how many units they had.
func (h *holding) drop() (units uint64) {
	for _, g := range h.grants {
		units += uint64(g.left)
		g.left, g.over = 0, true
	}
	h.grants = nil
	return units
}

// A step is what a caller does who finds too few units.
type step uint8

const (
	decide step = iota // has the server decide
	take               // takes units
	wait               // waits for a take that is under way
	refuse             // refuses
)

// choose chooses the step of a caller, and how many units to take. It takes as much as was used
// lately and a quarter more, or twice as much if the last grant was used up.
func (h *holding) choose(cost int64, now time.Time, waited bool) (do step, units int64) {
	if f := h.taking; f != nil && !waited && f.planned-f.claimed >= cost {
		return wait, 0
	}
	h.turn(now)
	want := max(h.used, h.before)
	if h.emptied {
		want *= 2
	} else {
		want += (want + 3) / 4
	}
	want = min(max(want, cost), maxUnits)
	share := int64(h.last.Remaining) / portion
	near := h.known && (!h.last.Allowed || share < want)
	cached := cost == 1 && h.holds(cost, now) // the server's cache of refusals answers
	if near && !h.bans && !cached && !h.pay(now) {
		return refuse, 0
	}
	units = min(want, share)
	if waited || h.taking != nil || units <= cost || now.Before(h.far) {
		return decide, 0
	}
	return take, units
}

// holds reports whether the last answer of the server refuses a cost still.
func (h *holding) holds(cost int64, now time.Time) bool {
	return cost >= h.refused && now.Before(h.until)
}

// pay spends one of the asks, if there is one.
func (h *holding) pay(now time.Time) bool {
	if h.broke(now) > 0 {
		return false
	}
	h.spend(now)
	return true
}

// broke returns how long there is no ask.
func (h *holding) broke(now time.Time) time.Duration {
	if h.asks.Before(now) {
		return 0
	}
	return h.asks.Sub(now) - (maxAsks-1)*h.askEvery()
}

func (h *holding) spend(now time.Time) {
	if h.asks.Before(now) {
		h.asks = now
	}
	h.asks = h.asks.Add(h.askEvery())
}

func (h *holding) askEvery() time.Duration { return min(askEvery, h.lease*27/50) }

// refusal is the answer of a process that has spent its asks. The action passes, if there is room,
// when there is the next one.
func (h *holding) refusal(cost int64, now time.Time) core.Decision {
	wait := (h.broke(now) + time.Microsecond - 1).Truncate(time.Microsecond)
	if h.holds(cost, now) {
		wait = max(wait, h.last.RetryAfter-now.Sub(h.at).Truncate(time.Microsecond))
	}
	return core.Decision{
		Limit: h.last.Limit, Binding: h.last.Binding, Reason: core.ReasonLimited, Source: core.SourceLease,
		RetryAfter: wait, ResetAfter: max(wait, h.last.ResetAfter-now.Sub(h.at)),
	}
}

// learn notes an answer of the server to a charge of that cost. A refusal surely holds for less than
// RetryAfter since it was asked for, as the cache of refusals has it.
func (h *holding) learn(d *core.Decision, cost int64, sent, now time.Time) {
	h.known, h.last, h.at = true, *d, now
	h.refused, h.until = 0, time.Time{}
	if !d.Allowed {
		h.refused, h.until = cost, sent.Add(min(d.RetryAfter-d.RetryAfter/1000, time.Hour)-time.Millisecond)
	}
}

// answer is the decision of a charge that a grant has passed. Since the server's answer Remaining has
// fallen by what the process has used, and may have grown; left is what the process still holds.
func (g *grant) answer(c *core.Charge, left int64, now time.Time) core.Decision {
	d := c.Answer(g.receipt.Readings, g.receipt.At)
	d.Source = core.SourceLease
	d.Remaining = int(min(int64(d.Remaining)+left, int64(d.Limit)))
	d.ResetAfter = max(0, d.ResetAfter-now.Sub(g.got).Truncate(time.Microsecond))
	d.Issue(g)
	return d
}

// Amend refunds units that an action has used: to the grant while it lasts, and then to the server.
func (g *grant) Amend(ctx context.Context, r *core.Receipt, a machine.Amendment) (done bool, err error) {
	g.shard.mu.Lock()
	if a.Verb == machine.VerbRefund && !g.ended(time.Now()) {
		g.left += a.Units
		g.shard.mu.Unlock()
		return true, nil
	}
	g.shard.mu.Unlock()
	return g.table.server.Amend(ctx, r, a)
}

// Take charges what an action has cost above its estimate: see core.Limiter.Settle.
func (g *grant) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	return g.table.server.Decide(ctx, c)
}

var _ core.Amender = (*grant)(nil)
