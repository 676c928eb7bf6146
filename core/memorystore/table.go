package memorystore

import (
	"math"
	"math/bits"
	"sync"

	"github.com/tailcut/tailcut/core"
)

// A shard is a table of slots in the order of their hashes, with gaps: linear
// probing in which a search ends at the first larger hash. It grows by a third at
// a time, which keeps it three quarters to nine tenths full.
type shard struct {
	mu      sync.Mutex
	slots   []slot
	latest  int64  // the last instant at which anything was decided
	size    uint64 // hashes are spread over so many slots; the rest is for overflow
	used    int
	hand    int // the next slot to look at for what has expired
	trails  arena[*core.Trail]
	meters  arena[core.Meter]
	ladders arena[*core.Standing]
	_       [48]byte // then a shard begins a line of the processor's
}

// A slot is the state of one key. A meter and a counter stand in it; a trail, a
// ladder's standing, and a meter of which more is to be known than when its debt is gone,
// stand in an arena.
type slot struct {
	hash
	expires int64  // when the key may be dropped; of a meter and a counter, their instant
	refused int64  // until when an action of cost 1 is refused
	word    uint64 // meter: part and denominator; counter: count; or where, and a tag
}

// refuse protects the key from eviction until then.
func (s *slot) refuse(until int64) { s.refused = max(s.refused, until) }

// pour decides a charge of a Plain limit, whose meter the slot is.
func (s *slot) pour(l *core.Limit, cost, now int64) core.Level {
	var m core.Meter
	s.meter(&m)
	v, changed := l.Pour(&m, s.expires > now, now, cost)
	if changed {
		s.expires, s.refused, s.word = m.Expires(), m.RefusedUntil(l, 1), meterWord(&m)
	}
	if !v.Fits {
		s.refuse(m.RefusedUntil(l, cost))
	}
	return v
}

// meter is the meter that stands in the slot. It fills m in, since a struct that is
// copied while it is new costs a decision 5 ns.
func (s *slot) meter(m *core.Meter) {
	m.At, m.Part, m.Den, m.Last = s.expires, uint32(s.word>>32), uint32(s.word), core.UnknownLast
	if m.Part > 0 {
		m.At--
	}
}

func meterWord(m *core.Meter) uint64 { return uint64(m.Part)<<32 | uint64(m.Den) }

const (
	tagTrail  = 1 << 63
	tagMeter  = 1 << 62
	tagLadder = tagTrail | tagMeter
	tags      = tagLadder
)

// A place is where a key's slot is, or would be.
type place struct {
	hash
	at       int
	found    bool
	reserved bool // counted, not yet inserted
}

const (
	minSize   = 8
	probe     = 32 // slots looked at for one to evict
	sweep     = 2  // slots looked at for what has expired, per new key
	fullSweep = 64 // the same, at the bound
)

func (sh *shard) home(h uint64) int {
	hi, _ := bits.Mul64(h, sh.size)
	return int(hi)
}

func (sh *shard) find(h hash) place {
	i := sh.home(h.hi)
	for ; i < len(sh.slots); i++ {
		s := &sh.slots[i]
		if s.hi >= h.hi {
			if s.hash == h {
				return place{hash: h, at: i, found: true}
			}
			if s.hi > h.hi {
				break
			}
		} else if s.hi == 0 {
			break
		}
	}
	return place{hash: h, at: i}
}

// meter is the slot of a key whose meter stands in it, or nil.
func (sh *shard) meter(h hash) *slot {
	if p := sh.find(h); p.found && sh.slots[p.at].word&tags == 0 {
		return &sh.slots[p.at]
	}
	return nil
}

// findAgain finds the places anew after slots have moved.
func (sh *shard) findAgain(places []place) {
	for i := range places {
		p := sh.find(places[i].hash)
		p.reserved = places[i].reserved
		places[i] = p
	}
}

// insert adds an empty slot for the i-th place and returns how many expired ones
// went.
func (sh *shard) insert(places []place, i int, now int64) (dropped int) {
	p := &places[i]
	dropped = sh.sweep(sweep, places, now)
	if uint64(sh.used+1)*10 > sh.size*9 {
		dropped += sh.rehash(now)
	}
	for {
		*p = sh.find(p.hash)
		end := p.at
		for end < len(sh.slots) && sh.slots[end].hi != 0 {
			end++
		}
		if end < len(sh.slots) {
			copy(sh.slots[p.at+1:end+1], sh.slots[p.at:end])
			break
		}
		dropped += sh.rehash(now)
	}
	sh.slots[p.at] = slot{hash: p.hash}
	sh.used++
	sh.findAgain(places)
	return dropped
}

// rehash drops what has expired and spreads the rest over a larger table.
func (sh *shard) rehash(now int64) (dropped int) {
	old := sh.slots
	for i := range old {
		if old[i].hi != 0 && old[i].expires <= now {
			sh.release(old[i].word)
			old[i].hi = 0
			dropped++
		}
	}
	sh.used -= dropped
	size := max(minSize, sh.used+sh.used/3+1)
	if int(sh.size) >= size && dropped == 0 { // the overflow ran out
		size = int(sh.size) + int(sh.size)/3
	}
	for {
		if sh.spread(old, size) {
			return dropped
		}
		size += size / 3
	}
}

