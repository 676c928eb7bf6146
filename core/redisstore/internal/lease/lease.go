// Package lease decides in the process, by units of a limit that the process has taken from the
// server in advance: see core.Limit.Leased. The leases of InFlight's slots are something else.
//
// The lease of units begins before their charge is sent, and lasts as long as the limit says, by
// the clock of this process. So when that time has passed since the server charged the units, the
// lease has ended already. At its end the process tries to give back the units that are left.
//
// The server decides the first action of a user. If several actions come within the time of a
// lease, one caller takes units for all of them. For a user, an action and a list of limits, one
// such command is under way at a time. A budget bounds how often such commands are sent, so that
// they are few at any load.
package lease

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/refusals"
)

const (
	shards       = 64
	sweepEvery   = 10 * time.Millisecond // how often a full shard looks for idle holdings
	maxReturning = 16                    // how many commands that give units back may be under way
)

// A Table is a store that decides by the units that it holds of a server's limits. Many goroutines
// may use it at once.
type Table struct {
	server    core.Amender  // units are taken from it
	timeout   time.Duration // how long a caller waits
	late      error         // the error of a caller that has waited for so long
	room      int           // how many holdings a shard may have
	seed      maphash.Seed
	shards    [shards]shard
	returning chan struct{}

	trip                  atomic.Int64  // how long the last answer took, in nanoseconds
	taken, returned, lost atomic.Uint64 // units
}

// Room is how many holdings a store may keep. A holding has the units that the process has taken
// for one user and action.
const Room = 16_384

// New makes an empty table. room is how many holdings it may keep. If there is no room for another
// holding, the server decides. If a caller has waited for units for the duration timeout, it gets
// the argument late as its error. If its own context has ended, it gets the error of that context.
func New(server core.Amender, timeout time.Duration, late error, room int) *Table {
	return &Table{
		server: server, timeout: timeout, late: late, room: room / shards,
		seed: maphash.MakeSeed(), returning: make(chan struct{}, maxReturning),
	}
}

// Counts returns how many units the table has taken in advance, how many of them it has given back,
// and how many it has lost: it could not give them back, or a ban or a Reset has discarded them.
func (t *Table) Counts() (taken, returned, lost uint64) {
	return t.taken.Load(), t.returned.Load(), t.lost.Load()
}

// Take decides a charge by units that the process holds, or has the server decide.
func (t *Table) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if held := Of(&c); held > 0 {
		return t.take(ctx, &c, held)
	}
	if c.Ban > 0 { // a banned user may not pass by units that the process holds
		t.drop(c.User, c.Action, c.Limits)
		defer t.drop(c.User, c.Action, c.Limits)
	}
	return t.server.Take(ctx, c)
}

// Reset has the server delete the states of limits, and discards the units that the process holds
// for the user and the action. If one of the limits counts all actions of the user together, Reset
// discards the units for all of these actions.
func (t *Table) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	t.drop(user, action, limits)
	defer t.drop(user, action, limits)
	return t.server.Reset(ctx, user, action, limits)
}

// Of returns how long a process may hold units for a charge. It returns 0 if the server must decide
// the charge, which is so in these cases:
//
//   - A limit is not leased.
//   - The cost is above the quota of a limit.
//   - The charge is a Peek, a forced charge or a manual ban.
//   - The charge reserves a turn.
//   - The charge has several subjects.
func Of(c *core.Charge) time.Duration {
	if !c.Mode.NeedsRoom() || c.Ahead > 0 || c.Ban > 0 || c.More != nil {
		return 0
	}
	least := int64(0)
	for i := range c.Limits {
		switch r := c.Limits[i].Rule(); {
		case r.Ban != nil:
		case r.Prepay == 0 || c.Cost > r.Max:
			return 0
		case least == 0 || r.Prepay < least:
			least = r.Prepay
		}
	}
	return time.Duration(least) * time.Microsecond
}

// A shard has the holdings of some users.
type shard struct {
	mu    sync.Mutex // guards the shard and its holdings
	held  map[key]*holding
	swept time.Time
}

type key struct {
	user, action string
	limits       *core.Limit // the first of the limits
}

func (t *Table) shard(user string) *shard {
	return &t.shards[maphash.String(t.seed, user)%shards]
}

