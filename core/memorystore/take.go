package memorystore

// The methods that a limiter calls. Each call is a transaction: the store locks the shards of the
// users, finds the states, and writes them back. Take and the functions that it calls come first.
// room.go has what a new key needs.

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Take decides a charge in one atomic step. If the charge has at most four limits, and the store
// has all their keys, Take allocates memory for two things only: a receipt, and the data of a
// state, such as the queue of a window, when it begins or grows.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	more := c.More
	limits, subjects := len(c.Limits), 1+len(more)
	for i := range more {
		limits += len(more[i].Limits)
	}
	var tx transaction
	switch most := max(limits, subjects); {
	case most == 1:
		var shards [1]int
		var refs [1]ref
		var entries [1]machine.Entry
		tx.shards, tx.refs, tx.entries = shards[:], refs[:limits], entries[:limits]
	case most <= onStack:
		var shards [onStack]int
		var refs [onStack]ref
		var entries [onStack]machine.Entry
		tx.shards, tx.refs, tx.entries = shards[:subjects], refs[:limits], entries[:limits]
	default:
		tx.shards, tx.refs, tx.entries = make([]int, subjects), make([]ref, limits), make([]machine.Entry, limits)
	}
	s.add(&tx, 0, c.User, c.Action, c.Limits)
	for i := range more {
		p := &more[i]
		s.add(&tx, i+1, p.User, p.Action, p.Limits)
	}
	s.begin(&tx)
	defer s.end(&tx)
	passes := c.Check(tx.entries, tx.now)
	if passes && tx.fresh {
		if lacks, wait := s.makeRoom(&tx, &c); lacks != nil {
			if c.Mode == machine.ModePeek {
				r = c.Commit(&d, tx.entries, tx.now, passes) // a Status has the numbers of every limit
			}
			return noRoom(&c, lacks, wait), r, nil
		}
	}
	r = c.Commit(&d, tx.entries, tx.now, passes)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// The key is protected, although another limiter or a smaller cost might have room. To drop
		// it would give the user a full quota.
		until = tx.now + int64(d.RetryAfter/time.Microsecond)
	}
	for i := range tx.refs {
		if r, e := &tx.refs[i], &tx.entries[i]; r.slot != nil && (e.Dirty || !e.Fits) {
			r.save(e, tx.now, until)
		}
	}
	if tx.fresh {
		if lacks := s.saveNew(&tx, until); lacks != nil {
			return noRoom(&c, lacks, longestWait), nil, nil
		}
	}
	if r != nil {
		r.By = s
	}
	return d, r, nil
}

// A transaction is a charge or a change that is being made, under the locks of its shards.
type transaction struct {
	now      int64
	fresh    bool            // the store has no state for one of the refs
	refs     []ref           // one for each limit
	entries  []machine.Entry // one for each ref
	added    int             // how many refs are filled in
	shards   []int           // the index of the shard of each subject
	reserved int64           // places that Store.used counts for keys that are not inserted yet
	evicted  *evicted        // nil if nothing was dropped
}

// evicted has the keys that a transaction has dropped for new keys. For a Peek it has the keys that
// a charge would drop. It is on the heap, unlike the transaction.
type evicted struct {
	keys   []hash
	shards []int // further shards that are locked to drop keys
}

// onStack is the number of limits and of subjects for which a transaction has room on the stack.
const onStack = 4

// A ref says where the state of a limit is, if the store has the state.
type ref struct {
	rule     *machine.Rule
	in       *table // the table of the user's shard
	key      hash
	slot     *slot // where the key was found, or nil; the key may have moved since
	subject  int32 // the index, as in core.Decision
	shared   bool  // the state is the one that all users without a key share
	reserved bool  // a place is reserved for the key
}

// add fills in the refs of one more subject.
func (s *Store) add(tx *transaction, subject int, user, action string, limits []core.Limit) {
	u, a := s.hash(user), s.hash(action)
	shard := s.index(u)
	in := &s.shards[shard].keys
	for i := range limits {
		r := &tx.refs[tx.added+i]
		r.rule, r.in, r.subject = limits[i].Rule(), in, int32(subject)
		r.key = key(u, a, r.rule)
	}
	tx.shards[subject], tx.added = shard, tx.added+len(limits)
}

func (s *Store) hash(name string) hash { return hash(maphash.String(s.seed, name)) }

// index returns the index of a user's shard. It uses the low bits of the hash. A table uses the
// high bits.
func (s *Store) index(user hash) int { return int(user & hash(len(s.shards)-1)) }

