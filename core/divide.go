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
	made [64]atomic.Pointer[divided] // by the first limit's hash
}

// divided caches the shares of a charge's limits: making them takes allocations.
type divided struct{ limits, shares []Limit }

func (s *divide) Unwrap() Store { return s.Store }

func (s *divide) Accept(limits []Limit) error {
	shares, err := s.shares(limits)
	if err != nil {
		return err
	}
	return accept(s.Store, shares)
}

func (s *divide) Take(ctx context.Context, c Charge) (Decision, error) {
	c.And = slices.Clone(c.And)
	never := false
	for i := range 1 + len(c.And) {
		o := c.Subject(i)
		shares, err := s.shares(o.Limits)
		if err != nil {
			return Decision{}, err
		}
		o.Limits = shares
		never = never || o.Mode == machine.ModeCharge && o.Cost > least(enforced(shares))
	}
	if never { // and so it writes nothing
		for i := range 1 + len(c.And) {
			c.Subject(i).Mode = machine.ModePeek
		}
	}
	return s.Store.Take(ctx, c)
}

func (s *divide) Reset(ctx context.Context, user, action string, limits []Limit) error {
	shares, err := s.shares(limits)
	if err != nil {
		return err
	}
	return s.Store.Reset(ctx, user, action, shares)
}

func (s *divide) shares(limits []Limit) ([]Limit, error) {
	place := &s.made[limits[0].rule.Hash%uint64(len(s.made))]
	if d := place.Load(); d != nil && slices.Equal(d.limits, limits) {
		return d.shares, nil
	}
	shares := make([]Limit, len(limits))
	for i := range limits {
		if shares[i] = limits[i]; !shares[i].divide(s.n) {
			return nil, configError(fmt.Sprintf("core: Divide: among %d replicas the share of %s has a rate per more than 100 years, or takes longer than that to drain or fill; divide it among fewer", s.n, &limits[i]))
		}
	}
	place.Store(&divided{slices.Clone(limits), shares})
	return shares, nil
}

// divide reduces the limit to an n-th, and reports whether that is within bounds. The share of a limit
// with a rate has the identity of the limit with n appended: shares of two limits may have equal
// numbers.
func (l *Limit) divide(n int) bool {
	switch {
	case n == 1 || l.kind == machine.KindBan:
		return true
	case l.rate.d > maxDrain/time.Duration(n):
		return false
	}
	identity := l.identity
	l.mods &^= modLeased
	l.leased = 0
	l.max = share(l.max, n)
	l.rate.d *= time.Duration(n)
	if l.initial > 0 {
		l.initial = share(l.initial, n)
	}
	if l.rate.d > 0 {
		identity += "/" + strconv.Itoa(n)
	}
	*l = l.derived()
	l.identify(identity)
	return !tooSlow(l)
}

// share is a/n, rounded up.
func share(a, n int) int { return (a-1)/n + 1 }
