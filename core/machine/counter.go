package machine

// Counter is the state of a FixedWindow or ElasticWindow: the units admitted in the
// window, and the instant at which the window ends.
type Counter struct {
	Count, End int64
}

// checkCounter brings the counter to now. If another limiter has a higher max, the count may
// exceed this one's. It is not cut: a write would lower it for that limiter too.
func (r *Rule) checkCounter(s *State, now int64, a *Ask) bool {
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

func (r *Rule) chargeCounter(s *State, now, cost int64) {
	c := &s.Counter
	c.Count += cost
	if !s.Exists || r.Kind == KindElasticWindow {
		c.End = now + r.Period
	}
}
