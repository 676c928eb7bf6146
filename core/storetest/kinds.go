package storetest

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

// everyKind is one limit of each kind. Of each, quota units pass at once, and a period later it
// is whole again: a minute, or else no boundary of a calendar comes. A script begins with a minute of
// the calendar. No two share state. The rest of the suite takes its limits of all kinds from
// here, so a new kind joins it with one entry. Trace needs the kind in its model too.
func everyKind(quota int, period time.Duration) []core.Limit {
	return append(rateKinds(quota, period), core.InFlight(quota).Lease(period))
}

// rateKinds are the kinds that count what has happened, and not what is in progress: a surcharge takes from
// them, and a refund gives back.
func rateKinds(quota int, period time.Duration) []core.Limit {
	rate, unit := core.Per(quota, period), core.Year
	if period == time.Minute {
		unit = core.Minute
	}
	return []core.Limit{
		core.SlidingWindow(quota, period),
		core.SlidingWindow(quota, period).CountRefused(),
		core.MovingWindow(quota, period),
		core.FixedWindow(quota, period),
		core.ElasticWindow(quota, period),
		core.CalendarWindow(quota, unit, nil),
		core.TokenBucket(quota, rate),
		core.TokenBucket(quota, rate).Initial(quota),
		core.Funnel(quota, rate),
		core.Throttle(quota-1, rate).Named("throttle"), // else its state is the funnel's
	}
}

// single makes a list of each limit.
func single(limits []core.Limit) (lists [][]core.Limit) {
	for _, l := range limits {
		lists = append(lists, []core.Limit{l})
	}
	return lists
}
