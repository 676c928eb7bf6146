package core

// Divide: each of n replicas decides by an n-th of every limit.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// Divide returns a store that asks store, but with an n-th of every quota. Use it if n replicas
// decide separately, and together should keep the limits:
//
//	core.Fallback(redisstore.New(rdb, nil), core.Divide(memorystore.New(nil), 4))
//
// A replica enforces its share of each limit:
//
//   - A rate is divided exactly. For example, with n = 4, 30 a minute becomes 30 per 4 minutes.
//   - A max, a capacity and an Initial are divided and rounded up, so the replicas together may
//     admit up to n-1 more than the limit.
//   - Periods and a [BanPolicy] are not divided. A share is not leased.
//   - The Limit, the Remaining and the times of a decision are those of the share.
//   - The share of a funnel or bucket has a separate state for each n. So if n changes while the
//     store keeps its states, windows keep their counts, and funnels and buckets start anew.
//   - If an action costs more than the share, it is refused with [Never] and nothing is written,
//     even if the limit itself has room for it.
//
// [New] refuses a limit if the period of its share's rate, or the time that the share takes to
// drain or fill, is more than 100 years. Divide panics if store is nil or n is less than 1. If n is
// 1, it changes no limit.
func Divide(store Store, n int) Store {
	if n < 1 {
		panic(fmt.Sprintf("core: Divide: %d replicas; give 1 or more, as many as there are processes", n))
	}
	return &divide{Store: mustStore(store, "Divide"), n: n}
}

type divide struct {
	Store
	n    int
	made [64]atomic.Pointer[shares] // a cache, by the first limit's hash and the mode
}

// shares are terms, and the terms that were made of them.
type shares struct{ of, made *Terms }

func (s *divide) Unwrap() Store { return s.Store }

func (s *divide) Accept(limits []Limit) error {
	t, err := s.share(&Terms{Limits: limits})
	if err != nil {
		return err
	}
	return accept(s.Store, t.Limits)
}

func (s *divide) Take(ctx context.Context, c Charge) (Decision, *Record, error) {
	t, err := s.share(c.Terms)
	if err != nil {
		return Decision{}, nil, err
	}
	c.Terms = t
	return s.Store.Take(ctx, c)
}

func (s *divide) Reset(ctx context.Context, user, action string, limits []Limit) error {
	t, err := s.share(&Terms{Limits: limits})
	if err != nil {
		return err
	}
	return s.Store.Reset(ctx, user, action, t.Limits)
}

// share returns a copy of the terms in which each limit is replaced by its share. The result stays
// in the cache until other terms need its place.
func (s *divide) share(of *Terms) (*Terms, error) {
	place := &s.made[(of.Limits[0].rule.Hash+uint64(of.Mode))%uint64(len(s.made))]
	last := place.Load()
	if last != nil && last.of == of {
		return last.made, nil
	}
	made := *of
	if last != nil && SameLimits(last.of.Limits, of.Limits) {
		made.Limits = last.made.Limits
	} else {
		made.Limits = slices.Clone(of.Limits)
		for i := range made.Limits {
			if !made.Limits[i].toShare(s.n) {
				return nil, configError(fmt.Sprintf("core: Divide: among %d replicas the share of %s has a rate per more than 100 years, or takes longer than that to drain or fill; divide it among fewer", s.n, &of.Limits[i]))
			}
		}
	}
	made.More = slices.Clone(of.More)
	for i := range made.More {
		t, err := s.share(&Terms{Limits: made.More[i].Limits, Ask: of.Ask})
		if err != nil {
			return nil, err
		}
		made.More[i].Limits = t.Limits
	}
	place.Store(&shares{of, &made})
	return &made, nil
}

// toShare changes the limit to an n-th of it, and reports whether the share is within bounds. If
// the limit has a rate, the identity gets n as a suffix, because the shares of two different limits
// may have equal numbers.
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

// ceil returns a/n, rounded up.
func ceil(a, n int) int { return (a-1)/n + 1 }
