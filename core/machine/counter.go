package machine

// Counter is the state of a FixedWindow or ElasticWindow: the units admitted in the
// window, and the instant at which the window ends.
type Counter struct {
	Count, End int64
}

// counter is the machine of FixedWindow and ElasticWindow. The elastic one records refusals.
type counter struct{}

func (counter) args(r *Rule, b []int64, a Ask) []int64 { return windowArgs(r, b, a) }

func (counter) load(s *State, d *decoder) {
	s.Counter = Counter{Count: d.int(), End: d.int()}
	d.bad = d.bad || s.Counter == Counter{}
}

// check brings the counter to now. If another limiter has a higher max, the count may
// exceed this one's. It is not cut: a write would lower it for that limiter too.
func (counter) check(r *Rule, s *State, now int64, a Ask) bool {
	c := &s.Counter
	switch {
	case !s.Exists || c.End <= now:
		s.Exists = false
		*c = Counter{End: now}
	case c.End > now+r.Period: // the clock stepped back
		c.End = now + r.Period
		s.Dirty = true
	}
	return a.Mode == Force || a.Cost <= r.Max-c.Count
}

func (counter) charge(r *Rule, s *State, now int64, a Ask) {
	c, cost := &s.Counter, a.Cost
	if a.Mode == Force {
		if cost = min(cost, r.Max-c.Count); cost <= 0 {
			return
		}
	}
	c.Count += cost
	if !s.Exists || r.Kind.RecordsRefusals() {
		c.End = now + r.Period
	}
	s.Exists, s.Dirty = true, true
}

func (counter) refuse(r *Rule, s *State, now int64, a Ask, record bool) {
	if record && !a.Patient && r.refused(s, a) && r.Kind.RecordsRefusals() {
		s.Counter.End = now + r.Period
		s.Dirty = true
	}
}

func (counter) read(_ *Rule, s *State, now int64, _ Ask) {
	s.Reading.Count, s.Reading.Rest.Whole = s.Counter.Count, s.Counter.End-now
}

func (counter) refund(r *Rule, s *State, t Taken, now, units int64) bool {
	c := &s.Counter
	if r.Kind.RecordsRefusals() {
		if now >= t.At+r.Period {
			return false // the charge may belong to an earlier window
		}
	} else if c.End != t.At+t.Reading.Rest.Whole || opened(t, units) && c.Count > units {
		return false
	}
	c.Count -= units
	s.Exists = c.Count > 0
	return true
}

// opened reports whether a refund gives back all of the charge that opened a window.
func opened(t Taken, units int64) bool { return t.Reading.Count == t.Cost && units == t.Cost }

func (counter) save(s *State, b []byte) []byte {
	return appendInts(b, s.Counter.Count, s.Counter.End)
}

func (counter) reply(_ *Rule, n []int64, _ bool) (v Reading) {
	v.Count, v.Rest.Whole = n[0]>>1, n[1]
	return v
}

func (counter) replySize(*Rule, bool) int { return 2 }

func (counter) refundArgs(r *Rule, b []int64, t Taken, units int64) []int64 {
	all := int64(0)
	if opened(t, units) {
		all = 1
	}
	return append(b, units, r.Period, t.At+t.Reading.Rest.Whole, all)
}

func (counter) weight(*Rule, int64) int { return 1 }

func (counter) remaining(r *Rule, v *Reading) int64 { return max(0, r.Max-v.Count) }

func (counter) retryAfter(_ *Rule, v *Reading, _ int64) int64 { return v.Rest.Whole }

func (counter) expires(_ *Rule, s *State) int64 { return s.Counter.End }

func (counter) refusedUntil(r *Rule, s *State) int64 {
	if s.Counter.Count < r.Max {
		return 0
	}
	return s.Counter.End
}

func (counter) foreseen(*Rule, Reading, bool) bool { return true }