// key multiplies the hashes of the action and of the limit by these odd numbers. Without them, the
// same hashes in another order would make the same key.
const (
	oddAction = 0x9e3779b97f4a7c15
	oddLimit  = 0xc2b2ae3d27d4eb4f
)

// key returns the hash of a limit's state.
func key(user, action hash, r *machine.Rule) hash {
	if r.PerUser {
		action = 0
	}
	return max(user+oddAction*action+oddLimit*hash(r.Hash), 1) // 0 means that a slot is empty
}

// begin locks the shards of a charge's subjects and finds the states of the refs. The shards stay
// locked until end.
//
// It locks each shard once, in the order of the store's shards, because otherwise two charges could
// block each other for ever. It reads the clock when the shards are locked, because otherwise
// another charge could write a state of a later instant in the meantime.
func (s *Store) begin(tx *transaction) {
	if len(tx.shards) > 1 {
		slices.Sort(tx.shards)
	}
	for i, at := range tx.shards {
		if i == 0 || at != tx.shards[i-1] {
			s.shards[at].mu.Lock()
		}
	}
	tx.now = s.now()
	for i := range tx.refs {
		r, e := &tx.refs[i], &tx.entries[i]
		if _, found := r.locate(); found {
			e.State = r.in.load(r.slot)
		} else {
			tx.fresh = true
		}
		if r.rule.Calendar != nil {
			e.Epoch = s.epoch()
		}
	}
}

// save writes a state that is dirty. If the limit refuses, save protects the key: until the instant
// given by the argument until, the store does not drop the key for another key. The key of an
// enforced InFlight is protected until all leases end, because each slot that is forgotten would
// admit one more action at the same time.
func (r *ref) save(e *machine.Entry, now, until int64) {
	if r.slot.key != r.key {
		r.locate()
	}
	if e.Dirty {
		r.in.store(r.slot, &e.State)
		r.slot.level = r.in.level + part(r.rule, &e.Reading)
		r.slot.protect(now + e.Wait)
		if r.rule.TakesSlots() && !r.rule.Shadow {
			r.slot.protect(e.State.Expires)
		}
	}
	if !e.Fits {
		r.slot.protect(until)
	}
}

// protect keeps the key from being dropped for another key before the instant until.
func (s *slot) protect(until int64) { s.protected = max(s.protected, until) }

// locate finds the slot that has the key of a ref now.
func (r *ref) locate() (at int, found bool) {
	if at, found = r.in.search(r.key); found {
		r.slot = &r.in.slots[at]
	}
	return at, found
}

// end unlocks the shards of a transaction, and gives back the places that it has reserved and not
// used.
func (s *Store) end(tx *transaction) {
	for i, at := range tx.shards {
		if i == 0 || at != tx.shards[i-1] {
			s.shards[at].mu.Unlock()
		}
	}
	if tx.reserved > 0 {
		s.used.Add(-tx.reserved)
	}
	if tx.evicted != nil {
		for _, at := range tx.evicted.shards {
			s.shards[at].mu.Unlock()
		}
	}
}

// edit finds the states of the limits of a user and an action, and calls the function do under the
// lock. Then it writes or removes the dirty states.
func (s *Store) edit(user, action string, limits []core.Limit, do func(tx *transaction)) {
	tx := &transaction{refs: make([]ref, len(limits)), entries: make([]machine.Entry, len(limits)), shards: make([]int, 1)}
	s.add(tx, 0, user, action, limits)
	s.begin(tx)
	defer s.end(tx)
	do(tx)
	for i := range tx.refs {
		switch r, e := &tx.refs[i], &tx.entries[i]; {
		case r.slot == nil || !e.Dirty:
		case e.Expires > tx.now:
			r.rule.Read(e, tx.now, 1)
			r.save(e, tx.now, 0)
		default:
			at, _ := r.locate()
			r.in.remove(at)
			s.used.Add(-1)
		}
	}
}

// Amend refunds, releases or renews a charge, in one atomic step.
func (s *Store) Amend(_ context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	s.edit(r.User, r.Action, r.Limits, func(tx *transaction) { done = r.Amend(tx.entries, tx.now, a) })
	return done, nil
}

// Reset removes the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	s.edit(user, action, limits, func(tx *transaction) {
		for i := range tx.entries {
			tx.entries[i] = machine.Entry{Dirty: true}
		}
	})
	return nil
}
