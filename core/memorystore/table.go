package memorystore

import (
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tailcut/tailcut/core/machine"
)

// A shard is a table of slots, and what of their keys does not fit into them. Its lock
// is for keys that come and go, for what is not a meter, and for several limits at once.
// A meter of which nothing more is known is decided under the lock of its slot alone: then
// two processors share no line of memory but that slot's.
type shard struct {
	mu     sync.Mutex
	table  *table
	live   *atomic.Pointer[table] // the same, for who has not the lock
	used   int                    // keys
	taken  int                    // places in the table where a search goes on
	hand   int                    // the next slot to look at for what has expired
	trails arena[*machine.Trail]
	meters arena[machine.Meter]
	bans   arena[*machine.Bans]
}

// A table finds a key at the first place from its home on that is not taken by another
// (linear probing). It is made anew when it is full enough, so that no key ever moves. The
// keys are apart from their slots: what is searched is not what is written all the time.
type table struct {
	keys  []hash
	slots []slot
}

// A slot is the state of one key. A meter and a counter stand in it; a trail, a
// ban policy's state, and a meter of which more is to be known than when its debt is gone,
// stand in an arena.
//
// The slot of a meter is written under its own lock, the others under the shard's. To add
// a key or to take it out, the shard's is needed too.
type slot struct {
	expires int64  // when the key may be dropped; of a meter and a counter, their instant; and the lock
	word    uint64 // meter: the part; counter: count; or where, and a tag
	refused int64  // until when somebody was refused, or else when a meter was written
}

// Where there is no key, hi says what has been there. The slot of a meter is not given to
// another kind: somebody who is late may still lock it.
const (
	empty     = 0
	dead      = 2 // or 3, as it was a meter's
	leastHash = 4
	metered   = 1 // the bit of hi that tells a meter's key
)

func (h hash) metered() bool { return h.hi&metered != 0 }

// tryLock locks the slot of a meter and returns its expires, which the holder may change,
// and gives back to unlock. It gives up soon: who has only the slot's lock holds it for
// some ten nanoseconds, and who holds it for longer has the shard's, so that the one to
// wait for is that, where to wait is to sleep.
func (s *slot) tryLock() (expires int64, ok bool) {
	for range patience {
		if expires = atomic.LoadInt64(&s.expires); expires >= 0 && atomic.CompareAndSwapInt64(&s.expires, expires, expires|locked) {
			return expires, true
		}
	}
	return 0, false
}

// lock is tryLock for who has the shard's lock, and so does not give up.
func (s *slot) lock() int64 {
	for {
		if expires, ok := s.tryLock(); ok {
			return expires
		}
		runtime.Gosched() // its holder may wait for this processor
	}
}

const (
	locked   = math.MinInt64
	patience = 64
)

func (s *slot) unlock(expires int64) { atomic.StoreInt64(&s.expires, max(0, expires)) }

// refuse protects the key from eviction until then.
func (s *slot) refuse(until int64) { s.refused = max(s.refused, until) }

// pour decides a charge of a Plain limit, whose meter the slot is.
func (s *slot) pour(r *machine.Rule, expires *int64, now, cost int64) machine.Level {
	var m machine.Meter
	s.meter(&m, *expires)
	v, until := r.Pour(&m, *expires > now, now, cost)
	if v.Fits {
		*expires = m.Expires()
		if word := meterWord(&m); word != s.word {
			s.word = word
		}
		until = max(until, now)
	}
	if until > s.refused {
		s.refused = until
	}
	return v
}

// meter is the meter that stands in the slot. It fills m in, since a struct that is
// copied while it is new costs a decision 5 ns.
func (s *slot) meter(m *machine.Meter, expires int64) {
	m.TAT, m.Part = expires, uint32(s.word)
	if m.Part > 0 {
		m.TAT--
	}
}

func meterWord(m *machine.Meter) uint64 { return uint64(m.Part) }

