package machine

// Counter is the state of a FixedWindow, ElasticWindow or CalendarWindow: the units admitted in
// the window, and the instant at which the window ends.
type Counter struct {
	Count, End int64
}

// counter is the machine of FixedWindow, ElasticWindow and CalendarWindow. The elastic one records
// refusals.
type counter struct{ plain }

func (r *Rule) elastic() bool { return r.Kind == KindElasticWindow }

func (*counter) args(r *Rule, b []int64, a Ask) []int64 { return windowArgs(r, b, a) }

func (*counter) load(s *State, d *decoder) {
	s.Counter = Counter{Count: d.int(), End: d.int()}
	d.bad = d.bad || s.Counter == Counter{}
}

// check brings the counter to now. If another limiter has a higher max, the count may
// exceed this one's. It is not cut: a write would lower it for that limiter too.
func (*counter) check(r *Rule, s *State, now int64, a Ask) bool {
	c := &s.Counter
	switch {
	case r.Calendar != nil:
		r.align(s, now)
	case !s.Exists || c.End <= now:
		s.Exists = false
		*c = Counter{End: now}
	case c.End > now+r.Period: // the clock stepped back
		c.End = now + r.Period
		s.Dirty = true
	}
	return a.forced() || a.Cost <= r.Max-c.Count
}

// Linger is how long the state of a calendar window is kept after its end. If the time of day
// steps back over a boundary by at most this, neither period has its quota twice.
const Linger = int64(1e6)

// align is check for a calendar window. A count belongs to the period whose end is nearest to the
// count's. The two may differ, since a monotonic clock and the time of day differ by microseconds each
// time, and two processes may have different time zone data. Each count lasts until its own end at
// least, so the period that begins last never has more than the quota.
func (r *Rule) align(s *State, now int64) {
	c := &s.Counter
	start, end := r.Calendar.Period(now + s.Epoch)
	start, end = start-s.Epoch, end-s.Epoch
	ofLast := 2*c.End <= start+end
	switch {
	case !s.Exists, ofLast && c.End <= now:
		s.Exists = false
		*c = Counter{End: now}
	case ofLast: // it counts until its end
	case c.End < end: // a refusal tells it too, or a process with the earlier end would begin anew
		c.End = end
		s.Dirty = true
	case 2*(c.End-end) > end-start && end-now > Linger: // the clock stepped back
		c.End = end
		s.Dirty = true
	}
}

func (*counter) charge(r *Rule, s *State, now int64, a Ask) {
	c, cost := &s.Counter, a.Cost
	if a.forced() {
		most := r.Max
		if a.Mode == ModeOwe {
			most *= 2
		}
		if cost = min(cost, most-c.Count); cost <= 0 {
			return
		}
	}
	c.Count += cost
	if !s.Exists || r.elastic() {
		c.End = now + r.Period
		if r.Calendar != nil {
			_, end := r.Calendar.Period(now + s.Epoch)
			c.End = end - s.Epoch
		}
	}
	s.Exists, s.Dirty = true, true
}

func (*counter) refuse(r *Rule, s *State, now int64, a Ask, record bool) {
	if r.elastic() && record && !a.Patient && r.refused(s, a) {
		s.Counter.End = now + r.Period
		s.Dirty = true
	}
}

func (*counter) read(_ *Rule, s *State, now, _ int64) {
	s.Count, s.Rest.Whole, s.Wait = s.Counter.Count, s.Counter.End-now, s.Counter.End-now
}

func (*counter) amend(r *Rule, s *State, t Taken, now int64, a Amendment) bool {
	c, end := &s.Counter, t.At+t.Reading.Rest.Whole
	switch {
	case r.elastic():
		if now >= t.At+r.Period {
			return false // the charge may belong to an earlier window
		}
	case r.Calendar != nil:
		if c.End < end-Linger || c.End > end+Linger {
			return false
		}
	case c.End != end || opened(t, a.Units) && c.Count > a.Units:
		return false
	}
	c.Count -= a.Units
	s.Exists = c.Count > 0
	return true
}

// opened reports whether a refund gives back all of the charge that opened a window.
func opened(t Taken, units int64) bool { return t.Reading.Count == t.Cost && units == t.Cost }

func (*counter) save(s *State, b []byte) []byte {
	return appendInts(b, s.Counter.Count, s.Counter.End)
}

func (*counter) reply(_ *Rule, n []int64, _ int64, _ bool) (v Reading, rest []int64) {
	v.Count, v.Rest.Whole, v.Wait = n[0]>>1, n[1], n[1]
	return v, n[2:]
}

func (*counter) amendArgs(r *Rule, b []int64, t Taken, a Amendment) []int64 {
	all := int64(0)
	if opened(t, a.Units) {
		all = 1
	}
	return append(b, a.Units, r.Period, t.At+t.Reading.Rest.Whole, all)
}

func (*counter) expires(r *Rule, s *State) int64 {
	if r.Calendar != nil {
		return s.Counter.End + Linger
	}
	return s.Counter.End
}

func (*counter) refuses(r *Rule, s *State) int64 {
	if s.Counter.Count < r.Max {
		return 0
	}
	return s.Counter.End
}

// pack returns the Count, which is at most two quotas.
func (*counter) pack(_ *Rule, s *State) (value uint32, ok bool) { return uint32(s.Counter.Count), true }

func (*counter) unpack(r *Rule, s *State, expires int64, value uint32) {
	s.Counter = Counter{Count: int64(value), End: expires}
	if r.Calendar != nil {
		s.Counter.End -= Linger
	}
}
