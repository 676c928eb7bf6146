package machine

import "math"

// maxOwed is the most entries that ModeOwe leaves. A string of Redis cannot hold 74 million.
const maxOwed = 70_000_000

// trail is the machine of SlidingWindow and MovingWindow. One with CountRefused records refusals.
//
// In trail.lua free is wait. There a charge only counts what save then adds to the queue in Redis; here
// shift and record change the queue at once.
type trail struct{ plain }

func (*trail) args(r *Rule, b []int64, a Ask) []int64 { return windowArgs(r, b, a) }

func (*trail) load(s *State, d *decoder) {
	instants := d.instants()
	for _, at := range instants {
		s.Trail.push(at, len(instants))
	}
	d.bad = d.bad || len(instants) == 0
}

// free is the instant from which the rule has room for cost: when the last entry leaves the
// window that is too many.
func (t *Trail) free(r *Rule, cost int64) int64 {
	over := int64(t.n) - (r.Max - cost) - 1
	if over < 0 {
		return math.MinInt64 / 2 // long ago
	}
	return t.At(int(over)) + r.Period
}

// live is how many entries are within the period.
func (r *Rule) live(s *State, now int64) int64 {
	if !s.Exists {
		return 0
	}
	return int64(s.Trail.Len() - s.Trail.dead(now-r.Period+s.ahead))
}

// check reads one entry only: the newest one that must have left the window.
func (*trail) check(r *Rule, s *State, now int64, a Ask) bool {
	if !s.Exists {
		return a.forced() || a.Cost <= r.Max
	}
	s.ahead = max(0, s.Trail.newest()-now) // the clock stepped back
	return a.forced() || a.Cost <= r.Max && s.Trail.free(r, a.Cost)-s.ahead <= now
}

func (m *trail) charge(r *Rule, s *State, now int64, a Ask) {
	cost := a.Cost
	if a.forced() {
		most := r.Max
		if a.Mode == ModeOwe {
			most = min(2*most, maxOwed)
		}
		cost = max(0, min(cost, most-r.live(s, now)))
	}
	m.shift(s)
	if cost > 0 {
		r.record(s, now, cost)
	}
}

// refuse drops the oldest entries for the refusal: the newest Max stay, or more if a limiter with
// a higher max wrote them, or ModeOwe.
func (m *trail) refuse(r *Rule, s *State, now int64, a Ask, record bool) {
	m.shift(s)
	if record && !a.Patient && r.refused(s, a) && r.RecordsRefusals() {
		kept := s.Trail.Len() - s.Trail.dead(now-r.Period)
		r.record(s, now, a.Cost)
		s.Trail.drop(max(0, s.Trail.Len()-max(kept, int(r.Max))))
	}
}

// shift moves a state back if the clock stepped back, so that no user waits longer than before.
func (*trail) shift(s *State) {
	if s.ahead > 0 {
		s.Trail.base -= s.ahead
		s.ahead, s.Dirty = 0, true
	}
}

// record writes cost entries, and drops those older than the period.
func (r *Rule) record(s *State, now, cost int64) {
	t := &s.Trail
	if !s.Exists {
		t.drop(t.Len())
	}
	t.drop(t.dead(now - r.Period))
	most := max(int(r.Max), t.Len()+int(cost))
	for range cost {
		t.push(now, most)
	}
	s.Exists, s.Dirty = true, true
}

func (*trail) read(r *Rule, s *State, now, cost int64) {
	v := &s.Reading
	if v.Count = r.live(s, now); v.Count == 0 {
		return
	}
	v.Rest.Whole = s.Trail.newest() - s.ahead + r.Period - now
	if cost <= r.Max {
		v.Wait = s.Trail.free(r, cost) - s.ahead - now
	}
}

// maxSince bounds how many later entries move when one is removed.
const maxSince = 1 << 16

func (*trail) amend(r *Rule, s *State, t Taken, now int64, a Amendment) bool {
	q := &s.Trail
	if r.RecordsRefusals() && int64(q.Len()-q.dead(now-r.Period)) >= r.Max {
		return false // older entries that still count may have been dropped for newer ones
	}
	to := q.dead(t.At)
	from := max(q.dead(t.At-1), to-int(a.Units))
	if from == to || q.Len()-to > maxSince {
		return false
	}
	q.remove(from, to)
	s.Exists = q.n > 0
	return true
}

func (*trail) save(s *State, b []byte) []byte { return appendInstants(b, s.Trail.Len(), s.Trail.At) }

func (*trail) reply(_ *Rule, n []int64, _ int64, _ bool) (v Reading, rest []int64) {
	v.Count, v.Rest.Whole, v.Wait = n[0]>>1, n[1], n[2]
	return v, n[3:]
}

func (*trail) amendArgs(r *Rule, b []int64, _ Taken, a Amendment) []int64 {
	return append(b, a.Units, r.Period, r.Max)
}

func (*trail) expires(r *Rule, s *State) int64 { return s.Trail.newest() + r.Period }

func (*trail) refuses(r *Rule, s *State) int64 { return s.Trail.free(r, 1) }

// foreseen is false if the Count matters: it falls at instants that the reading does not tell.
func (*trail) foreseen(_ *Rule, v Reading, count bool) bool { return !count || v.Count == 0 }

// lease lengthens the window: the actions of a period were charged within the period and a lease.
func (*trail) lease(r *Rule, lease int64) { r.Period += lease }
