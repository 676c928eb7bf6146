package fit

import (
	"testing"

	"pgregory.net/rapid"
)

const highest = 1_000_000_000 // the cost of an action

// naive are the peaks by looking at every pair of actions.
func naive(at []int64, cost []uint32) (p Peaks) {
	for i := range at {
		for k, span := range fitPeriods {
			sum := int64(0)
			for j := range i + 1 {
				if at[j] > at[i]-span {
					sum += int64(cost[j])
				}
			}
			p.window[k] = max(p.window[k], sum)
		}
	}
	for k, rate := range fitRates {
		level, last := int64(0), int64(0)
		for i := range at {
			level = max(0, level-(at[i]-last)) + int64(cost[i])*rate.emission
			last = at[i]
			p.funnel[k] = max(p.funnel[k], (level+rate.emission-1)/rate.emission)
		}
	}
	return p
}

// A member's peaks are exact, whatever the distances, and also if it is swept in between.
func TestPeaksAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := new(Member)
		var at []int64
		var costs []uint32
		now := int64(1_700_000_000) * second
		step := rapid.SampledFrom([]int64{0, 0, 1, 999, 1000, second, 59*second + 999_999, 60 * second, 60*second + 1, 600 * second, hour, day - 1, day, day + 1, 3 * day})
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			now += step.Draw(t, "step") + rapid.Int64Range(0, 2).Draw(t, "more")
			cost := uint32(rapid.SampledFrom([]int{1, 1, 1, 2, 7, 0, 3000}).Draw(t, "cost"))
			at, costs = append(at, now), append(costs, cost)
			m.Act(now, cost)
			if rapid.IntRange(0, 5).Draw(t, "sweep") == 0 {
				m.Sweep(now)
			}
			if want := naive(at, costs); m.Peaks != want {
				t.Fatalf("after %d actions the peaks are %v, want %v", len(at), m.Peaks, want)
			}
		}
	})
}

// The peaks of the highest costs are exact too.
func TestHighPeaksAreExact(t *testing.T) {
	var m Member
	const n = int64(1000)
	for i := range n {
		m.Act(day+i*second, highest)
	}
	want := Peaks{[nPeriods]int64{60 * highest, 600 * highest, n * highest, n * highest}, [nRates]int64{}}
	for i, rate := range fitRates {
		want.funnel[i] = n*highest - (n-1)*second/rate.emission
	}
	if m.Peaks != want {
		t.Errorf("%v, want %v", m.Peaks, want)
	}
}

func TestASweepDropsThePast(t *testing.T) {
	m := new(Member)
	m.Act(day, 1)
	m.Act(day+second, 1)
	if m.Sweep(2*day + second - 1); m.recent == nil {
		t.Error("it let go a microsecond early")
	}
	if m.Sweep(3*day + second); m.recent != nil || m.once != 0 || m.window != [nPeriods]int64{2, 2, 2, 2} {
		t.Errorf("%+v is left", m)
	}
}

// A funnel that is still not empty after a day is not forgotten.
func TestALongDebtOutlivesTheDay(t *testing.T) {
	for name, before := range map[string][]int64{"once": {0}, "twice": {-1, 0}} {
		m := new(Member)
		for _, at := range before {
			m.Act(day+at, 3000)
		}
		m.Sweep(2 * day)
		m.Act(2*day, 1)
		m.Act(2*day, 3000)
		if got, want := m.funnel[nRates-1], int64(len(before)*3000-1440+3001); got != want {
			t.Errorf("%s: the funnel of 1/m needs %d, want %d", name, got, want)
		}
	}
}

// The queue stays short if a user never stops.
func TestQueueIsCompacted(t *testing.T) {
	var m Member
	for i := range int64(300_000) { // 3.5 days
		for range 3 {
			m.Act(1_000_000*second+i*second, 1)
		}
	}
	if n := cap(m.recent.queue); n > 700_000 || m.window[3] != 3*86_400 {
		t.Errorf("the queue takes %d bytes; the peaks are %v", n, m.Peaks)
	}
}