func (sh *shard) spread(old []slot, size int) bool {
	sh.size = uint64(size)
	sh.slots = make([]slot, size+max(minSize, min(64, size/8)))
	sh.hand = 0
	next := 0
	for i := range old {
		if old[i].hi == 0 {
			continue
		}
		next = max(next, sh.home(old[i].hi))
		if next == len(sh.slots) {
			return false
		}
		sh.slots[next] = old[i]
		next++
	}
	return true
}

// remove takes out the slot at i and moves those back that it kept from home.
func (sh *shard) remove(i int) {
	sh.release(sh.slots[i].word)
	end := i + 1
	for end < len(sh.slots) && sh.slots[end].hi != 0 && sh.home(sh.slots[end].hi) < end {
		end++
	}
	copy(sh.slots[i:end-1], sh.slots[i+1:end])
	sh.slots[end-1] = slot{}
	sh.used--
}

// sweep removes what has expired among the next n slots, but for the places, which
// may be about to be written.
func (sh *shard) sweep(n int, places []place, now int64) (dropped int) {
	for range min(n, len(sh.slots)) {
		if sh.hand >= len(sh.slots) {
			sh.hand = 0
		}
		if s := &sh.slots[sh.hand]; s.hi != 0 && s.expires <= now && !spared(places, s.hash) {
			sh.remove(sh.hand) // and look at what moved there
			dropped++
		} else {
			sh.hand++
		}
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
	victim := -1
	sh.around(sh.home(places[i].hi), func(at int) {
		if s := &sh.slots[at]; s.mayGo(places, now) && (victim < 0 || s.expires < sh.slots[victim].expires) {
			victim = at
		}
	})
	if victim < 0 {
		return 0
	}
	sh.remove(victim)
	return 1
}

// victims counts those that evict would choose from.
func (sh *shard) victims(places []place, i int, now int64) (n int) {
	sh.around(sh.home(places[i].hi), func(at int) {
		if sh.slots[at].mayGo(places, now) {
			n++
		}
	})
	return n
}

func (s *slot) mayGo(places []place, now int64) bool {
	return (s.refused <= now || s.expires <= now) && !spared(places, s.hash)
}

// nextFree is when the first of the refused keys around p can be dropped.
func (sh *shard) nextFree(p place, now int64) int64 {
	first := int64(math.MaxInt64)
	sh.around(sh.home(p.hi), func(at int) {
		if s := &sh.slots[at]; s.refused > now {
			first = min(first, s.refused)
		}
	})
	if first == math.MaxInt64 {
		return now
	}
	return first
}

// around visits up to probe keys from a slot on.
func (sh *shard) around(from int, visit func(at int)) {
	seen := 0
	for k := 0; k < len(sh.slots) && seen < probe; k++ {
		at := from + k
		if at >= len(sh.slots) {
			at -= len(sh.slots)
		}
		if sh.slots[at].hi != 0 {
			seen++
			visit(at)
		}
	}
}

// load brings what is kept at p into the state. What has expired is not kept, but
// its trail is used again.
func (sh *shard) load(p place, l *core.Limit, st *core.State, now int64) {
	if !p.found {
		return
	}
	s := &sh.slots[p.at]
	st.Kept = s.expires > now
	switch at := s.word &^ tags; s.word & tags {
	case tagTrail:
		st.Trail = sh.trails.items[at]
	case tagMeter:
		st.Meter = sh.meters.items[at]
	case tagLadder:
		st.Standing = sh.ladders.items[at]
	default:
		if l.Kind() == core.KindFunnel || l.Kind() == core.KindTokenBucket {
			s.meter(&st.Meter)
		} else {
			st.Counter = core.Counter{Count: int64(s.word), End: s.expires}
		}
	}
}

// store writes the state to the slot at p.
func (sh *shard) store(p place, l *core.Limit, st *core.State) {
	s := &sh.slots[p.at]
	s.expires, s.refused = st.Expires(l), st.RefusedUntil(l)
	switch {
	case st.Trail != nil:
		if s.word == 0 {
			s.word = tagTrail | sh.trails.add(st.Trail)
		}
	case st.Standing != nil:
		if s.word == 0 {
			s.word = tagLadder | sh.ladders.add(st.Standing)
		} else {
			sh.ladders.items[s.word&^tags] = st.Standing
		}
	case l.Memory() > 0 || st.Meter.Turns != 0 || st.Meter.Given != nil:
		if s.word&tagMeter == 0 {
			s.word = tagMeter | sh.meters.add(st.Meter)
		} else {
			sh.meters.items[s.word&^tags] = st.Meter
		}
	case l.Kind() == core.KindFunnel || l.Kind() == core.KindTokenBucket:
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
	case tagLadder:
		sh.ladders.drop(at)
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
