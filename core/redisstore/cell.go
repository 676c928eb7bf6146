package redisstore

// CellStore: the command CL.THROTTLE of the server decides.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

var (
	_ core.Accepter    = (*CellStore)(nil)
	_ core.Partitioned = (*CellStore)(nil)
)

// CellStore is a [core.Store] on a server that has the command CL.THROTTLE: Redis with the module
// redis-cell, or Dragonfly. A CellStore serves limiters of exactly one Funnel or Throttle. The rate
// must have a period of whole seconds, and be at most 1,000 a second. The limit must not be leased.
// For another limiter core.New returns an error. RetryAfter and ResetAfter are in whole seconds,
// because CL.THROTTLE replies whole seconds. A CellStore and a [Store] on the same server have
// separate states. A CellStore cannot refund a decision. A Surcharge returns an error, and so does
// core.All about several subjects.
type CellStore struct{ wire *wire }

// NewCellStore makes a CellStore, as [New] makes a Store. A CellStore asks the server about every
// attempt and runs no Lua. Therefore the options NoRefusalCache and NoFunctions change nothing.
func NewCellStore(rdb redis.UniversalClient, opts *Options) *CellStore {
	return &CellStore{newWire(rdb, opts)}
}

// Accept returns an error if CL.THROTTLE cannot serve a limiter of these limits. core.New calls it.
func (s *CellStore) Accept(limits []core.Limit) error {
	if len(limits) != 1 {
		return fmt.Errorf("redisstore: CellStore serves limiters of one limit, not of %d", len(limits))
	}
	l := limits[0]
	n, d := l.Rate()
	switch {
	case l.Rule().Prepay > 0:
		return fmt.Errorf("redisstore: CellStore has no leases: leave Leased out of %s", l)
	case l.Rule().Kind != machine.KindFunnel:
		return fmt.Errorf("redisstore: CellStore serves Funnel and Throttle, not %s", l)
	case d%time.Second != 0:
		return fmt.Errorf("redisstore: CellStore needs a rate's period of whole seconds, not %s", d)
	case int64(n) > 1000*int64(d/time.Second):
		return fmt.Errorf("redisstore: CellStore is exact to 1,000 a second, and %s is above that", l)
	}
	return nil
}

const errSurcharge = keyError("redisstore: CellStore has no Surcharge")

// keys returns the keys of limits. A [Store] has other keys for the same limits.
func (s *CellStore) keys(user, action string, limits []core.Limit) []string {
	keys := s.wire.appendKeys(nil, user, action, limits)
	for i := range keys {
		own := limits[i].Identity()
		keys[i] = strings.TrimSuffix(keys[i], own) + "cell" + strings.TrimPrefix(own, limits[i].Kind())
	}
	return keys
}

// Take has the server decide a charge, usually in one round trip. It sends a peek as a charge of 0
// units. The reply to that charge does not say whether an action would pass. Therefore Take decides
// a peek by the units that remain.
func (s *CellStore) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, err := s.throttle(ctx, &c)
	return d, nil, err
}

func (s *CellStore) throttle(ctx context.Context, c *core.Charge) (core.Decision, error) {
	if err := ctx.Err(); err != nil {
		return core.Decision{}, err
	}
	peek := !c.Writes()
	if c.Mode == machine.ModeForce || c.Mode == machine.ModeOwe {
		return core.Decision{}, errSurcharge
	}
	l := &c.Limits[0]
	n, d := l.Rate()
	cost := min(c.Cost, int64(l.Quota())+1) // the module takes a cost that overflows for a refund
	if peek {
		cost = 0
	}
	keys := s.keys(c.User, c.Action, c.Limits)
	reply, err := s.wire.do(ctx, &batch.Call{Keys: keys, Command: simple(1, "cl.throttle", keys[0], l.Quota()-1, n, int64(d/time.Second), cost)})
	if err != nil {
		return core.Decision{}, err
	}
	cell, err := decodeCell(reply)
	if err == nil && cell[1] != int64(l.Quota()) {
		err = ErrReply
	}
	if err != nil {
		return core.Decision{}, err
	}
	decision := core.Decision{
		Source:     core.SourceStore,
		Allowed:    cell[0] == 0,
		Limit:      l.Quota(),
		Remaining:  int(min(max(cell[2], 0), int64(l.Quota()))),
		ResetAfter: time.Duration(cell[4]) * time.Second,
		RetryAfter: time.Duration(max(cell[3], 1)) * time.Second,
	}
	if peek {
		decision.Allowed = c.Cost <= int64(decision.Remaining)
		cost := l.Rule().Time(min(c.Cost, l.Rule().Max+1))
		wait := decision.ResetAfter - l.Period() + time.Duration(cost.Ceil())*time.Microsecond
		decision.RetryAfter = max(time.Second, (wait + time.Second - 1).Truncate(time.Second))
	}
	switch {
	case decision.Allowed:
		decision.RetryAfter = 0
	case c.Cost > int64(l.Quota()):
		decision.Reason, decision.RetryAfter = core.ReasonLimited, core.Never
	default:
		decision.Reason = core.ReasonLimited
	}
	return decision, nil
}

// Reset deletes the states that the limits have for the user and the action.
func (s *CellStore) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return s.wire.delete(ctx, s.keys(user, action, limits))
}

// Connect opens connections as [Store.Connect] does, and loads no Lua.
func (s *CellStore) Connect(ctx context.Context) error {
	return s.wire.connect(ctx, func(string, batch.Send) error { return nil })
}

// Part returns the address of the server that has the states of the user: see [Store.Part].
func (s *CellStore) Part(user string) string { return s.wire.part(user) }

// decodeCell reads the five integers of a reply. Only the fourth one, the time to retry, may be -1.
func decodeCell(reply []any) (cell [5]int64, err error) {
	if len(reply) != len(cell) {
		return cell, ErrReply
	}
	for i := range cell {
		var ok bool
		if cell[i], ok = reply[i].(int64); !ok || cell[i] < 0 && i != 3 {
			return cell, ErrReply
		}
	}
	if cell[0] > 1 || cell[3] < -1 || cell[3] > 1<<32 || cell[4] > 1<<32 {
		return cell, ErrReply
	}
	return cell, nil
}
