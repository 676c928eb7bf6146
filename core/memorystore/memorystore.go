// Package memorystore keeps the state of limits in the process. It is the store to
// start with: nothing to install, nothing to close.
//
//	store := memorystore.New(nil)
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// Every process counts for itself; a fleet that must share its limits uses
// redisstore, with a memorystore to fall back on.
//
// # Memory
//
// The store is bounded by [Options].MaxKeys. A key is one limit of one user and
// action; a limiter of two limits takes two. A key takes about 50 bytes, whatever
// the length of the user and action, since only a keyed hash of them, of 127 bits, is
// kept. SlidingWindow and MovingWindow keep in addition about 150 bytes and 8 to 9
// bytes for each action of the period, a bucket with Initial 60 bytes, and a bucket or
// funnel from which something was given back 120 to 300 bytes until the debt of then
// has drained. So the worst case of a MovingWindow(1,000,000, d) is 8 MB a key, and
// MaxKeys does not bound that: choose the limit with it in mind.
//
// What has expired is dropped as new keys come. At the bound a new key takes the
// place of one that has expired, else of the one among some tens that is nearest
// to being whole and is not refused at present. The user of the key that went may
// then do again at once what it had already used up, at most one quota. A key that
// is refused is never dropped, so a flood of new keys forgives nobody. If all that
// were looked at are refused, the new key is refused with the reason core.ReasonFull.
//
// # Time
//
// The clock is the process's monotonic one, from a base taken in [New]. Changes
// of the wall clock do not matter.
package memorystore

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/short"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	defaultMaxKeys = 1 << 20
	maxMaxKeys     = 1 << 32

	// A shard holds about so many keys at the bound, more where that would take too many
	// shards: enough for a fair choice of what to drop, few enough that growing one is a
	// short pause.
	shardKeys = 4096
	maxShards = 4096
)

// Options are the settings of a store. The zero value is the default.
type Options struct {
	// MaxKeys bounds how many keys are kept: 1 to 4,294,967,296; 0 is 1,048,576.
	MaxKeys int

	// Clock tells the time, for a program that replays or simulates; nil is the process's
	// monotonic clock. It is read under a lock, so it must be quick, and it may step back.
	Clock func() time.Time
}

// Store is a [core.Store] in the process's memory. It is safe for use by many
// goroutines, starts none, and needs no closing.
type Store struct {
	seeds  [2]maphash.Seed
	base   time.Time
	clock  func() int64 // in tests; nil is the time since base
	max    int64
	used   atomic.Int64            // keys in all shards
	tables []atomic.Pointer[table] // of the shards
	shards []shard
}

// none is the table of a shard without keys.
var none table

// New makes a store. opts may be nil. It panics if an option is out of bounds.
func New(opts *Options) *Store {
	if opts == nil || opts.Clock == nil {
		return newStore(opts, nil)
	}
	clock, base := opts.Clock, opts.Clock()
	return newStore(opts, func() int64 { return max(1, epoch+clock().Sub(base).Microseconds()) })
}

// epoch is the instant of New on a clock of Options.Clock, so that it can step back far
// before anything is negative.
const epoch = 1 << 52

func newStore(opts *Options, clock func() int64) *Store {
	maxKeys := defaultMaxKeys
	if opts != nil && opts.MaxKeys != 0 {
		maxKeys = opts.MaxKeys
	}
	if maxKeys < 1 || int64(maxKeys) > maxMaxKeys {
		panic(fmt.Sprintf("memorystore: New: MaxKeys %d is not within 1 to %d; 0 is the default of %d", maxKeys, int64(maxMaxKeys), defaultMaxKeys))
	}
	shards := 1 << (bits.Len(uint(max(1, min(maxKeys/shardKeys, maxShards)))) - 1)
	s := &Store{
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		base:   time.Now().Add(-time.Microsecond), // no instant is 0, which to a Meter is none
		clock:  clock,
		max:    int64(maxKeys),
		tables: make([]atomic.Pointer[table], shards),
		shards: make([]shard, shards),
	}
	for i := range s.shards {
		s.shards[i].table, s.shards[i].live = &none, &s.tables[i]
		s.tables[i].Store(&none)
	}
	return s
}

func (s *Store) now() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return int64(time.Since(s.base) / time.Microsecond)
}

