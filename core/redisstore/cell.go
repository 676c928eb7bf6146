package redisstore

// Options.CLThrottle: the server's own CL.THROTTLE decides.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// acceptCell returns an error if CL.THROTTLE cannot serve a limiter of these limits.
func acceptCell(limits []core.Limit) error {
	if len(limits) != 1 {
		return fmt.Errorf("redisstore: CLThrottle serves limiters of one limit, not of %d", len(limits))
	}
	l := limits[0]
	n, d := l.Rate()
	switch {
	case l.Rule().Prepay > 0:
		return fmt.Errorf("redisstore: CLThrottle has no leases: leave Leased out of %s", l)
	case l.Rule().Kind != machine.KindFunnel:
		return fmt.Errorf("redisstore: CLThrottle serves Funnel and Throttle, not %s", l)
	case d%time.Second != 0:
		return fmt.Errorf("redisstore: CLThrottle needs a rate's period of whole seconds, not %s", d)
	case int64(n) > 1000*int64(d/time.Second):
		return fmt.Errorf("redisstore: CLThrottle is exact to 1,000 a second, and %s is above that", l)
	}
	return nil
}

const errSurcharge = keyError("redisstore: CLThrottle has no Surcharge")

// cellIdentity gives the module keys of its own, apart from the scripts' states.
func cellIdentity(l *core.Limit) string {
	return "cell" + strings.TrimPrefix(l.Identity(), l.Kind())
}

// throttle has CL.THROTTLE decide. A peek is sent as a charge of 0. Its reply does not say
// whether an action would pass, so Remaining decides that.
func (s *Store) throttle(ctx context.Context, c *core.Charge) (core.Decision, error) {
	peek := !c.Writes()
	if mode := c.Mode; mode == machine.ModeForce || mode == machine.ModeOwe {
		return core.Decision{}, errSurcharge
	}
	l := &c.Limits[0]
	n, d := l.Rate()
	cost := min(c.Cost, int64(l.Quota())+1) // the module takes a cost that overflows for a refund
	if peek {
		cost = 0
	}
	keys := s.keys(c)
	reply, err := s.do(ctx, &batch.Call{Keys: keys, Command: simple(1, "cl.throttle", keys[0], l.Quota()-1, n, int64(d/time.Second), cost)})
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

// decodeCell reads the module's five integers. Only the retry may be -1.
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
