package memorystore

// What a limiter asks of the store. Each is a transaction: the store locks the shards of the users, finds
// the states, and writes them back. In the order of Take, with the other methods at the end. What a new key
// needs is in room.go.

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Take decides a charge in one atomic step. For a known key it allocates only if a trail
// grows, and for a receipt.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, err error) {
	tx := s.begin(&c)
	defer s.end(tx)
	passes := c.Check(tx.states, tx.now)
	if passes && !tx.known {
		if lacks, wait := s.makeRoom(tx, &c); lacks != nil {
			if c.Mode == machine.ModePeek {
				c.Commit(tx.states, tx.now, passes) // a Status has the numbers of every limit
			}
			return full(&c, lacks, wait), nil
		}
	}
	d = c.Commit(tx.states, tx.now, passes)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// Another limiter, or a smaller cost, might have room. The key is protected
		// nonetheless: to drop it would give the user a full quota.
		until = tx.now + int64(d.RetryAfter/time.Microsecond)
	}
	tx.saveKnown(until)
	if lacks := s.saveNew(tx, until); lacks != nil {
		return full(&c, lacks, longestWait), nil
	}
	d.Issue(s)
	return d, nil
}

// A transaction is a charge that is being decided. It is on the heap, as its states must be, and used again.
type transaction struct {
	now    int64
	known  bool            // the store keeps all states that the charge needs to pass: see required
	refs   []ref           // one for each limit
	states []machine.State // those of the refs
	locked []int           // which shards are locked
}

var transactions = sync.Pool{New: func() any {
	few := new(struct { // one allocation
		transaction
		refs   [4]ref
		states [4]machine.State
		locked [4]int
	})
	few.transaction = transaction{refs: few.refs[:0], states: few.states[:0], locked: few.locked[:0]}
	return &few.transaction
}}

// A ref says where the state of a limit is, if the store keeps it.
type ref struct {
	limit    *core.Limit
	subject  int // as in core.Decision
	key      hash
	in       *table // that of the user's shard
	at       int    // the slot where it was found; it may have moved since
	found    bool
	shared   bool // the state is the one that users without a key share
	reserved bool // counted in Store.used, and not yet inserted
	dropped  hash // the key that is dropped for this one
}

// begin locks the shards of a charge's subjects, each once and in the store's order, so that no two
// charges wait for each other, and finds their states. It reads the clock under the locks, so that no
// state is from a later instant.
func (s *Store) begin(c *core.Charge) *transaction {
	tx := transactions.Get().(*transaction)
	for i := range 1 + len(c.And) {
		s.add(tx, c.Subject(i), i)
	}
	if len(tx.locked) > 1 {
		slices.Sort(tx.locked)
		tx.locked = slices.Compact(tx.locked)
	}
	for _, at := range tx.locked {
		s.shards[at].mu.Lock()
	}
	tx.now, tx.known = s.now(), true
	tx.states = slices.Grow(tx.states, len(tx.refs))[:len(tx.refs)]
	for i := range tx.refs {
		r := &tx.refs[i]
		s.find(r, &tx.states[i], tx.now)
		tx.known = tx.known && (r.found || !required(r, c))
	}
	return tx
}

// add adds the shard and the refs of one subject.
func (s *Store) add(tx *transaction, c *core.Charge, subject int) {
	user, action := s.hash(c.User), s.hash(c.Action)
	at := s.index(user)
	tx.locked = append(tx.locked, at)
	from := len(tx.refs)
	tx.refs = slices.Grow(tx.refs, len(c.Limits))[:from+len(c.Limits)]
	for i := range c.Limits {
		r := &tx.refs[from+i]
		r.limit, r.subject, r.in = &c.Limits[i], subject, &s.shards[at].keys
		r.key = key(user, action, r.limit)
	}
}

// find looks for the key of a ref, and fills in its state, a zero State.
func (s *Store) find(r *ref, state *machine.State, now int64) {
	rule := r.limit.Rule()
	if r.at, r.found = r.in.search(r.key); r.found {
		r.in.load(&r.in.slots[r.at], rule, state, now)
	}
	if rule.Calendar != nil {
		state.Epoch = s.epoch()
	}
}

// required reports whether a charge needs the ref to pass. That of a shadow limit it does not, nor
// that of a ban policy without a refusal to record: a full store leaves them out.
func required(r *ref, c *core.Charge) bool {
	if r.limit.Rule().Kind == machine.KindBan {
		return c.Ban > 0
	}
	return !r.limit.IsShadow()
}

func (s *Store) hash(name string) hash { return hash(maphash.String(s.seed, name)) }

// index is which shard a user has. It uses the low bits of the hash, and a table the high ones.
func (s *Store) index(user hash) int { return int(user & hash(len(s.shards)-1)) }

// Odd multipliers tell the parts of a key apart.
const (
	oddAction = 0x9e3779b97f4a7c15
	oddLimit  = 0xc2b2ae3d27d4eb4f
)

// key is the hash of a limit's state.
func key(user, action hash, l *core.Limit) hash {
	if l.IsPerUser() {
		action = 0
	}
	return max(user+oddAction*action+oddLimit*hash(l.Rule().Hash), 1) // 0 is no key
}

// saveKnown saves the states that the store keeps already.
func (tx *transaction) saveKnown(until int64) {
	for i := range tx.refs {
		if tx.refs[i].found {
			tx.save(i, until)
		}
	}
}

// save writes the i-th state if it is dirty. If its limit refuses, save protects the key until
// then.
func (tx *transaction) save(i int, until int64) {
	r, state := &tx.refs[i], &tx.states[i]
	if !state.Dirty && state.Fits {
		return
	}
	slot := r.locate()
	if state.Dirty {
		r.in.store(slot, r.limit.Rule(), state)
	}
	if !state.Fits {
		slot.protect(until)
	}
}

// locate returns the slot that has the key by now.
func (r *ref) locate() *slot {
	if r.in.slots[r.at].key != r.key {
		r.at, _ = r.in.search(r.key)
	}
	return &r.in.slots[r.at]
}

// end unlocks the shards of a charge, and gives back what it has reserved and not used.
func (s *Store) end(tx *transaction) {
	for _, at := range tx.locked {
		s.shards[at].mu.Unlock()
	}
	for i := range tx.refs {
		if tx.refs[i].reserved {
			s.used.Add(-1)
		}
		tx.refs[i] = ref{}
		tx.states[i] = machine.State{}
	}
	tx.refs, tx.states, tx.locked = tx.refs[:0], tx.states[:0], tx.locked[:0]
	transactions.Put(tx)
}

// Amend refunds, releases or renews a charge, in one atomic step.
func (s *Store) Amend(_ context.Context, receipt *core.Receipt, a machine.Amendment) (done bool, err error) {
	tx := s.begin(&core.Charge{User: receipt.User, Action: receipt.Action, Limits: receipt.Limits})
	defer s.end(tx)
	done = receipt.Amend(tx.states, tx.now, a)
	for i := range tx.refs {
		switch r, state := &tx.refs[i], &tx.states[i]; {
		case !r.found || !state.Dirty:
		case state.Exists:
			tx.save(i, 0)
		default:
			s.remove(r)
		}
	}
	return done, nil
}

// Reset removes the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	tx := s.begin(&core.Charge{User: user, Action: action, Limits: limits})
	defer s.end(tx)
	for i := range tx.refs {
		if r := &tx.refs[i]; r.found {
			s.remove(r)
		}
	}
	return nil
}

func (s *Store) remove(r *ref) {
	r.locate()
	r.in.remove(r.at)
	s.used.Add(-1)
}
