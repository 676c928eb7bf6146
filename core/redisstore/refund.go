package redisstore

import (
	"context"
	"strconv"

	"github.com/tailcut/tailcut/core"
)

// Refund gives back what a charge has taken, in one round trip.
func (s *Store) Refund(ctx context.Context, r *core.Receipt, units int64) error {
	var charged []core.Limit
	argv := []any{r.At}
	for i := range r.Limits {
		if r.Charged(i) {
			charged = append(charged, r.Limits[i])
			argv = append(argv, give(r, i, units))
		}
	}
	args := []any{"evalsha", refundScript.Hash(), len(charged)}
	for _, k := range s.keys(r.User, r.Action, charged) {
		args = append(args, k)
	}
	call := &call{args: append(args, argv...), source: refundSource, keyAt: 3}
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

// give is the script's ARGV for the i-th limit.
func give(r *core.Receipt, i int, units int64) string {
	l, was := &r.Limits[i], &r.Readings[i]
	var b []byte
	words := func(kind string, ns ...int64) string {
		b = append(b, kind...)
		for _, n := range ns {
			b = strconv.AppendInt(append(b, ' '), n, 10)
		}
		return string(b)
	}
	switch l.Kind() {
	case core.KindTokenBucket, core.KindFunnel:
		n := l.Numbers(units)
		return words("meter", n.Cost, n.CostPart, n.Den, r.At+was.Rest, was.Part, n.Full, n.FullPart, l.Memory().Microseconds(), was.Count)
	case core.KindFixedWindow:
		opened := int64(0)
		if was.Count == r.Cost && units == r.Cost {
			opened = 1
		}
		return words("fixed", units, r.At+was.Rest, opened)
	case core.KindElasticWindow:
		return words("elastic", units, l.Period().Microseconds())
	}
	return words(l.Kind().String(), units, l.Period().Microseconds(), int64(l.Quota()))
}
