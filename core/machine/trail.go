package machine

import "math"

// maxOwed is the most entries that a charge with ModeOwe leaves in a queue. A Redis string has at
// most 512 MB, and an entry takes 7 bytes.
const maxOwed = 70_000_000

// trail is the machine of SlidingWindow and MovingWindow. A SlidingWindow with CountRefused records
// refusals too.
//
// In trail.lua the function free is called wait. In Lua, the function charge does not
// change the queue. It counts the new entries, and the function save writes them to Redis. In Go,
// shift and record change the queue at once.
type trail struct{}

func (*trail) load(r *Rule, d *decoder) State {
	q, instants := new(queue), d.instants()
	for _, at := range instants {
		q.push(at, len(instants))
	}
	d.bad = d.bad || len(instants) == 0
	return q.state(r)
}

// state returns the state of a queue that has entries.
func (q *queue) state(r *Rule) State { return State{Expires: q.newest() + r.Period, Data: q} }

// free returns the instant at which cost fits: when enough of the oldest entries have left the
// window.
func (q *queue) free(r *Rule, cost int64) int64 {
	over := int64(q.n) - (r.Max - cost) - 1
	if over < 0 {
		return math.MinInt64 / 2 // long ago
	}
	return q.at(int(over)) + r.Period
}

// queue returns the state's queue, or nil if there is none. live reports whether the state has not
// expired. The queue of an expired state may be used again, to save memory.
func (s State) queue(now int64) (q *queue, live bool) {
	q, _ = s.Data.(*queue)
	return q, q != nil && s.Expires > now
}

// behind returns how far now is before the newest entry, because the clock stepped back.
func (q *queue) behind(now int64) int64 { return max(0, q.newest()-now) }

// check reads at most two entries: the newest one, and the newest of those that must have left the
// window before cost fits.
func (*trail) check(r *Rule, now, cost int64, a *Ask, s State) (_ State, fits, changed bool) {
	q, live := s.queue(now)
	return s, a.Mode.forced() || cost <= r.Max && (!live || q.free(r, cost)-q.behind(now) <= now), false
}

func (m *trail) charge(r *Rule, now, cost int64, a *Ask, s State) (v numbers, detail int64, _ State, changed bool) {
	q, live := s.queue(now)
	switch {
	case q == nil:
		q = new(queue)
	case live:
		q.shift(now)
	default:
		q.drop(q.len())
	}
	if a.Mode.forced() {
		cost = min(cost, min(r.most(a.Mode), maxOwed)-q.live(now-r.Period))
	}
	if cost > 0 {
		q.record(r, now, cost)
	}
	s = q.state(r)
	v, _ = m.read(r, now, 1, s)
	return v, 0, s, true
}

// If record is set, refuse records the refusal: it adds cost entries, and then keeps the newest
// r.Max entries. If more than r.Max entries were in the window before, it keeps as
// many as there were. A limiter with a higher max
// or ModeOwe may have written them.
func (m *trail) refuse(r *Rule, now, cost int64, record bool, s State) (v numbers, detail int64, _ State, changed bool) {
	q, live := s.queue(now)
	if !live {
		return v, 0, s, false
	}
	if changed = q.newest() > now; changed {
		q.shift(now)
	}
	if record {
		counting := q.live(now - r.Period)
		q.record(r, now, cost)
		q.drop(max(0, q.len()-int(max(counting, r.Max))))
		changed = true
	}
	if changed {
		s = q.state(r)
	}
	v, _ = m.read(r, now, cost, s)
	return v, 0, s, changed
}

// shift moves all entries back if the clock stepped back, so that no user waits longer than before.
func (q *queue) shift(now int64) { q.back += q.behind(now) }

// live returns the number of entries that are later than an instant.
func (q *queue) live(after int64) int64 { return int64(q.len() - q.dead(after)) }

// record adds cost entries, and drops the entries that have left the window.
func (q *queue) record(r *Rule, now, cost int64) {
	q.drop(q.dead(now - r.Period))
	most := max(int(r.Max), q.len()+int(cost))
	for range cost {
		q.push(now, most)
	}
}

func (*trail) read(r *Rule, now, cost int64, s State) (v numbers, _ int64) {
	q, live := s.queue(now)
	if !live {
		return
	}
	newest := q.newest()
	at := max(now, newest) // newest is later if the clock stepped back
	v.Count, v.Rest.Whole = q.live(at-r.Period), newest+r.Period-at
	if cost <= r.Max {
		v.Wait = q.free(r, cost) - at
	}
	return
}

// maxSince bounds the number of later entries that a refund moves. If there are more, the refund
// gives nothing back.
const maxSince = 1 << 16

func (*trail) amend(r *Rule, now int64, t Taken, a Amendment, s State) (State, bool) {
	q, _ := s.queue(now)
	if r.RecordsRefusals() && q.live(now-r.Period) >= r.Max {
		return s, false // refusals may have dropped older entries that still count
	}
	to := q.dead(t.At)
	from := max(q.dead(t.At-1), to-int(a.Units))
	if from == to || q.len()-to > maxSince {
		return s, false
	}
	q.remove(from, to)
	if q.n == 0 {
		return State{}, true
	}
	return q.state(r), true
}

func (*trail) save(_ *Rule, b []byte, s State) []byte {
	q := s.Data.(*queue)
	return appendInstants(b, q.len(), q.at)
}

// predictable is false if the Count matters, because the reading does not say when the Count falls.
func (*trail) predictable(_ *Rule, v Reading, count bool) bool { return !count || v.Count == 0 }

// prepay lengthens the window by d: the actions of a period were charged in the period or up to d
// before it.
func (*trail) prepay(r *Rule, d int64) { r.Period += d }