// take decides a charge. lease is how long its units may be held: see [Of].
func (t *Table) take(ctx context.Context, c *core.Charge, lease time.Duration) (core.Decision, *core.Record, error) {
	s := t.shard(c.User)
	var begun time.Time
	callCtx := ctx // once the caller has waited, the context ends at the timeout too
	for waited := 0; ; waited++ {
		s.mu.Lock()
		now := time.Now() // read after locking, because a lease may end while the caller waits for the lock
		h := s.holding(c, lease, now, t.room)
		if h == nil {
			s.mu.Unlock()
			return t.server.Take(ctx, *c)
		}
		if g, left := h.use(c.Cost, c.Receipt, now); g != nil {
			s.mu.Unlock()
			d, r := g.answer(c, left, now)
			return d, r, nil
		}
		begun = cmp.Or(begun, now)
		do, units := h.choose(c.Cost, now, waited, t.timeout-now.Sub(begun), t.distance(lease))
		if do != stepWait {
			h.age(now)
		}
		pending := h.asking
		switch do {
		case stepRefuse:
			d := h.refusal(c.Cost, now)
			s.mu.Unlock()
			return d, nil, nil
		case stepDecide:
			h.pay(now)
			s.mu.Unlock()
			return t.decide(ctx, callCtx, c, s, h, nil)
		case stepAsk:
			pending = h.begin(now)
			s.mu.Unlock()
			return t.decide(ctx, callCtx, c, s, h, pending)
		case stepFetch:
			pending = h.begin(now)
			h.want = units
			go t.fetch(s, h, pending, units, now)
		case stepPause:
			pending = after(h.delay(now, 0))
		}
		h.waiting += c.Cost
		s.mu.Unlock()
		if waited == 0 {
			var cancel context.CancelFunc
			callCtx, cancel = context.WithTimeout(ctx, t.timeout)
			defer cancel()
		}
		select {
		case <-pending.done:
		case <-callCtx.Done():
			return core.Decision{}, nil, t.ended(ctx)
		}
		if pending.err != nil {
			return core.Decision{}, nil, pending.err
		}
	}
}

// ended returns the error of a caller who has waited too long: the error of its own context, or
// otherwise the error in the field late.
func (t *Table) ended(ctx context.Context) error { return cmp.Or(ctx.Err(), t.late) }

// distance returns how long the last answer of the server took, and whether the server is too far
// away for leases. It is too far away if that answer took as long as a lease, or a third of the
// timeout: a caller could not wait for one answer and then for another.
func (t *Table) distance(lease time.Duration) distance {
	trip := time.Duration(t.trip.Load())
	return distance{trip, trip >= min(refusals.Sure(lease), t.timeout/3)}
}

// decide has the server decide, and notes the answer. callCtx is the context of the call, and ctx
// that of the caller. If pending is not nil, other callers wait for it.
func (t *Table) decide(ctx, callCtx context.Context, c *core.Charge, s *shard, h *holding, pending *pendingCall) (core.Decision, *core.Record, error) {
	sent := time.Now()
	d, r, err := t.server.Take(callCtx, *c)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	hurried := err != nil && callCtx.Err() != nil // the caller had too little time
	h.failed = h.failed || err != nil && !hurried
	if pending != nil {
		h.asking = nil
		if !hurried {
			pending.err = err
		}
		close(pending.done)
	}
	switch {
	case hurried && callCtx != ctx:
		return d, nil, t.ended(ctx)
	case err != nil || d.Source != core.SourceStore:
		return d, r, err
	}
	if t.learn(h, &d, c.Cost, sent, now); d.Allowed {
		h.used += c.Cost
	}
	if d.Reason == core.ReasonBanned {
		t.lost.Add(h.drop())
	}
	return d, r, nil
}

// fetch takes units for a holding. If the server refuses, no limit records that, and the callers
// who wait then ask the server to decide.
func (t *Table) fetch(s *shard, h *holding, pending *pendingCall, units int64, sent time.Time) {
	c := h.charge
	c.Cost = units
	d, r, err := t.server.Take(context.Background(), c)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.asking, h.failed, pending.err = nil, err != nil, err
	close(pending.done)
	if err != nil {
		return
	}
	t.learn(h, &d, units, sent, now)
	if d.Allowed {
		t.taken.Add(uint64(units))
		t.add(s, h, &grant{table: t, shard: s, record: r, left: units, got: now}, sent)
	}
	if d.Reason == core.ReasonBanned || h.dropped {
		t.lost.Add(h.drop())
	}
}

