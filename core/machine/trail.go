package machine

import "math"

// trail is the machine of SlidingWindow and MovingWindow. One with CountRefused records refusals.
type trail struct{}

func (trail) args(r *Rule, b []int64, a Ask) []int64 { return windowArgs(r, b, a) }

func (trail) load(s *State, d *decoder) {
	instants := d.instants()
	for _, at := range instants {
		s.Trail.push(at, len(instants))
	}
	d.bad = d.bad || len(instants) == 0
}

// check reads one entry only: the newest one that must have left the window.
func (trail) check(r *Rule, s *State, now int64, a Ask) bool {
	s.ahead = 0
	if !s.Exists || s.Trail.Len() == 0 {
		return a.Mode == Force || a.Cost <= r.Max
	}
	s.ahead = max(0, s.Trail.newest()-now) // the clock stepped back
	return a.Mode == Force || a.Cost <= r.Max && s.Trail.free(r, a.Cost)-s.ahead <= now
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

func (trail) charge(r *Rule, s *State, now int64, a Ask) {
	cost := a.Cost
	if a.Mode == Force {
		cost = max(0, min(cost, r.Max-r.live(s, now)))
	}
	r.shift(s)
	if cost > 0 {
		r.record(s, now, cost)
	}
}

func (trail) refuse(r *Rule, s *State, now int64, a Ask, record bool) {
	r.shift(s)
	if record && !a.Patient && r.refused(s, a) && r.Kind.RecordsRefusals() {
		r.record(s, now, a.Cost)
	}
}

// shift moves a state back if the clock stepped back, so that no user waits longer than before.
func (r *Rule) shift(s *State) {
	if s.ahead > 0 {
		s.Trail.base -= s.ahead
		s.ahead, s.Dirty = 0, true
	}
}

// record writes cost entries, and drops those older than the period. If refusals are
// recorded too, the newest Max entries stay, or more if a limiter with a higher max wrote
// them.
func (r *Rule) record(s *State, now, cost int64) {
	t := &s.Trail
	if !s.Exists {
		t.drop(t.Len())
	}
	t.drop(t.dead(now - r.Period))
	keep := max(int(r.Max), t.Len())
	for range cost {
		t.push(now, int(r.Max))
	}
	if t.Len() > keep {
		t.drop(t.Len() - keep)
	}
	s.Exists, s.Dirty = true, true
}

func (trail) read(r *Rule, s *State, now int64, a Ask) {
	v := &s.Reading
	if v.Count = r.live(s, now); v.Count == 0 {
		return
	}
	v.Rest.Whole = s.Trail.newest() - s.ahead + r.Period - now
	if a.Cost <= r.Max {
		v.Wait = s.Trail.free(r, a.Cost) - s.ahead - now
	}
}

// maxSince bounds how many later entries move when one is removed.
const maxSince = 1 << 16

func (trail) refund(r *Rule, s *State, t Taken, now, units int64) bool {
	q := &s.Trail
	if r.Kind.RecordsRefusals() && int64(q.Len()-q.dead(now-r.Period)) >= r.Max {
		return false // older entries that still count may have been dropped for newer ones
	}
	to := q.dead(t.At)
	from := max(q.dead(t.At-1), to-int(units))
	if from == to || q.Len()-to > maxSince {
		return false
	}
	q.remove(from, to)
	s.Exists = q.n > 0
	return true
}

func (trail) save(s *State, b []byte) []byte { return appendInstants(b, s.Trail.Len(), s.Trail.At) }

func (trail) reply(_ *Rule, n []int64, _ bool) (v Reading) {
	v.Count, v.Rest.Whole, v.Wait = n[0]>>1, n[1], n[2]
	return v
}

func (trail) replySize(*Rule, bool) int { return 3 }

func (trail) refundArgs(r *Rule, b []int64, _ Taken, units int64) []int64 {
	return append(b, units, r.Period, r.Max)
}

// weight counts an entry for each unit: a member of a sorted set, or seven bytes of a string.
func (trail) weight(r *Rule, cost int64) int {
	if r.Kind == KindMovingWindow {
		return 4 + int(min(cost, r.Max)/2000)
	}
	return 4 + int(min(cost, r.Max)/2)
}

func (trail) remaining(r *Rule, v *Reading) int64 { return max(0, r.Max-v.Count) }

func (trail) retryAfter(_ *Rule, v *Reading, _ int64) int64 { return v.Wait }

func (trail) expires(r *Rule, s *State) int64 { return s.Trail.newest() + r.Period }

func (trail) refusedUntil(r *Rule, s *State) int64 { return s.Trail.free(r, 1) }

// foreseen is false if the Count matters: it falls at instants that the reading does not tell.
func (trail) foreseen(_ *Rule, v Reading, count bool) bool { return !count || v.Count == 0 }
