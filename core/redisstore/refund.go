package redisstore

import (
	"context"
	"strconv"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Refund gives back units of a charge, in one round trip.
func (s *Store) Refund(ctx context.Context, r *core.Receipt, units int64) error {
	var charged []core.Limit
	argv := []any{r.At}
	for i := range r.Limits {
		if r.Charged(i) {
			charged = append(charged, r.Limits[i])
			argv = append(argv, refundSpec(r, i, units))
		}
	}
	args := []any{"evalsha", refundHash, len(charged)}
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

// refundSpec is the script's ARGV for the i-th limit.
func refundSpec(r *core.Receipt, i int, units int64) string {
	l, was := &r.Limits[i], &r.Readings[i]
	var b []byte
	words := func(kind string, ns ...int64) string {
		b = append(b, kind...)
		for _, n := range ns {
			b = strconv.AppendInt(append(b, ' '), n, 10)
		}
		return string(b)
	}
	switch rule := l.Rule(); rule.Kind {
	case machine.KindTokenBucket, machine.KindFunnel:
		give := rule.Time(units)
		return words("meter", give.Whole, give.Part, rule.Parts, r.At+was.Rest.Whole, was.Rest.Part, rule.Burst.Whole, rule.Burst.Part, was.Refund)
	case machine.KindFixedWindow:
		opened := int64(0)
		if was.Count == r.Cost && units == r.Cost {
			opened = 1
		}
		return words("fixed", units, r.At+was.Rest.Whole, opened)
	case machine.KindElasticWindow:
		return words("elastic", units, l.Period().Microseconds())
	}
	return words(l.Kind(), units, l.Period().Microseconds(), int64(l.Quota()))
}
