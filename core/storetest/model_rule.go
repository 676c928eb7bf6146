package storetest

// The rules of the model: their limits and spans of time.

import (
	"fmt"
	"math/big"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A rule is the parameters of a limit, apart from core.Limit.
type rule struct {
	kind    kind
	max     int
	period  int64 // windows; of a calendar the longest
	unit    core.CalendarUnit
	zone    *time.Location
	n       int // meters: n per d
	d       int64
	initial int   // kind initial
	forget  int64 // kind initial; 0 is the default
	lease   int64 // 0: it is not leased. The other numbers are those by which it is then checked
	name    string
	shadow  bool
	perUser bool
}

type kind int

const (
	fixed kind = iota
	funnel
	sliding
	moving
	elastic
	refused // SlidingWindow with CountRefused
	bucket
	initial // TokenBucket with Initial
	throttle
	inflight // InFlight, whose period is the lease
	calendar
	kinds
)

const day = int64(24 * time.Hour / time.Microsecond)

func us(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// limit makes the core.Limit that the rule describes.
func (r rule) limit() core.Limit {
	var l core.Limit
	period, capacity := r.period, r.max
	switch {
	case r.kind == moving:
		period -= r.lease
	case r.meter():
		capacity += int(ceil(new(big.Rat).Quo(whole(r.lease), r.time(1))))
	}
	switch rate := core.Per(r.n, us(r.d)); r.kind {
	case fixed:
		l = core.FixedWindow(r.max, us(r.period))
	case sliding:
		l = core.SlidingWindow(r.max, us(r.period))
	case moving:
		l = core.MovingWindow(r.max, us(period))
	case elastic:
		l = core.ElasticWindow(r.max, us(r.period))
	case refused:
		l = core.SlidingWindow(r.max, us(r.period)).CountRefused()
	case calendar:
		l = core.CalendarWindow(r.max, r.unit, r.zone)
	case bucket:
		l = core.TokenBucket(capacity, rate)
	case initial:
		l = core.TokenBucket(r.max, rate).Initial(r.initial)
		if r.forget != 0 {
			l = l.ForgetAfter(us(r.forget))
		}
	case funnel:
		l = core.Funnel(capacity, rate)
	case throttle:
		l = core.Throttle(capacity-1, rate)
	case inflight:
		l = core.InFlight(r.max).Lease(us(r.period))
	}
	if r.lease != 0 {
		l = l.Leased(us(r.lease))
	}
	if r.name != "" {
		l = l.Named(r.name)
	}
	if r.shadow {
		l = l.Shadow()
	}
	if r.perUser {
		l = l.PerUser()
	}
	return l
}

// identity is equal for rules that share state. It does not include a window's max.
func (r rule) identity() string {
	k := r.kind
	switch k {
	case throttle:
		k = funnel
	}
	if r.meter() {
		return fmt.Sprint(k, r.max, r.time(1), r.initial, r.lease, r.name, r.shadow, r.perUser)
	}
	return fmt.Sprint(k, r.period, r.lease, r.unit, r.zone, r.name, r.shadow, r.perUser)
}

func (r rule) meter() bool {
	return r.kind == bucket || r.kind == initial || r.kind == funnel || r.kind == throttle
}

func (r rule) trail() bool {
	return r.kind == sliding || r.kind == moving || r.kind == refused || r.kind == inflight
}

// time is how long a meter needs for so many units.
func (r rule) time(units int) *big.Rat {
	return new(big.Rat).Mul(big.NewRat(r.d, int64(r.n)), whole(int64(units)))
}

func (r rule) full() *big.Rat { return r.time(r.max) }

// start is the debt of a meter without a history.
func (r rule) start() *big.Rat {
	if r.kind != initial {
		return new(big.Rat)
	}
	return r.time(r.max - r.initial)
}

func (r rule) memory() int64 {
	if r.forget != 0 {
		return max(r.forget, ceil(r.full())+1)
	}
	return ceil(r.full()) + day
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean, and Denom is positive
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