// learn notes an answer and how long it took.
func (t *Table) learn(h *holding, d *core.Decision, cost int64, sent, now time.Time) {
	h.learn(d, cost, sent, now)
	t.trip.Store(int64(now.Sub(sent)))
}

// add adds the units of a grant to a holding until their lease ends. The lease of a FixedWindow or
// CalendarWindow ends at the latest with the window.
func (t *Table) add(s *shard, h *holding, g *grant, sent time.Time) {
	lasts := h.lease
	for i := range h.charge.Limits {
		if r := h.charge.Limits[i].Rule(); r.Ban == nil && r.AtOnce() {
			lasts = min(lasts, time.Duration(g.record.Readings[i].Rest.Whole)*time.Microsecond)
		}
	}
	lasts = refusals.Sure(lasts)
	g.end, g.wall = sent.Add(lasts), sent.Add(lasts).UnixNano()
	h.grants = append(h.grants, g)
	time.AfterFunc(g.end.Sub(g.got), func() { t.end(s, h, g) })
}

// end tries to give back the units that are left in a grant when its lease ends. If the budget
// allows no command yet, end waits until it does.
func (t *Table) end(s *shard, h *holding, g *grant) {
	s.mu.Lock()
	if g.over = true; g.left > 0 {
		now := time.Now()
		delay := h.delay(now, 0)
		h.owe(now)
		s.mu.Unlock()
		time.Sleep(delay)
		s.mu.Lock() // another call may have dropped the units in the meantime
	}
	left := g.left
	g.left = 0
	if i := slices.Index(h.grants, g); i >= 0 {
		h.grants = slices.Delete(h.grants, i, i+1)
	}
	s.mu.Unlock()
	if left == 0 {
		return
	}
	units := &t.lost
	select {
	case t.returning <- struct{}{}:
		if _, err := t.server.Amend(context.Background(), g.record, machine.Amendment{Verb: machine.VerbRefund, Units: left}); err == nil {
			units = &t.returned
		}
		<-t.returning
	default:
	}
	units.Add(uint64(left))
}

// drop discards the units that the process holds for a user and an action, because another call
// resets their limits or bans the user. limits are the limits of that call. If one of them counts
// all actions of the user together, drop discards the units for all actions of the user. It does
// not give the units back, because their charge may be gone.
func (t *Table) drop(user, action string, limits []core.Limit) {
	all := slices.ContainsFunc(limits, func(l core.Limit) bool { return l.IsPerUser() })
	s := t.shard(user)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, h := range s.held {
		if k.user == user && (all || k.action == action) {
			t.lost.Add(h.drop())
			h.dropped = true
			delete(s.held, k)
		}
	}
}

// holding returns the holding of a charge. If there is no room for another holding, it returns nil.
func (s *shard) holding(c *core.Charge, lease time.Duration, now time.Time, room int) *holding {
	k := key{c.User, c.Action, &c.Limits[0]}
	if h := s.held[k]; h != nil {
		return h
	}
	if len(s.held) >= room && !s.sweep(now, room) {
		return nil
	}
	if s.held == nil {
		s.held = map[key]*holding{}
	}
	k.user, k.action = strings.Clone(c.User), strings.Clone(c.Action)
	h := &holding{
		charge: core.Charge{User: k.user, Action: k.action, Terms: &core.Terms{Limits: c.Limits, Ask: machine.Ask{Mode: machine.ModePatient}, Receipt: true}},
		demand: demand{lease: lease, since: now}, budget: budget{pace: min(pace, lease*11/20)},
		bans: slices.ContainsFunc(c.Limits, func(l core.Limit) bool { return l.Rule().Ban != nil }),
	}
	s.held[k] = h
	return h
}

// sweep drops idle holdings, and reports whether there is room after that.
func (s *shard) sweep(now time.Time, room int) bool {
	if now.Sub(s.swept) < sweepEvery {
		return false
	}
	s.swept = now
	for k, h := range s.held {
		if h.idle(now) {
			delete(s.held, k)
		}
	}
	return len(s.held) < room
}