// hash is the identity of what the store keeps: 127 bits under random keys, so
// that nobody can search for two users that share a state.
type hash struct{ hi, lo uint64 }

// Odd multipliers tell the parts of a key apart.
const (
	oddAction = 0x9e3779b97f4a7c15
	oddLimit  = 0xc2b2ae3d27d4eb4f
)

func (s *Store) hash(user string) hash {
	return hash{hi: maphash.String(s.seeds[0], user), lo: maphash.String(s.seeds[1], user)}
}

// of is the key of a limit's state. An empty action stands for all of the user's.
func (s *Store) key(h hash, action string, r *machine.Rule) hash {
	if action != "" {
		a := maphash.String(s.seeds[0], action)
		h.hi += oddAction * a
		h.lo += oddLimit * bits.RotateLeft64(a, 32)
	}
	h.hi += oddLimit * r.Hash
	h.lo += oddAction * bits.RotateLeft64(r.Hash, 32)
	h.hi = max(h.hi, leastHash) &^ metered
	if r.Metered() {
		h.hi |= metered
	}
	return h
}

func (s *Store) keyOf(h hash, action string, l *core.Limit) hash {
	if l.AllActions() {
		action = ""
	}
	return s.key(h, action, l.Rule())
}

// shardOf is the shard of all states of a user, so that several limits are decided under
// one lock.
func (s *Store) shardOf(h hash) uint64 {
	hi, _ := bits.Mul64(h.lo, uint64(len(s.tables)))
	return hi
}

// Accept tells core.New that a limiter of more limits than there may be keys would
// refuse everybody.
func (s *Store) Accept(limits []core.Limit) error {
	if int64(len(limits)) > s.max {
		return fmt.Errorf("memorystore: %d limits need as many keys, and MaxKeys is %d", len(limits), s.max)
	}
	return nil
}

func init() {
	short.Register(func(store, _ any) short.Taker {
		if s, ok := store.(*Store); ok {
			return taker{s}
		}
		return nil
	})
}

// A taker decides the commonest charge, of a known key: what Take does, in one go.
type taker struct{ s *Store }

func (t taker) TakeOne(user, action string, r *machine.Rule, cost int64) machine.Level {
	h := t.s.hash(user)
	return t.s.pour(t.s.shardOf(h), t.s.key(h, action, r), r, cost)
}

// pour decides by the meter that stands in the slot of a key, if there is one, and if the
// slot's lock is to be had soon. The clock is read before the lock is taken, so that it is
// held for less long; and again if somebody has charged meanwhile who has read it later. A
// slot never sees time step back.
func (s *Store) pour(shard uint64, h hash, r *machine.Rule, cost int64) (v machine.Level) {
	t := s.tables[shard].Load()
	i := t.search(h)
	if i < 0 {
		return v
	}
	slot := &t.slots[i]
	before, now := atomic.LoadInt64(&slot.expires), s.now()
	expires, ok := slot.tryLock()
	if !ok {
		return v
	}
	if t.holds(i, h) && slot.word&tags == 0 {
		if expires != before && slot.refused > now {
			now = s.now()
		}
		v = slot.pour(r, &expires, now, cost)
	}
	slot.unlock(expires)
	return v
}

// few limits are decided on the stack.
const few = 4

