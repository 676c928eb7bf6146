package machine

// A BanRule is a ban policy in integers: so many Refusals within Within lead to a ban. Bans
// are the lengths of the first ban, the second and so on, and the last one repeats. After
// ForgetAfter without a refusal or a ban, the next ban is the first again. Times are
// microseconds.
type BanRule struct {
	Refusals            int
	Within, ForgetAfter int64
	Bans                []int64
}

// NewBan makes the rule of a ban policy. It keeps b.
func NewBan(b *BanRule) Rule { return Rule{Kind: KindBan, Max: int64(b.Refusals), Ban: b} }

// Bans is the state of a ban policy: a user's refusals and bans.
type Bans struct {
	Last     int64   // the last refusal or ban
	Until    int64   // the end of the last ban; it may be past
	Level    int     // bans in a row
	Refusals []int64 // the refusals since the last ban, oldest first
}

// checkBan reports whether the user is not banned. A ban by hand always fits.
func (r *Rule) checkBan(s *State, now int64, a *Ask) bool {
	s.ahead = 0
	if !s.Exists || s.Bans == nil {
		s.Bans, s.Exists = nil, false
		return true
	}
	s.ahead = max(0, s.Bans.Last-now) // the clock stepped back
	return a.Ban > 0 && a.Mode != Peek || s.Bans.Until-s.ahead <= now
}

// refusal counts a refusal, which may lead to a ban.
func (r *Rule) refusal(s *State, now int64) {
	b := r.counting(s, now)
	b.Last = now
	if b.Refusals = append(b.Refusals, now); len(b.Refusals) >= r.Ban.Refusals {
		length := r.Ban.Bans[min(b.Level, len(r.Ban.Bans)-1)]
		b.Level++
		r.ban(s, now, length)
	}
}

// ban bans for length from now, in place of any ban.
func (r *Rule) ban(s *State, now, length int64) {
	b := r.counting(s, now)
	b.Last, b.Until, b.Refusals = now, now+length, b.Refusals[:0]
}

// counting brings the state to now, removes what no longer counts, and sets Dirty.
func (r *Rule) counting(s *State, now int64) *Bans {
	if s.Bans == nil {
		s.Bans = new(Bans)
	}
	b := s.Bans
	b.shift(s.ahead)
	b.Level = r.Ban.level(b, now)
	b.Refusals = b.Refusals[:copy(b.Refusals, b.Refusals[r.Ban.dead(b, now):])]
	s.ahead, s.Exists, s.Dirty = 0, true, true
	return b
}

func (b *Bans) shift(by int64) {
	b.Last -= by
	b.Until = max(0, b.Until-by)
	for i := range b.Refusals {
		b.Refusals[i] -= by
	}
}

func (r *Rule) readBan(v *Reading, s *State, now int64) {
	b := s.Bans
	if b == nil {
		return
	}
	now += s.ahead
	live := Bans{Last: b.Last, Until: b.Until, Level: r.Ban.level(b, now), Refusals: b.Refusals[r.Ban.dead(b, now):]}
	v.Refusals, v.Level = len(live.Refusals), live.Level
	v.Rest.Whole, v.Wait = max(0, r.Ban.forgotten(&live)-now), max(0, live.Until-now)
}

// level is how many bans in a row count at an instant.
func (r *BanRule) level(b *Bans, now int64) int {
	if now >= max(b.Last, b.Until)+r.ForgetAfter {
		return 0
	}
	return b.Level
}

// dead is how many refusals no longer count at an instant.
func (r *BanRule) dead(b *Bans, now int64) (n int) {
	for n < len(b.Refusals) && b.Refusals[n]+r.Within <= now {
		n++
	}
	return n
}

// forgotten is the instant from which the store need not keep the state.
func (r *BanRule) forgotten(b *Bans) int64 {
	end := max(b.Last, b.Until)
	if b.Level > 0 {
		end += r.ForgetAfter
	}
	if len(b.Refusals) > 0 {
		end = max(end, b.Last+r.Within)
	}
	return end
}
