package machine

import "math"

// maxOwed is the most entries that ModeOwe leaves. A string of Redis cannot hold 74 million.
const maxOwed = 70_000_000

// trail is the machine of SlidingWindow and MovingWindow. One with CountRefused records refusals.
//
// In trail.lua free is wait. There a charge only counts what save then adds to the queue in Redis; here
// shift and record change the queue at once.
type trail struct{}

func (*trail) args(r *Rule, b []int64, cost, _ int64) []int64 { return windowArgs(r, b, cost) }

func (*trail) load(r *Rule, d *decoder) State {
	t, instants := new(Trail), d.instants()
	for _, at := range instants {
		t.push(at, len(instants))
	}
	d.bad = d.bad || len(instants) == 0
	return r.until(t)
}

// until is the state of a trail with entries.
func (r *Rule) until(t *Trail) State { return State{Expires: t.newest() + r.Period, More: t} }

// free is the instant from which the rule has room for cost: when the last entry leaves the
// window that is too many.
func (t *Trail) free(r *Rule, cost int64) int64 {
	over := int64(t.n) - (r.Max - cost) - 1
	if over < 0 {
		return math.MinInt64 / 2 // long ago
	}
	return t.At(int(over)) + r.Period
}

// trail is the trail of a live state, or an empty one that takes the memory of an expired state.
func (s State) trail(now int64) (t *Trail, live bool) {
	t, _ = s.More.(*Trail)
	return t, t != nil && s.Expires > now
}

// ahead is how far a clock that stepped back is behind the newest entry.
func (t *Trail) ahead(now int64) int64 { return max(0, t.newest()-now) }

// check reads one entry only: the newest one that must have left the window.
func (*trail) check(r *Rule, s State, now, cost int64, a *Ask) (State, bool) {
	t, live := s.trail(now)
	return s, a.Mode.forced() || cost <= r.Max && (!live || t.free(r, cost)-t.ahead(now) <= now)
}

func (m *trail) charge(r *Rule, s State, now, cost int64, a *Ask) (State, bool) {
	t, live := s.trail(now)
	switch {
	case t == nil:
		t = new(Trail)
	case live:
		t.shift(now)
	default:
		t.drop(t.Len())
	}
	if a.Mode.forced() {
		most := r.Max
		if a.Mode == ModeOwe {
			most = min(2*most, maxOwed)
		}
		if cost = min(cost, most-t.live(r, now)); cost <= 0 {
			return r.until(t), true
		}
	}
	t.record(r, now, cost)
	return r.until(t), true
}

// refuse drops the oldest entries for the refusal: the newest Max stay, or more if a limiter with
// a higher max wrote them, or ModeOwe.
func (*trail) refuse(r *Rule, s State, now, cost int64, record bool) (State, bool) {
	t, live := s.trail(now)
	if !live {
		return s, false
	}
	changed := t.shift(now)
	if record && r.RecordsRefusals() {
		kept := t.Len() - t.dead(now-r.Period)
		t.record(r, now, cost)
		t.drop(max(0, t.Len()-max(kept, int(r.Max))))
		changed = true
	}
	return r.until(t), changed
}

// shift moves the entries back if the clock stepped back, so that no user waits longer than before.
func (t *Trail) shift(now int64) (moved bool) {
	ahead := t.ahead(now)
	t.base -= ahead
	return ahead > 0
}

// live is how many entries are within the period.
func (t *Trail) live(r *Rule, now int64) int64 {
	return int64(t.Len() - t.dead(now-r.Period+t.ahead(now)))
}

// record writes cost entries, and drops those older than the period.
func (t *Trail) record(r *Rule, now, cost int64) {
	t.drop(t.dead(now - r.Period))
	most := max(int(r.Max), t.Len()+int(cost))
	for range cost {
		t.push(now, most)
	}
}

func (*trail) read(r *Rule, s State, now, cost int64, fits bool) (v Reading) {
	t, live := s.trail(now)
	if !live {
		return v
	}
	ahead := t.ahead(now)
	v.Count, v.Rest.Whole = t.live(r, now), t.newest()-ahead+r.Period-now
	if fits {
		cost = 1
	}
	if cost <= r.Max {
		v.Wait = t.free(r, cost) - ahead - now
	}
	return v
}

// maxSince bounds how many later entries move when one is removed.
const maxSince = 1 << 16

func (*trail) amend(r *Rule, s State, t Taken, now int64, a Amendment) (State, bool) {
	q, _ := s.trail(now)
	if r.RecordsRefusals() && int64(q.Len()-q.dead(now-r.Period)) >= r.Max {
		return s, false // older entries that still count may have been dropped for newer ones
	}
	to := q.dead(t.At)
	from := max(q.dead(t.At-1), to-int(a.Units))
	if from == to || q.Len()-to > maxSince {
		return s, false
	}
	q.remove(from, to)
	if q.n == 0 {
		return State{}, true
	}
	return r.until(q), true
}

func (*trail) save(_ *Rule, s State, b []byte) []byte {
	t := s.More.(*Trail)
	return appendInstants(b, t.Len(), t.At)
}

func (*trail) reply(_ *Rule, n []int64, _ int64, _ bool) (v Reading, rest []int64) {
	v.Count, v.Rest.Whole, v.Wait = n[0]>>1, n[1], n[2]
	return v, n[3:]
}

func (*trail) amendArgs(r *Rule, b []int64, _ Taken, a Amendment) []int64 {
	return append(b, a.Units, r.Period, r.Max)
}

// foreseen is false if the Count matters: it falls at instants that the reading does not tell.
func (*trail) foreseen(_ *Rule, v Reading, count bool) bool { return !count || v.Count == 0 }

// lease lengthens the window: the actions of a period were charged within the period and a lease.
func (*trail) lease(r *Rule, lease int64) { r.Period += lease }