// Take decides a charge in one atomic step. It does not allocate for keys that are
// known, but for a queue that grows, or for more than four limits.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, err error) {
	h := s.hash(c.User)
	shard := s.shardOf(h)
	if c.Short() { // and comes by a decorator: see TakeOne
		l := &c.Limits[0]
		if v := s.pour(shard, s.keyOf(h, c.Action, l), l.Rule(), c.Cost); v.Known {
			c.Pour(&d, v)
			return d, nil
		}
	}
	var fewStates [few]machine.State
	var fewPlaces [few]place
	states, places := fewStates[:], fewPlaces[:]
	if len(c.Limits) > few {
		states, places = make([]machine.State, len(c.Limits)), make([]place, len(c.Limits))
	}
	states, places = states[:len(c.Limits)], places[:len(c.Limits)]
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range c.Limits {
		sh.enter(&places[i], s.keyOf(h, c.Action, &c.Limits[i]))
	}
	now := s.now() // after the locks, so that nobody has been here later
	for i := range c.Limits {
		sh.load(&places[i], &states[i], now)
	}
	peek := c.Mode == machine.Peek
	if c.Check(states, now) {
		new := 0
		for i := range places {
			if places[i].found || !needed(&c, i) {
				continue
			}
			new++
			if peek && !s.roomFor(sh, places, i, new, now) || !peek && !s.reserve(sh, places, i, now) {
				s.cancel(places[:i])
				d = full(c, sh.nextFree(places, i, now)-now)
				for i := range places {
					sh.leave(&places[i])
				}
				return d, nil
			}
		}
	}
	c.Commit(&d, states, now)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// Whoever was refused is not to be forgiven, by another limiter's numbers or
		// at a smaller cost.
		until = now + int64(d.RetryAfter/time.Microsecond)
	}
	for i := range places {
		if places[i].found {
			sh.settle(&places[i], c.Limits[i].Rule(), &states[i], now, until)
			states[i].Dirty = false
		}
	}
	// New keys come last: what was just written is not expired, and not displaced.
	for i := range places {
		if states[i].Dirty && s.add(sh, places, i, now) {
			sh.settle(&places[i], c.Limits[i].Rule(), &states[i], now, until)
		}
	}
	d.Issue(s)
	return d, nil
}

// needed is whether the charge cannot pass without a place for its i-th limit. What
// cannot refuse, because it is rehearsed or a ban policy that has no refusal to record, is
// left out if the store is full.
func needed(c *core.Charge, i int) bool {
	l := &c.Limits[i]
	if l.Rule().Kind == machine.KindBan {
		return c.Ban > 0
	}
	return !l.Shadowed()
}

// Refund gives back what a charge has taken, in one atomic step.
func (s *Store) Refund(_ context.Context, r *core.Receipt, units int64) error {
	h := s.hash(r.User)
	sh := &s.shards[s.shardOf(h)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	states, places := make([]machine.State, len(r.Limits)), make([]place, len(r.Limits))
	for i := range r.Limits {
		sh.enter(&places[i], s.keyOf(h, r.Action, &r.Limits[i]))
	}
	now := s.now()
	for i := range r.Limits {
		sh.load(&places[i], &states[i], now)
	}
	r.Give(states, now, units)
	for i := range places {
		switch p := &places[i]; {
		case !p.found:
		case states[i].Dirty && !states[i].Exists:
			s.forget(sh, p)
		default:
			sh.settle(p, r.Limits[i].Rule(), &states[i], now, 0)
		}
	}
	return nil
}

// Reset forgets the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	h := s.hash(user)
	sh := &s.shards[s.shardOf(h)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range limits {
		var p place
		if sh.enter(&p, s.keyOf(h, action, &limits[i])); p.found {
			s.forget(sh, &p)
		}
	}
	return nil
}

func (s *Store) forget(sh *shard, p *place) {
	sh.remove(p.at)
	s.used.Add(-1)
}

// roomFor says whether reserve would find room for so many places, the i-th being
// the last.
func (s *Store) roomFor(sh *shard, places []place, i, n int, now int64) bool {
	missing := s.used.Load() + int64(n) - s.max
	return missing <= 0 || int64(sh.victims(places, i, now)) >= missing
}

// reserve makes room for the i-th place, at the bound by dropping another key.
func (s *Store) reserve(sh *shard, places []place, i int, now int64) bool {
	if s.used.Add(1) > s.max {
		s.used.Add(-1)
		dropped := sh.evict(places, i, now)
		if dropped == 0 {
			return false
		}
		s.used.Add(1 - int64(dropped))
	}
	places[i].reserved = true
	return true
}

func (s *Store) cancel(places []place) {
	for i := range places {
		if places[i].reserved {
			s.used.Add(-1)
		}
	}
}

// add makes a slot for a new key. What a refusal would add to a full store stays
// unwritten.
func (s *Store) add(sh *shard, places []place, i int, now int64) bool {
	if !places[i].reserved && !s.reserve(sh, places, i, now) {
		return false
	}
	s.used.Add(-int64(sh.insert(places, i, now)))
	return true
}

// full is the refusal of a key for which there is no room.
func full(c core.Charge, wait int64) core.Decision {
	d := time.Duration(max(1, wait)) * time.Microsecond
	return core.Decision{Limit: c.Limits[0].Quota(), RetryAfter: d, ResetAfter: d, Reason: core.ReasonFull, Source: core.SourceStore}
}
