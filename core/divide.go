package core

// Divide: each of n replicas gets an n-th of every limit.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Divide gives store an n-th of every quota, for one of n replicas that decide separately.
// Together they then keep the limits.
//
//	core.Fallback(redisstore.New(rdb, nil), core.Divide(memorystore.New(nil), 4))
//
// A rate is divided exactly: among 4, 30 a minute becomes 30 per 4 minutes. A max, a capacity and an
// Initial are rounded up, so the replicas together admit what the limit does, and at most n-1 more.
// Periods and a [BanPolicy] are not divided. A share is not leased. A decision has the Limit, the
// Remaining and the times of this replica's share. The share of a funnel or bucket has a separate state.
//
// An action that costs more than the share is refused with [Never] and writes nothing, even
// if the limit itself has room for it.
//
// [New] refuses a limit if the period of its share's rate, or the time that the share takes
// to drain or fill, is more than 100 years. Divide panics if n is not at least 1.
func Divide(store Store, n int) Store {
	if n < 1 {
		panic(fmt.Sprintf("core: Divide: %d replicas; give 1 or more, as many as there are processes", n))
	}
	return &divide{Store: mustStore(store, "Divide"), n: n}
}

type divide struct {
	Store
	n    int
	made [64]atomic.Pointer[shares] // by the first limit's hash and the mode
}

// shares are what is made of terms: the same for the shares of the limits, and those of a cost that can never pass.
type shares struct{ of, charge, never *terms }

func (s *divide) Unwrap() Store { return s.Store }

func (s *divide) Accept(limits []Limit) error {
	d, err := s.shares(&terms{Terms: Terms{Limits: limits}})
	if err != nil {
		return err
	}
	return accept(s.Store, d.charge.Limits)
}

func (s *divide) Take(ctx context.Context, c Charge) (Decision, error) {
	never := false // then it writes nothing
	for o := &c; o != nil; o = o.Next() {
		d, err := s.shares(o.terms)
		if err != nil {
			return Decision{}, err
		}
		never = never || o.terms.Mode.Asks() && o.Cost > least(enforced(d.charge.Limits))
	}
	return s.Store.Take(ctx, s.reduce(c, never))
}

// reduce makes a charge one of the shares.
func (s *divide) reduce(c Charge, never bool) Charge {
	d, _ := s.shares(c.terms)
	further := c.terms.Next
	if c.terms = d.charge; never {
		c.terms = d.never
	}
	if further != nil {
		joint, next := *c.terms, s.reduce(*further, never)
		joint.Next = &next
		c.terms = &joint
	}
	return c
}

func (s *divide) Reset(ctx context.Context, user, action string, limits []Limit) error {
	d, err := s.shares(&terms{Terms: Terms{Limits: limits}})
	if err != nil {
		return err
	}
	return s.Store.Reset(ctx, user, action, d.charge.Limits)
}

// shares returns those of terms, which are kept until terms of the same place need it.
func (s *divide) shares(t *terms) (*shares, error) {
	place := &s.made[(t.Limits[0].rule.Hash+uint64(t.Mode))%uint64(len(s.made))]
	last := place.Load()
	if last != nil && last.of == t {
		return last, nil
	}
	charge := *t
	if last != nil && (&Charge{terms: last.of}).SameLimits(t.Limits) {
		charge.Limits = last.charge.Limits
	} else {
		charge.Limits = slices.Clone(t.Limits)
		for i := range charge.Limits {
			if l := &charge.Limits[i]; !l.toShare(s.n) {
				return nil, configError(fmt.Sprintf("core: Divide: among %d replicas the share of %s has a rate per more than 100 years, or takes longer than that to drain or fill; divide it among fewer", s.n, &t.Limits[i]))
			}
		}
	}
	never := charge
	never.Mode, never.Never = machine.ModePeek, true
	d := &shares{t, &charge, &never}
	place.Store(d)
	return d, nil
}

// toShare reduces the limit to an n-th, and reports whether that is within bounds. The share of a limit
// with a rate has the identity of the limit with n appended: shares of two limits may have equal
// numbers.
func (l *Limit) toShare(n int) bool {
	switch {
	case n == 1 || l.rule.Ban != nil || l.rule.Max == 0:
		return true
	case l.rate.d > maxDrain/time.Duration(n):
		return false
	}
	identity := l.identity
	l.mods &^= modPrepay
	l.prepay = 0
	l.max = ceil(l.max, n)
	l.rate.d *= time.Duration(n)
	if l.initial > 0 {
		l.initial = ceil(l.initial, n)
	}
	if l.rate.d > 0 {
		identity += "/" + strconv.Itoa(n)
	}
	*l = l.derived()
	l.identify(identity)
	return !tooSlow(l)
}

// ceil is a/n, rounded up.
func ceil(a, n int) int { return (a-1)/n + 1 }
