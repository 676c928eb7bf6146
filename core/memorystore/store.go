package memorystore

// The store, its options, and how it is made.

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
)

const (
	defaultMaxKeys = 1 << 20
	maxMaxKeys     = 1 << 32

	// In a full store, a shard holds on average from shardKeys to twice as many keys. The average may
	// be higher if there are maxShards shards, and lower if MaxKeys is below shardKeys. If there are
	// many shards, processors rarely wait for a lock. If a table is small, it grows quickly, and its
	// shard is locked only for a short time.
	shardKeys = 4096
	maxShards = 4096
)

// Options are the settings of a store. The zero value is the default.
type Options struct {
	// MaxKeys is the largest number of keys that the store keeps: 1 to 4,294,967,296, or 0 for
	// 1,048,576.
	MaxKeys int

	// Clock returns the time, for a program that replays or simulates. If Clock is nil, the store
	// uses the process's monotonic clock. The store calls Clock from several goroutines and under a
	// lock, so Clock must be quick and must not panic.
	//
	// Clock may step back. If a bucket or funnel refuses its user only because of such a step, the
	// store may drop its state for a new key.
	Clock func() time.Time
}

// Store is a [core.Store] in process memory. It is safe for use by many goroutines. It starts no
// goroutine, and need not be closed.
type Store struct {
	seed maphash.Seed

	now   func() int64 // the present instant, in microseconds, at least 1
	epoch func() int64 // for machine.Entry.Epoch

	max    int64
	used   atomic.Int64 // keys in all shards, and places that charges have reserved for new keys
	shards []shard      // their number is a power of two
}

var (
	_ core.Accepter = (*Store)(nil)
	_ core.Amender  = (*Store)(nil)
	_ core.Dated    = (*Store)(nil)
	_ core.Joiner   = (*Store)(nil)
	_ core.Sized    = (*Store)(nil)
)

// New makes a store. opts may be nil. It panics if an option is out of bounds. Make a store once,
// at start-up. A store that is made for every request limits no user. If a program makes and drops
// hundreds of stores in an hour, the log says so once (code "store-dropped"). Stores with a Clock
// do not count.
func New(opts *Options) *Store {
	clock, first, own := time.Now, int64(1), opts == nil || opts.Clock == nil
	if !own {
		clock, first = opts.Clock, 1<<50 // so high that an instant after a step back is positive
	}
	base := clock()
	instant := func(t time.Time) int64 { return max(1, first+since(base, t)) }
	now := func() int64 { return instant(clock()) }
	if own { // time.Since does not read the time of day
		now = func() int64 { return first + time.Since(base).Microseconds() }
	}
	s := newStore(opts, now, func() int64 {
		t := clock()
		return t.UnixMicro() - instant(t)
	})
	if own { // a simulation, which sets Clock, may drop many stores
		watch(s)
	}
	return s
}

// since returns the time from base to t, in microseconds. A time.Duration holds at most 292 years,
// which is too short for a Clock that begins with the zero time.
func since(base, t time.Time) int64 {
	if d := t.Sub(base); d != math.MaxInt64 && d != math.MinInt64 {
		return d.Microseconds()
	}
	return t.UnixMicro() - base.UnixMicro()
}

func newStore(opts *Options, now, epoch func() int64) *Store {
	maxKeys := defaultMaxKeys
	if opts != nil && opts.MaxKeys != 0 {
		maxKeys = opts.MaxKeys
	}
	if maxKeys < 1 || int64(maxKeys) > maxMaxKeys {
		panic(fmt.Sprintf("memorystore: New: MaxKeys %d is not within 1 to %d; 0 is the default of %d", maxKeys, int64(maxMaxKeys), defaultMaxKeys))
	}
	shards := 1 << (bits.Len(uint(max(1, min(maxKeys/shardKeys, maxShards)))) - 1)
	s := &Store{seed: maphash.MakeSeed(), now: now, epoch: epoch, max: int64(maxKeys), shards: make([]shard, shards)}
	for i := range s.shards {
		s.shards[i].keys.slots = empty[:]
	}
	return s
}

// Accept returns an error if the limiter has more limits than MaxKeys, because the store would then
// refuse every user. core.New calls Accept.
func (s *Store) Accept(limits []core.Limit) error {
	if int64(len(limits)) > s.max {
		return fmt.Errorf("memorystore: %d limits need as many keys, and MaxKeys is %d", len(limits), s.max)
	}
	return nil
}

// Dated marks the store as one that knows the time of day: see [core.Dated].
func (s *Store) Dated() {}

// Joins returns true, because the store decides about any users in one atomic step: see
// [core.Joiner].
func (s *Store) Joins(string, string) bool { return true }

// Len returns how many keys the store keeps, and MaxKeys. Expired keys count until the store drops
// them.
func (s *Store) Len() (keys, maxKeys int) { return int(s.used.Load()), int(s.max) }
