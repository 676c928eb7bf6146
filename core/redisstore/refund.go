package redisstore

import (
	"context"
	"strconv"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Refund gives back units of a charge, in one round trip.
func (s *Store) Refund(ctx context.Context, r *core.Receipt, units int64) error {
	charged, word := refundWord(r, units)
	args := []any{nil, nil, len(charged)}
	for _, k := range s.keys(r.User, r.Action, charged) {
		args = append(args, k)
	}
	call := &call{args: append(args, strconv.FormatInt(r.At, 10), word), program: refund, keyAt: 3}
	return s.refusals.change(r.User, r.Action, func() error {
		if err := s.do(ctx, call); err != nil {
			return err
		}
		if _, ok := call.reply.(int64); !ok {
			return ErrReply
		}
		return nil
	})
}

// refundWord returns the limits to which units are given back, and their rules.
func refundWord(r *core.Receipt, units int64) (charged []core.Limit, word string) {
	var b []byte
	var numbers [8]int64
	for i := range r.Limits {
		if r.Charged(i) {
			charged = append(charged, r.Limits[i])
			rule, taken := r.Limits[i].Rule(), machine.Taken{At: r.At, Cost: r.Cost, Reading: r.Readings[i]}
			b = appendRule(b, rule.Kind, rule.RefundArgs(numbers[:0], taken, units))
		}
	}
	return charged, string(b)
}