const (
	tagTrail = 1 << 63
	tagMeter = 1 << 62
	tagBans  = tagTrail | tagMeter
	tags     = tagBans
)

// A place is where a key's slot is, if there is one.
type place struct {
	hash
	at       int
	found    bool
	reserved bool  // counted, not yet inserted
	expires  int64 // the slot's
}

const (
	minSize   = 8
	fullest   = 85 // percent of the places: searches grow with the square of what is left
	probe     = 32 // slots looked at for one to evict
	sweep     = 2  // slots looked at for what has expired, per new key
	fullSweep = 32 // the same, at the bound
)

func (t *table) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(t.keys)))
	return int(hi)
}

func (t *table) next(i int) int {
	if i++; i < len(t.keys) {
		return i
	}
	return 0
}

// search says where a meter's key may be, or -1. It is for who has not the shard's lock: the
// key may be gone when its slot is locked, and one that is not found may be there.
func (t *table) search(h hash) int {
	i := t.home(h.hi)
	for range t.keys {
		switch atomic.LoadUint64(&t.keys[i].hi) {
		case h.hi:
			return i
		case empty:
			return -1
		}
		i = t.next(i)
	}
	return -1
}

// holds is whether the key is at i, where the slot is locked.
func (t *table) holds(i int, h hash) bool {
	return atomic.LoadUint64(&t.keys[i].hi) == h.hi && t.keys[i].lo == h.lo
}

// find says where a key is, or else a free slot for it.
func (t *table) find(h hash) (at int, found bool) {
	at = -1
	i := t.home(h.hi)
	for range t.keys {
		k := &t.keys[i]
		if *k == h {
			return i, true
		}
		if k.hi < leastHash {
			if at < 0 && (k.hi == empty || k.metered() == h.metered()) {
				at = i
			}
			if k.hi == empty {
				return at, false
			}
		}
		i = t.next(i)
	}
	return at, false
}

// has is whether there is a key at i.
func (t *table) has(i int) bool { return t.keys[i].hi >= leastHash }

// open locks the slot at i if it is a meter's, and returns its expires, to give to close.
func (t *table) open(i int) (expires int64) {
	if t.keys[i].metered() {
		return t.slots[i].lock()
	}
	return t.slots[i].expires
}

func (t *table) close(i int, expires int64) {
	if t.keys[i].metered() {
		t.slots[i].unlock(expires)
	} else {
		t.slots[i].expires = expires
	}
}

// until is the expires of a slot that is not open.
func (t *table) until(i int) int64 { return atomic.LoadInt64(&t.slots[i].expires) &^ locked }

// enter fills in the zero place of a key, and opens its slot if there is one.
func (sh *shard) enter(p *place, h hash) {
	p.hash = h
	if p.at, p.found = sh.table.find(h); p.found {
		p.expires = sh.table.open(p.at)
	}
}

// leave closes the slot, if there is one.
func (sh *shard) leave(p *place) {
	if p.found {
		sh.table.close(p.at, p.expires)
	}
}

// settle writes what has become of a state, keeps it until then if it refuses, and closes
// its slot.
func (sh *shard) settle(p *place, r *machine.Rule, st *machine.State, now, until int64) {
	if st.Dirty {
		sh.store(p, r, st, now)
	}
	if !st.Fits {
		sh.table.slots[p.at].refuse(until)
	}
	sh.leave(p)
}

// insert adds the i-th place, with its slot open, and returns how many expired keys went.
// No slot may be open.
func (sh *shard) insert(places []place, i int, now int64) (dropped int) {
	p := &places[i]
	dropped = sh.sweep(sweep, places, now)
	p.at, _ = sh.table.find(p.hash)
	if p.at < 0 || sh.table.keys[p.at].hi == empty && (sh.taken+1)*100 > len(sh.table.keys)*fullest {
		dropped += sh.rehash(now)
		p.at, _ = sh.table.find(p.hash)
	}
	k := &sh.table.keys[p.at]
	if k.hi == empty {
		sh.taken++
		atomic.StoreUint64(&k.hi, p.hi&metered|dead)
	}
	sh.table.open(p.at)
	k.lo = p.lo
	atomic.StoreUint64(&k.hi, p.hi)
	p.found, p.expires = true, 0
	sh.used++
	return dropped
}

