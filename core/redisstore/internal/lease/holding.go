package lease

// What the process holds for one user, action and list of limits, and what a caller does if it is too little.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/refusals"
)

const (
	portion  = 2 // a fetch is at most this part of what remains
	maxWaits = 3 // of a caller, for commands or the pay of one
	kept     = 2 // of the burst, for costs that may fit
)

// A holding is guarded by its shard.
type holding struct {
	charge  core.Charge // that takes units, but for its cost; no limit records its refusal
	bans    bool        // a ban policy counts refusals, so the server must see them all
	dropped bool        // nobody uses it any more

	grants []*grant     // the oldest first
	asking *pendingCall // not nil while a command is under way that others wait for
	failed bool         // the last command
	demand
	budget

	// What the last answer of the server said.
	last    core.Decision
	at      time.Time
	refused int64     // the cost that was refused
	until   time.Time // until when it is refused again
}

// A grant is units that were taken at once. Guarded by the shard are left and over.
type grant struct {
	table  *Table
	shard  *shard
	record *core.Record // of all
	left   int64
	over   bool      // it has ended, and what was left was given back or lost
	got    time.Time // when they arrived
	end    time.Time // by the monotonic clock
	wall   int64     // by the time of day: a machine that sleeps may stop the other clock
}

// A pendingCall is a command that is under way, and that other callers wait for.
type pendingCall struct {
	done chan struct{}
	err  error
}

// begin begins a command that other callers wait for.
func (h *holding) begin(now time.Time) *pendingCall {
	h.pay(now)
	h.since, h.used, h.waiting = now, 0, 0
	h.asking = &pendingCall{done: make(chan struct{})}
	return h.asking
}

// after is done after some time.
func after(d time.Duration) *pendingCall {
	pending := &pendingCall{done: make(chan struct{})}
	time.AfterFunc(d, func() { close(pending.done) })
	return pending
}

// A distance is how far away the server is.
type distance struct {
	trip time.Duration
	far  bool // too far for leases
}

func (g *grant) ended(now time.Time) bool {
	return g.over || !now.Before(g.end) || now.UnixNano() >= g.wall
}

// use takes a cost from the grants. It returns the last grant that it took units from, and how many
// units are left in all grants. If there are too few units, it returns nil. If the charge has a
// receipt, all units come from one grant.
func (h *holding) use(cost int64, receipt bool, now time.Time) (last *grant, left int64) {
	for _, g := range h.grants {
		if !g.ended(now) {
			left += g.left
		}
	}
	if left < cost {
		return nil, left
	}
	for need, i := cost, 0; need > 0; i++ {
		if i == len(h.grants) {
			return nil, left
		}
		if g := h.grants[i]; g.left > 0 && (!receipt || g.left >= cost) && !g.ended(now) {
			n := min(need, g.left)
			g.left -= n
			need -= n
			last = g
		}
	}
	h.used += cost
	return last, left - cost
}

