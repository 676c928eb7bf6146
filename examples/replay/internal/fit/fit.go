// Package fit finds the smallest limits that would touch few users: the max of a SlidingWindow for some
// periods, and the capacity of a Funnel at some rates.
//
// A max touches a user if some half-open window of the period holds more than max of the user's actions. The
// numbers are exact: replaying the log with one touches no more users than that, and with one less it
// touches more.
package fit

import (
	"math"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A WindowFit says how high the max of a SlidingWindow must be.
type WindowFit struct {
	Period time.Duration
	Max    Least
	Curve  []Point // the share of users touched by max, falling to 0
}

// A FunnelFit says how high the capacity of a Funnel must be.
type FunnelFit struct {
	Rate     core.Rate
	Capacity Least
}

// Least has the smallest numbers that refuse no user, at most one user in a thousand, and at most
// one in a hundred.
type Least struct {
	Nobody   int `json:"nobody"`
	PerMille int `json:"0.1%"`
	Percent  int `json:"1%"`
}

// A Point says which share of users a max touches, from 0 to 1.
type Point struct {
	Max   int
	Share float64
}

// Windows are the maxima that fit the peaks of an action's users.
func Windows(of []Peaks) (fits []WindowFit) {
	for i, period := range fitPeriods {
		needs := sorted(of, func(p *Peaks) int64 { return p.window[i] })
		fits = append(fits, WindowFit{time.Duration(period) * time.Microsecond, least(needs), curve(needs)})
	}
	return fits
}

// Funnels are the capacities that fit them.
func Funnels(of []Peaks) (fits []FunnelFit) {
	for i, rate := range fitRates {
		fits = append(fits, FunnelFit{rate.Rate, least(sorted(of, func(p *Peaks) int64 { return p.funnel[i] }))})
	}
	return fits
}

func sorted(of []Peaks, need func(*Peaks) int64) []int64 {
	needs := make([]int64, len(of))
	for u := range of {
		needs[u] = need(&of[u])
	}
	slices.Sort(needs)
	return needs
}

// least finds the numbers in the sorted needs of the users.
func least(needs []int64) Least {
	n := len(needs)
	without := func(users int) int { return number(max(1, needs[n-1-users])) }
	return Least{without(0), without(n / 1000), without(n / 100)}
}

// number is n as an int, which may have 32 bits.
func number(n int64) int { return int(min(n, math.MaxInt)) }

// curve is the share of users who need more than a max, at some of the maxima at which it changes.
func curve(needs []int64) []Point {
	n := len(needs)
	points := []Point{}
	next := 0.0
	for i := 0; i < n; {
		m := needs[i]
		j := i + 1
		for j < n && needs[j] == m {
			j++
		}
		if i = j; float64(m) >= next || j == n {
			points = append(points, Point{number(m), float64(n-j) / float64(n)})
			next = float64(m) * 1.05 // so there are 400 points at most
		}
	}
	return points
}
