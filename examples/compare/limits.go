package main

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

// period is that of every limit here: a window's period, and the time in which a bucket
// or funnel of max units fills or drains.
const period = time.Minute

// A contender is a limit of the comparison.
type contender struct {
	name   string
	limit  func(max int) core.Limit
	most   int       // the largest max that it takes, if that is below the largest of sizes
	meter  bool      // a bucket or funnel: its level is continuous
	queues bool      // it remembers every action of a period
	group  int       // contenders of one group decide alike
	lines  []string  // what it does, in a few words
	judged judgement // by the articles
}

// A judgement is what the articles say of a limit; "" is nothing.
type judgement struct{ isolates, bounds, smooths, time, space string }

var contenders = []contender{
	{
		name:   "FixedWindow",
		limit:  func(max int) core.Limit { return core.FixedWindow(max, period) },
		group:  0,
		lines:  []string{"counts, and forgets", "all of it at once"},
		judged: judgement{"yes", "no", "no", "low", "low"},
	}, {
		name:  "CalendarWindow",
		limit: func(max int) core.Limit { return core.CalendarWindow(max, core.Minute, nil) },
		group: 1,
		lines: []string{"the same, but it begins", "with the clock's minute"},
	}, {
		name:   "ElasticWindow",
		limit:  func(max int) core.Limit { return core.ElasticWindow(max, period) },
		group:  2,
		lines:  []string{"every try restarts it;", "only silence clears it"},
		judged: judgement{"no", "yes", "no", "low", "low"},
	}, {
		name:   "SlidingWindow",
		limit:  func(max int) core.Limit { return core.SlidingWindow(max, period) },
		most:   10_000,
		queues: true,
		group:  3,
		lines:  []string{"each action counts for", "exactly one minute"},
	}, {
		name:   "MovingWindow",
		limit:  func(max int) core.Limit { return core.MovingWindow(max, period) },
		queues: true,
		group:  3,
		lines:  []string{"decides the same,", "with less memory"},
		judged: judgement{"yes", "yes", "yes", "mid", "high"},
	}, {
		name:   "TokenBucket",
		limit:  func(max int) core.Limit { return core.TokenBucket(max, core.Per(max, period)) },
		meter:  true,
		group:  4,
		lines:  []string{"5 at once, and then", "one every 12 s"},
		judged: judgement{"yes", "yes", "yes", "high", "low"},
	}, {
		name:  "Funnel",
		limit: func(max int) core.Limit { return core.Funnel(max, core.Per(max, period)) },
		meter: true,
		group: 4,
		lines: []string{"the same: room for 5", "that drains evenly"},
	}, {
		name:  "Throttle",
		limit: func(max int) core.Limit { return core.Throttle(max-1, core.Per(max, period)) },
		meter: true,
		group: 4,
		lines: []string{"the same, in the words", "of redis-cell"},
	},
}

// sizes are the quotas that everything is measured with.
var sizes = []int{5, 100, 10_000, 1_000_000}

// takes is whether the limit can have that quota.
func (c *contender) takes(max int) bool { return c.most == 0 || max <= c.most }
