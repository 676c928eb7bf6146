package lease

// This file says what the process holds for one user, action and list of limits, and what a caller
// does if the process holds too few units.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/refusals"
)

const (
	portion  = 2 // a fetch takes at most a half of the units that remain
	maxWaits = 3 // how often a caller waits at most
	kept     = 2 // how many commands of the burst are left for costs that may fit
)

// A holding has the units for one user, action and list of limits. The lock of its shard guards it.
type holding struct {
	charge  core.Charge // takes units, after its cost is set; no limit records its refusal
	bans    bool        // a ban policy counts refusals, so the server must decide each of them
	dropped bool        // the shard does not have the holding any more

	grants []*grant     // oldest first
	asking *pendingCall // the command that callers wait for, or nil
	failed bool         // the last command has failed
	demand
	budget

	last    core.Decision // the last answer of the server
	at      time.Time     // when it arrived
	refused int64         // the cost that it has refused, or 0
	until   time.Time     // the server refuses that cost until then
}

// A grant has the units that one command has taken. The lock of its shard guards left and over.
type grant struct {
	table  *Table
	shard  *shard
	record *core.Record // the charge of all units
	left   int64        // units
	over   bool         // the lease has ended, or the units were dropped
	got    time.Time    // when the units arrived
	end    time.Time    // when the lease ends, by the monotonic clock
	wall   int64        // when it ends by the time of day: a machine that sleeps may stop the monotonic clock
}

// A pendingCall is something that callers wait for: usually a command that is under way.
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

// after returns a pendingCall that is done after some time.
func after(d time.Duration) *pendingCall {
	pending := &pendingCall{done: make(chan struct{})}
	time.AfterFunc(d, func() { close(pending.done) })
	return pending
}

// A distance says how far away the server is.
type distance struct {
	trip time.Duration // how long the last answer took
	far  bool          // the server is too far away for leases
}

func (g *grant) ended(now time.Time) bool {
	return g.over || !now.Before(g.end) || now.UnixNano() >= g.wall
}

// use takes a cost from the grants. It returns the last grant that it took units from, and how many
// units are left in all grants. If there are too few units, last is nil, and use takes nothing. If
// the charge has a receipt, one grant must have all the units.
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

// idle reports whether a holding can be dropped: it has no units, and nothing that a later decision
// needs.
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

// A step says what a caller does if the process holds too few units.
type step uint8

const (
	stepWait   step = iota // wait for the command that is under way
	stepPause              // wait until the budget allows a command
	stepRefuse             // refuse
	stepFetch              // take units from the server
	stepAsk                // have the server decide, while other callers wait for the answer
	stepDecide             // have the server decide
)

// choose returns what a caller does if the process holds too few units, and how many units the
// caller takes, if it takes units. waited is how often the caller has waited already. left is how
// much time the caller has left. choose changes nothing. These are its main rules:
//
//   - If a command is under way, the caller usually waits for its answer.
//   - If the budget allows no command yet, the caller waits until it does. But if the limit is
//     nearly used up, the process refuses. The limit is nearly used up if the units that callers
//     wait for, and those used since the last command, are together at least half of what remains.
//   - If the cost is above what remains, the caller does not wait, and sends a command only if two
//     more are left in the burst. So a client that asks for too much takes no command from clients
//     that ask for less.
func (h *holding) choose(cost int64, now time.Time, waited int, left time.Duration, server distance) (do step, units int64) {
	asking := h.asking != nil
	spare := left - 5*server.trip/2  // after a wait of this length the caller can still ask the server
	direct := server.far || h.failed // if so, no caller waits for a command of another caller
	patient := waited < maxWaits && !direct
	share := int64(h.last.Remaining) / portion
	near := share <= h.lately(now)+h.waiting // the limit is nearly used up
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

// room estimates how many units remain on the server: the units that remained at the server's last
// answer, and those that would have come back since then if the quota came back steadily.
func (h *holding) room(now time.Time) int64 {
	l := &h.charge.Limits[h.last.Binding]
	past := min(now.Sub(h.at), l.Period())
	return int64(h.last.Remaining) + int64(float64(l.Quota())*float64(past)/float64(l.Period()))
}

// refusal returns the decision of a process that may not send a command for a cost yet. RetryAfter
// is the time until the process may send a command. If the last answer of the server has refused
// this cost or a lower one, RetryAfter is at least what is left of the RetryAfter of that answer.
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

// learn notes an answer of the server to a charge of that cost. sent and now are when the charge
// was sent and answered.
func (h *holding) learn(d *core.Decision, cost int64, sent, now time.Time) {
	h.last, h.at, h.failed = *d, now, false
	h.refused, h.until = 0, time.Time{}
	if !d.Allowed {
		h.refused, h.until = cost, sent.Add(min(refusals.Sure(d.RetryAfter), time.Hour))
	}
}

// answer returns the decision of a charge whose units came from the grant g. left is how many units
// the process still holds. Remaining is what remained on the server after it had charged the units
// of g, plus left, but at most the quota.
func (g *grant) answer(c *core.Charge, left int64, now time.Time) (d core.Decision, r *core.Record) {
	if d, r = c.Answer(g.record.Readings, g.record.At); r != nil {
		r.By = g
	}
	d.Source = core.SourceLease
	d.Remaining = int(min(int64(d.Remaining)+left, int64(d.Limit)))
	d.ResetAfter = max(0, d.ResetAfter-now.Sub(g.got).Truncate(time.Microsecond))
	return d, r
}

// Amend refunds units that an action has used. If the lease of the grant has not ended, the units
// go back to the grant. Otherwise the server amends the charge of the grant.
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

// Take sends a charge to the server. If an action has cost more than its estimate,
// core.Limiter.Settle calls Take to charge the difference.
func (g *grant) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return g.table.server.Take(ctx, c)
}

// Reset completes core.Amender.
func (g *grant) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return g.table.server.Reset(ctx, user, action, limits)
}

var _ core.Amender = (*grant)(nil)