// rehash drops what has expired and moves the rest to a new table.
func (sh *shard) rehash(now int64) (dropped int) {
	old := sh.table
	for i := range old.keys {
		if old.expired(i, now) {
			dropped += sh.drop(i, now)
		}
	}
	size := max(minSize, sh.used+sh.used/3+1)
	t := &table{make([]hash, size), make([]slot, size)}
	for i := range old.keys {
		if !old.has(i) {
			continue
		}
		k, s := &old.keys[i], &old.slots[i]
		at, _ := t.find(*k)
		expires := old.open(i)
		t.keys[at], t.slots[at] = *k, slot{expires, s.word, s.refused}
		atomic.StoreUint64(&k.hi, k.hi&metered|dead) // who comes here comes too late
		old.close(i, 0)
	}
	sh.table, sh.taken, sh.hand = t, sh.used, 0
	sh.live.Store(t)
	return dropped
}

// expired is whether there is a key at i that seems to have expired.
func (t *table) expired(i int, now int64) bool { return t.until(i) <= now && t.has(i) }

// drop removes the key at i if it has expired, and returns how many went.
func (sh *shard) drop(i int, now int64) int {
	if expires := sh.table.open(i); expires > now {
		sh.table.close(i, expires)
		return 0
	}
	sh.remove(i)
	return 1
}

// remove takes out the key at i, whose slot is open.
func (sh *shard) remove(i int) {
	k, s := &sh.table.keys[i], &sh.table.slots[i]
	sh.release(s.word)
	atomic.StoreUint64(&k.hi, k.hi&metered|dead)
	k.lo, s.word, s.refused = 0, 0, 0
	sh.table.close(i, 0)
	sh.used--
}

// sweep removes what has expired among the next n slots, but for the places, which
// may be about to be written.
func (sh *shard) sweep(n int, places []place, now int64) (dropped int) {
	t := sh.table
	for range min(n, len(t.keys)) {
		if t.expired(sh.hand, now) && !spared(places, t.keys[sh.hand]) {
			dropped += sh.drop(sh.hand, now)
		}
		sh.hand = t.next(sh.hand)
	}
	return dropped
}

func spared(places []place, h hash) bool {
	for i := range places {
		if places[i].hash == h {
			return true
		}
	}
	return false
}

// evict makes room for the i-th place, next to where it would be, and returns how
// many keys went. It spares what is refused, and the other places.
func (sh *shard) evict(places []place, i int, now int64) int {
	if dropped := sh.sweep(fullSweep, places, now); dropped > 0 {
		return dropped
	}
	t, victim, least := sh.table, -1, int64(math.MaxInt64)
	sh.around(places[i].hi, places, func(i int) {
		if t.until(i) >= least {
			return
		}
		expires := t.open(i)
		if expires >= least || !t.slots[i].mayGo(expires, now) {
			t.close(i, expires)
			return
		}
		if victim >= 0 {
			t.close(victim, least)
		}
		victim, least = i, expires
	})
	if victim < 0 {
		return 0
	}
	sh.remove(victim)
	return 1
}

// victims is how many evict is sure to find: what it would sweep, or else choose from.
func (sh *shard) victims(places []place, i int, now int64) int {
	t, swept, chosen := sh.table, 0, 0
	at := sh.hand
	for range min(fullSweep, len(t.keys)) {
		if t.expired(at, now) && !spared(places, t.keys[at]) {
			swept++
		}
		at = t.next(at)
	}
	sh.around(places[i].hi, places, func(i int) {
		expires := t.open(i)
		if t.slots[i].mayGo(expires, now) {
			chosen++
		}
		t.close(i, expires)
	})
	return max(swept, chosen)
}

