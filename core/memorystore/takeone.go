package memorystore

import (
	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/mono"
	"github.com/tailcut/tailcut/core/internal/short"
	"github.com/tailcut/tailcut/core/machine"
)

func init() {
	short.Register(func(store, limit any) short.Taker {
		s, ok := store.(*Store)
		switch {
		case !ok:
			return nil
		case limit.(*core.Limit).AllActions():
			return allTaker{s}
		}
		return taker{s}
	})
}

// A taker decides the commonest charge: see commonest.
type taker struct{ s *Store }

func (t taker) TakeOne(user, action string, r *machine.Rule, cost int64) (machine.Verdict, mono.Time) {
	u := t.s.hash(user)
	return t.s.takeOne(t.s.shard(u), key(u, t.s.hash(action), r), r, cost)
}

// An allTaker is the taker of a limit with AllActions.
type allTaker struct{ s *Store }

func (t allTaker) TakeOne(user, _ string, r *machine.Rule, cost int64) (machine.Verdict, mono.Time) {
	u := t.s.hash(user)
	return t.s.takeOne(t.s.shard(u), key(u, allActions, r), r, cost)
}

// commonest reports whether takeOne may decide a charge: it has one limit, a cost of at most the
// quota, and nothing else set.
func commonest(c *core.Charge) bool {
	if len(c.Limits) != 1 || c.Mode != machine.Charge || c.Receipt || c.Patient || c.Ahead > 0 {
		return false
	}
	r := c.Limits[0].Rule()
	return r.Kind != machine.KindBan && c.Cost <= r.Max
}

// takeOne decides a charge of one limit, unless the store has no room for its key.
func (s *Store) takeOne(sh *shard, h hash, r *machine.Rule, cost int64) (v machine.Verdict, at mono.Time) {
	if packs(r) {
		if v, at = s.swap(&sh.keys, h, r, cost); v.Outcome != machine.Undecided {
			return v, at
		}
	}
	t := sh.table(r)
	sh.mu.Lock()
	slot, found := search(h, t.slots, t.wide)
	if found {
		t.slots[slot].unpack()
	}
	now, at := s.now() // no state is from a later instant
	if !found {
		slot, found = s.add(sh, t, h, now)
	}
	if found {
		v = t.decide(&t.slots[slot], r, now, cost)
	}
	sh.mu.Unlock()
	return v, at
}

// decide decides a charge of one limit, by the state in the slot, which is unpacked.
func (t *table) decide(slot *slot, r *machine.Rule, now, cost int64) (v machine.Verdict) {
	if r.Plain() && slot.word.Load()&tags == 0 {
		if v = slot.pour(r, now, cost); v.Outcome != machine.Undecided {
			slot.pack(r)
			return v
		}
	}
	var st machine.State
	t.load(slot, r, &st, now)
	v = r.Decide(&st, now, cost)
	if st.Dirty {
		t.store(slot, r, &st)
	}
	if v.Outcome == machine.Refused {
		read := v.Reading()
		slot.protect(now + r.RetryAfter(&read, cost))
	}
	return v
}