// idle reports whether a holding knows nothing that matters.
func (h *holding) idle(now time.Time) bool {
	return len(h.grants) == 0 && h.asking == nil && now.Sub(h.since) > 4*h.lease && !now.Before(h.until) && !now.Before(h.paid)
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

// A step is what a caller does if there are too few units.
type step uint8

const (
	stepWait   step = iota // waits for the command that is under way
	stepPause              // waits until a command is paid for
	stepRefuse             // refuses
	stepFetch              // takes units
	stepAsk                // has the server decide, and others wait
	stepDecide             // has the server decide
)

// choose returns what a caller does if the process holds too few units, and, if the caller takes
// units, how many. waited is how often the caller has waited already, and left the time that it has
// left. choose changes nothing.
//
//   - If a command is being sent, the caller waits for its answer.
//   - If no command may be sent yet, the caller waits until one may, if the limit has room for as
//     many units as were used since the last command. If it has not, the limit is nearly used up,
//     and the process refuses without asking.
//   - If the cost is above what remains, the caller does not wait, and leaves some of the burst to
//     others. So a client that asks for too much takes no command from clients that ask for less.
func (h *holding) choose(cost int64, now time.Time, waited int, left time.Duration, server distance) (do step, units int64) {
	asking := h.asking != nil
	spare := left - 5*server.trip/2  // after it the caller can still ask
	direct := server.far || h.failed // then nobody waits for a command
	patient := waited < maxWaits && !direct
	share := int64(h.last.Remaining) / portion
	near := share <= h.lately(now)+h.waiting // the limit
	units = min(h.plan(cost, now), share)
	delay := h.delay(now, 0)
	switch {
	case cost > h.room(now) && !direct && !h.bans:
		if asking || h.delay(now, kept) > 0 {
			return stepRefuse, 0
		}
		return stepDecide, 0
	case asking && patient && spare > 0 && !(h.bans && waited > 0):
		return stepWait, 0
	case direct || h.bans && (delay > 0 || units <= cost || asking):
		return stepDecide, 0
	case delay > 0 && delay < spare && patient && !near:
		return stepPause, 0
	case delay > 0 || left < server.trip:
		return stepRefuse, 0
	case asking:
		return stepDecide, 0
	case units <= cost:
		return stepAsk, 0
	}
	return stepFetch, units
}

// room estimates how many units remain on the server: those of its last answer, and what has come
// back since if the quota comes back steadily.
func (h *holding) room(now time.Time) int64 {
	l := &h.charge.Limits[h.last.Binding]
	past := min(now.Sub(h.at), l.Period())
	return int64(h.last.Remaining) + int64(float64(l.Quota())*float64(past)/float64(l.Period()))
}

// refusal is the answer of a process that may send no command yet for that cost. RetryAfter is how long it may not. If the
// server's last answer has refused this cost or a lower one, it is at least what is left of that wait.
func (h *holding) refusal(cost int64, now time.Time) core.Decision {
	past, delay := now.Sub(h.at).Truncate(time.Microsecond), h.delay(now, 0)
	if cost > h.room(now) {
		delay = h.delay(now, kept)
	}
	d := core.Decision{
		Limit: h.last.Limit, Binding: h.last.Binding, Reason: core.ReasonLimited, Source: core.SourceLease,
		RetryAfter: max(time.Microsecond, (delay + time.Microsecond - 1).Truncate(time.Microsecond)),
	}
	if cost >= h.refused && now.Before(h.until) {
		d.RetryAfter = max(d.RetryAfter, h.last.RetryAfter-past)
	}
	d.ResetAfter = max(d.RetryAfter, h.last.ResetAfter-past)
	return d
}

// learn notes an answer of the server to a charge of that cost.
func (h *holding) learn(d *core.Decision, cost int64, sent, now time.Time) {
	h.last, h.at, h.failed = *d, now, false
	h.refused, h.until = 0, time.Time{}
	if !d.Allowed {
		h.refused, h.until = cost, sent.Add(min(refusals.Sure(d.RetryAfter), time.Hour))
	}
}

// answer returns the decision of a charge whose units came from the grant g. Since the server's
// answer Remaining has fallen by the units that the process has used, and may have grown with time.
// left is the number of units that the process still holds.
func (g *grant) answer(c *core.Charge, left int64, now time.Time) (d core.Decision, r *core.Record) {
	if d, r = c.Answer(g.record.Readings, g.record.At); r != nil {
		r.By = g
	}
	d.Source = core.SourceLease
	d.Remaining = int(min(int64(d.Remaining)+left, int64(d.Limit)))
	d.ResetAfter = max(0, d.ResetAfter-now.Sub(g.got).Truncate(time.Microsecond))
	return d, r
}

// Amend refunds units that an action has used: to the grant if that has not ended, or else to the server.
func (g *grant) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
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
func (g *grant) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return g.table.server.Take(ctx, c)
}

var _ core.Amender = (*grant)(nil)
