package machine

// counter is the machine of FixedWindow, ElasticWindow and CalendarWindow. State.N is the number of
// units that count in the window. State.Expires is the end of the window. For a calendar window it
// is later by the constant linger. An ElasticWindow records refusals.
type counter struct{ plain }

func (r *Rule) elastic() bool { return r.Kind == KindElasticWindow }

// linger returns how long a counter is kept after the end of its window.
func (r *Rule) linger() int64 {
	if r.Calendar != nil {
		return linger
	}
	return 0
}

// count returns the number of units that count at an instant.
func (s State) count(now int64) int64 {
	if s.Expires <= now {
		return 0
	}
	return int64(s.N)
}

func (*counter) load(r *Rule, d *decoder) State {
	count, end := d.uint32(d.int()), d.int()
	d.bad = d.bad || count == 0 && end == 0
	return State{Expires: end + r.linger(), N: count}
}

// check brings the counter to now. The count may be above this limiter's max, if another limiter
// with a higher max shares the state. check does not lower the count, because the other limiter
// would then admit too much.
func (*counter) check(r *Rule, now, cost int64, a *Ask, s State) (_ State, fits, changed bool) {
	was := s.Expires
	if r.Calendar != nil {
		s = r.align(s, now)
	} else { // if the clock stepped back, the window ends a period from now at the latest
		s.Expires = min(was, now+r.Period)
	}
	return s, a.Mode.forced() || cost <= r.Max-s.count(now), s.Expires != was
}

// linger is how long the state of a calendar window is kept after the window's end. So if the time
// of day steps back over a boundary by at most this time, no period gets its quota twice.
const linger = int64(1e6)

// align does the work of check for a calendar window. It finds the period to which a count belongs:
// the one whose end is nearest to the count's end. The two ends may differ, because the monotonic
// clock and the time of day drift by microseconds, and because two processes may have different
// time zone data. A count lasts at least until its own end, unless the clock steps back by more
// than linger. So such a difference between the ends does not give a period its quota twice.
func (r *Rule) align(s State, unix int64) State {
	start, end := r.Calendar.Period(unix)
	last := s.Expires - linger    // the count's end
	ofLast := 2*last <= start+end // the count belongs to the previous period
	switch {
	case s.Expires <= unix, ofLast && last <= unix:
		return State{Expires: min(0, unix)} // an empty state; before 1970 an Expires of 0 would be in the future
	case ofLast: // the count lasts until its own end
	case last < end: // also for a refusal; otherwise a process with the earlier end would start a new count
		s.Expires = end + linger
	case 2*(last-end) > end-start && end-unix > linger: // the clock stepped back
		s.Expires = end + linger
	}
	return s
}

func (m *counter) charge(r *Rule, now, cost int64, a *Ask, s State) (_ numbers, _ int64, _ State, changed bool) {
	count := s.count(now)
	if a.Mode.forced() {
		if cost = min(cost, r.most(a.Mode)-count); cost <= 0 {
			return m.refuse(r, now, 1, false, s)
		}
	}
	s.N = uint32(count + cost)
	switch {
	case s.Expires > now && !r.elastic():
	case r.Calendar != nil:
		_, end := r.Calendar.Period(now)
		s.Expires = end + linger
	default:
		s.Expires = now + r.Period
	}
	return r.counted(s, now, 1), 0, s, true
}

func (m *counter) refuse(r *Rule, now, cost int64, record bool, s State) (_ numbers, _ int64, _ State, changed bool) {
	if record {
		s.Expires = now + r.Period
	}
	return r.counted(s, now, cost), 0, s, record
}

func (*counter) read(r *Rule, now, cost int64, s State) (v numbers, ends int64) {
	if v = r.counted(s, now, cost); v.Count == 0 && r.Calendar != nil {
		_, end := r.Calendar.Period(now)
		ends = end - now
	}
	return v, ends
}

// counted is read without the Detail.
func (r *Rule) counted(s State, now, cost int64) (v numbers) {
	if v.Count = s.count(now); s.Expires > now {
		v.Rest.Whole = s.Expires - r.linger() - now
	}
	if cost > r.Max-v.Count {
		v.Wait = v.Rest.Whole
	}
	return v
}

func (*counter) amend(r *Rule, now int64, t Taken, a Amendment, s State) (State, bool) {
	last, end := s.Expires-r.linger(), t.At+t.Reading.Rest.Whole
	switch {
	case r.elastic():
		if now >= t.At+r.Period {
			return s, false // the charge may have been in an earlier window
		}
	case r.Calendar != nil:
		if last < end-linger || last > end+linger {
			return s, false
		}
	case last != end || t.Opened(a.Units) && int64(s.N) > a.Units:
		return s, false
	}
	if int64(s.N) <= a.Units {
		return State{}, true
	}
	s.N -= uint32(a.Units)
	return s, true
}

// Opened reports whether nothing counted before the charge, and the argument units is all that the
// charge has taken.
func (t Taken) Opened(units int64) bool { return t.Reading.Count == t.Cost && units == t.Cost }

func (*counter) save(r *Rule, b []byte, s State) []byte {
	return appendInts(b, int64(s.N), s.Expires-r.linger())
}
