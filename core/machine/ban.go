package machine

// A BanRule is a ban policy in integers. A user with Refusals refusals within the time Within is
// banned. If Refusals is 0, refusals do not lead to a ban. Bans has the lengths of the first ban,
// the second ban, and so on. All further bans are as long as the last one in Bans. If a user has
// had no recorded refusal and no ban during the time ForgetAfter, the next ban is a first ban
// again. A ban by hand has its own length, and does not count as one of these bans. Times are in
// microseconds.
type BanRule struct {
	Refusals            int
	Within, ForgetAfter int64
	Bans                []int64
}

// NewBan returns the rule of a ban policy. The rule keeps b, so the caller must not change b
// afterwards.
func NewBan(b *BanRule) Rule {
	return Rule{Kind: KindBan, machine: forms[FormBans].machine, records: b.Refusals > 0, Max: int64(b.Refusals), Ban: b}
}

// banRecord is the state of a ban policy: the refusals and the bans of a user.
type banRecord struct {
	Last     int64   // the last refusal or ban
	Until    int64   // the end of the last ban, which may be past
	Level    int     // the number of bans in a row, without bans by hand
	Refusals []int64 // the refusals since the last ban, oldest first
}

func (*banRecord) form() Form { return FormBans }

// bans returns the record of a state that has not expired, or nil.
func (s State) bans(now int64) *banRecord {
	if b, _ := s.Data.(*banRecord); b != nil && s.Expires > now {
		return b
	}
	return nil
}

// bans is the machine of ban policies.
type bans struct{ plain }

func (*bans) load(r *Rule, d *decoder) State {
	b := &banRecord{Last: d.int(), Until: d.int(), Level: int(d.uint32(d.int()))}
	b.Refusals = d.instants()
	return b.state(r.Ban)
}

// state returns the state of a record. It expires when the record no longer matters.
func (b *banRecord) state(r *BanRule) State { return State{Expires: r.forgotten(b), Data: b} }

// behind returns how far now is before the last refusal or ban, because the clock stepped back.
func (b *banRecord) behind(now int64) int64 { return max(0, b.Last-now) }

// check reports whether the user is not banned. A manual ban fits even during a ban, except with
// ModePeek.
func (*bans) check(_ *Rule, now, _ int64, a *Ask, s State) (_ State, fits, changed bool) {
	b := s.bans(now)
	return s, b == nil || a.Ban > 0 && a.Mode != ModePeek || b.Until-b.behind(now) <= now, false
}

// If a.Ban is set, charge makes a manual ban of that length. Otherwise it does not change the bans.
func (m *bans) charge(r *Rule, now, cost int64, a *Ask, s State) (v numbers, level int64, _ State, changed bool) {
	if a.Ban == 0 {
		return m.refuse(r, now, cost, false, s)
	}
	b := r.Ban.prune(s, now)
	b.ban(now, a.Ban)
	s = b.state(r.Ban)
	v, level = m.read(r, now, cost, s)
	return v, level, s, true
}

// If record is set, refuse counts a refusal by the user's limits. The refusal may lead to a ban.
func (m *bans) refuse(r *Rule, now, cost int64, record bool, s State) (v numbers, level int64, _ State, changed bool) {
	b := s.bans(now)
	if record || b != nil && b.behind(now) > 0 {
		b, changed = r.Ban.prune(s, now), true
	}
	if record {
		b.Last = now
		if b.Refusals = append(b.Refusals, now); len(b.Refusals) >= r.Ban.Refusals {
			length := r.Ban.Bans[min(b.Level, len(r.Ban.Bans)-1)]
			b.Level++
			b.ban(now, length)
		}
	}
	if changed {
		s = b.state(r.Ban)
	}
	v, level = m.read(r, now, cost, s)
	return v, level, s, changed
}

// ban starts a ban of a length at now. It replaces a ban that has not ended.
func (b *banRecord) ban(now, length int64) {
	b.Last, b.Until, b.Refusals = now, now+length, b.Refusals[:0]
}

// prune returns the record as it counts at now. It removes refusals that no longer count, and moves
// the record back if the clock stepped back.
func (r *BanRule) prune(s State, now int64) *banRecord {
	b := s.bans(now)
	if b == nil {
		return new(banRecord)
	}
	behind := b.behind(now)
	b.Last -= behind
	b.Until = max(0, b.Until-behind)
	for i := range b.Refusals {
		b.Refusals[i] -= behind
	}
	b.Level = r.level(b, now)
	b.Refusals = b.Refusals[:copy(b.Refusals, b.Refusals[r.dead(b, now):])]
	return b
}

func (*bans) read(r *Rule, now, _ int64, s State) (v numbers, level int64) {
	b := s.bans(now)
	if b == nil {
		return
	}
	now += b.behind(now)
	live := banRecord{Last: b.Last, Until: b.Until, Level: r.Ban.level(b, now), Refusals: b.Refusals[r.Ban.dead(b, now):]}
	v.Count, v.Rest.Whole, v.Wait = int64(len(live.Refusals)), max(0, r.Ban.forgotten(&live)-now), max(0, live.Until-now)
	return v, int64(live.Level)
}

// amend gives nothing back, because a refusal stays recorded.
func (*bans) amend(_ *Rule, _ int64, _ Taken, _ Amendment, s State) (State, bool) { return s, false }

func (*bans) save(_ *Rule, b []byte, s State) []byte {
	x := s.Data.(*banRecord)
	return appendInstants(appendInts(b, x.Last, x.Until, int64(x.Level)), len(x.Refusals), func(i int) int64 { return x.Refusals[i] })
}

// level returns b.Level as it counts at an instant.
func (r *BanRule) level(b *banRecord, now int64) int {
	if now >= max(b.Last, b.Until)+r.ForgetAfter {
		return 0
	}
	return b.Level
}

// dead returns the number of refusals that no longer count at an instant.
func (r *BanRule) dead(b *banRecord, now int64) (n int) {
	for n < len(b.Refusals) && b.Refusals[n]+r.Within <= now {
		n++
	}
	return n
}

// forgotten returns the instant from which the record no longer matters.
func (r *BanRule) forgotten(b *banRecord) int64 {
	end := max(b.Last, b.Until)
	if b.Level > 0 {
		end += r.ForgetAfter
	}
	if len(b.Refusals) > 0 {
		end = max(end, b.Last+r.Within)
	}
	return end
}
