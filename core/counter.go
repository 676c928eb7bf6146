package core

// Counter is the state of a FixedWindow or ElasticWindow: what was admitted in
// the window, and the instant at which the window ends.
type Counter struct {
	Count, End int64
}

// fitsCounter brings the counter to now. A count above a lowered max is only read
// as if cut: written, it would forgive the user towards a larger limit.
func (l *Limit) fitsCounter(s *State, now int64, c *Charge) bool {
	n := &s.Counter
	switch {
	case !s.Kept || n.End <= now:
		s.Kept = false
		*n = Counter{End: now}
	case n.End > now+l.span: // the clock stepped back
		n.End = now + l.span
		s.Changed = true
	}
	return c.Force || c.Cost <= int64(l.max)-n.Count
}

func (l *Limit) chargeCounter(s *State, now, cost int64) {
	n := &s.Counter
	n.Count += cost
	if !s.Kept || l.kind == KindElasticWindow {
		n.End = now + l.span
	}
}

func (l *Limit) readCounter(r *Reading, s *State, now int64) {
	r.Count, r.Rest = s.Counter.Count, s.Counter.End-now
}