func (s *slot) mayGo(expires, now int64) bool { return s.refused <= now || expires <= now }

// nextFree is when the first of the refused keys around the i-th place can be dropped.
func (sh *shard) nextFree(places []place, i int, now int64) int64 {
	first := int64(math.MaxInt64)
	sh.around(places[i].hi, places, func(i int) {
		expires := sh.table.open(i)
		if s := &sh.table.slots[i]; !s.mayGo(expires, now) {
			first = min(first, s.refused, expires)
		}
		sh.table.close(i, expires)
	})
	if first == math.MaxInt64 {
		return now
	}
	return first
}

// around visits up to probe keys from the home of a hash on, less the places.
func (sh *shard) around(h uint64, places []place, visit func(i int)) {
	t := sh.table
	i, seen := t.home(h), 0
	for range t.keys {
		if t.has(i) {
			if seen++; !spared(places, t.keys[i]) {
				visit(i)
			}
		}
		if seen == probe {
			return
		}
		i = t.next(i)
	}
}

// load brings what is kept at p into the state. What has expired is not kept, but
// its trail is used again.
func (sh *shard) load(p *place, st *machine.State, now int64) {
	if !p.found {
		return
	}
	s := &sh.table.slots[p.at]
	st.Exists = p.expires > now
	switch at := s.word &^ tags; s.word & tags {
	case tagTrail:
		st.Trail = sh.trails.items[at]
	case tagMeter:
		st.Meter = sh.meters.items[at]
	case tagBans:
		st.Bans = sh.bans.items[at]
	default:
		if p.metered() {
			s.meter(&st.Meter, p.expires)
		} else {
			st.Counter = machine.Counter{Count: int64(s.word), End: p.expires}
		}
	}
}

// store writes the state to the slot at p.
func (sh *shard) store(p *place, r *machine.Rule, st *machine.State, now int64) {
	s := &sh.table.slots[p.at]
	p.expires, s.refused = r.Expires(st), max(now, r.RefusedUntil(st))
	switch {
	case st.Trail != nil:
		if s.word == 0 {
			s.word = tagTrail | sh.trails.add(st.Trail)
		}
	case st.Bans != nil:
		if s.word == 0 {
			s.word = tagBans | sh.bans.add(st.Bans)
		} else {
			sh.bans.items[s.word&^tags] = st.Bans
		}
	case r.ForgetAfter > 0 || st.Meter.Turns != 0 || st.Meter.Refunds != nil:
		if s.word&tagMeter == 0 {
			s.word = tagMeter | sh.meters.add(st.Meter)
		} else {
			sh.meters.items[s.word&^tags] = st.Meter
		}
	case p.metered():
		sh.release(s.word)
		s.word = meterWord(&st.Meter)
	default:
		s.word = uint64(st.Counter.Count)
	}
}

// release gives back what a slot has in an arena.
func (sh *shard) release(word uint64) {
	switch at := word &^ tags; word & tags {
	case tagTrail:
		sh.trails.drop(at)
	case tagMeter:
		sh.meters.drop(at)
	case tagBans:
		sh.bans.drop(at)
	}
}

// An arena holds what does not fit into a slot.
type arena[T any] struct {
	items []T
	free  []uint32
}

func (a *arena[T]) add(v T) uint64 {
	if n := len(a.free); n > 0 {
		i := a.free[n-1]
		a.free = a.free[:n-1]
		a.items[i] = v
		return uint64(i)
	}
	a.items = append(a.items, v)
	return uint64(len(a.items) - 1)
}

func (a *arena[T]) drop(i uint64) {
	var zero T
	a.items[i] = zero
	a.free = append(a.free, uint32(i))
}
