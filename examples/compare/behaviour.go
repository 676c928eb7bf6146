package main

import (
	"sync"
	"time"
)

// behaviour is how a limit of one quota behaves, measured on a virtual clock, so that it
// is the same on every machine.
type behaviour struct {
	bursts   float64 // the most admitted in any period ÷ max
	atOnce   float64 // the most admitted in any tenth of a period ÷ max
	lost     float64 // of the max actions in the period after a burst, the part refused
	shortest float64 // gap between two admitted actions under overload ÷ the even gap
	longest  float64 // the longest such gap; 0 if nothing passes any more
}

func behave(c *contender, quota int) behaviour {
	var b behaviour
	b.bursts, b.atOnce = bursts(c, quota)
	b.lost = lost(c, quota)
	b.shortest, b.longest = gaps(c, quota)
	return b
}

// behaveAll has one behaviour for each quota and contender.
func behaveAll(quotas []int) [][]behaviour {
	all := make([][]behaviour, len(quotas))
	var wg sync.WaitGroup
	for i, quota := range quotas {
		all[i] = make([]behaviour, len(contenders))
		for j := range contenders {
			if c := &contenders[j]; c.takes(quota) {
				wg.Go(func() { all[i][j] = behave(c, quota) })
			}
		}
	}
	wg.Wait()
	return all
}

// bursts tries three ways to get more than max through, and reports the best one: one
// action that opens a window, then all that passes just before its end and just after it;
// the same without that action, which a window of the clock does not need; and all that
// passes at once, then all that passes later.
func bursts(c *contender, quota int) (inPeriod, inTenth float64) {
	all := func(b *bench, passed *[]time.Duration, at time.Duration) {
		for b.try(at) {
			*passed = append(*passed, at)
		}
	}
	measure := func(passed []time.Duration) {
		most, _ := mostWithin(passed, period)
		tenth, _ := mostWithin(passed, period/10)
		inPeriod = max(inPeriod, float64(most)/float64(quota))
		inTenth = max(inTenth, float64(tenth)/float64(quota))
	}

	passed := make([]time.Duration, 0, 2*quota)
	for _, opens := range []bool{true, false} {
		edge := newBench(c.limit(quota))
		if passed = passed[:0]; opens && edge.try(0) {
			passed = append(passed, 0)
		}
		all(edge, &passed, period-time.Microsecond)
		all(edge, &passed, period)
		measure(passed)
	}

	flat := newBench(c.limit(quota))
	passed = passed[:0]
	for i := range 2 * quota {
		all(flat, &passed, time.Duration(i)*period/time.Duration(quota))
	}
	measure(passed)
	return inPeriod, inTenth
}

// lost is what a burst costs in the next period. A user acts once, nine tenths into the
// period sends twice the quota at once, and in the next period sends the quota evenly.
func lost(c *contender, quota int) float64 {
	b := newBench(c.limit(quota))
	b.try(0)
	for range 2 * quota {
		b.try(period * 9 / 10)
	}
	refused := 0
	for i := range quota {
		if !b.try(period + time.Duration(i)*period/time.Duration(quota)) {
			refused++
		}
	}
	return float64(refused) / float64(quota)
}

// gaps are the shortest and the longest time between two admitted actions, in even gaps
// of period ÷ max, when a user keeps sending three times the rate. The first period is left
// out: everything starts with a burst.
func gaps(c *contender, quota int) (shortest, longest float64) {
	b := newBench(c.limit(quota))
	last := time.Duration(-1)
	for i := range 9*quota + 3 {
		at := time.Duration(i) * period / time.Duration(3*quota)
		if !b.try(at) || at < period {
			continue
		}
		if last >= 0 {
			gap := float64(at-last) * float64(quota) / float64(period)
			if shortest == 0 || gap < shortest {
				shortest = gap
			}
			longest = max(longest, gap)
		}
		last = at
	}
	return shortest, longest
}
