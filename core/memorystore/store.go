package memorystore

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/mono"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	defaultMaxKeys = 1 << 20
	maxMaxKeys     = 1 << 32

	// A full shard holds shardKeys keys to twice as many, and more if there are maxShards. With many
	// shards processors rarely wait for a lock, and growing a small table is a short pause.
	shardKeys = 1024
	maxShards = 4096
)

// Options are the settings of a store. The zero value is the default.
type Options struct {
	// MaxKeys bounds how many keys the store keeps: 1 to 4,294,967,296; 0 is 1,048,576.
	MaxKeys int

	// Clock returns the time, for a program that replays or simulates; nil is the process's
	// monotonic clock. The store calls it from several goroutines, and under a lock, so
	// it must be quick and must not panic. It may step back. A bucket or funnel that refuses
	// its user only because of that may be dropped for a new key.
	Clock func() time.Time
}

// Store is a [core.Store] in the process's memory. It is safe for use by many
// goroutines, starts none, and needs no closing.
type Store struct {
	seed   maphash.Seed
	base   mono.Time
	clock  func() int64 // if nil, the microseconds since base
	max    int64
	used   atomic.Int64 // keys in all shards
	shards []shard      // their number is a power of two
	crowd  atomic.Int64 // the shard that last gave up a key for another one
}

// New makes a store. opts may be nil. It panics if an option is out of bounds.
func New(opts *Options) *Store {
	if opts == nil || opts.Clock == nil {
		return newStore(opts, nil)
	}
	clock, base := opts.Clock, opts.Clock()
	return newStore(opts, func() int64 { return max(1, epoch+clock().Sub(base).Microseconds()) })
}

// epoch is the instant of New if there is an Options.Clock. It is high, so that the clock can
// step back far before an instant is negative.
const epoch = 1 << 50

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
		seed:   maphash.MakeSeed(),
		base:   mono.Now() - microsecond, // so that no instant is 0
		clock:  clock,
		max:    int64(maxKeys),
		shards: make([]shard, shards),
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.windows.wide = 1
		sh.keys.setSlots(empty[:1])
		sh.windows.setSlots(empty[:])
	}
	return s
}

// now reads the store's clock. at is the reading if that is the process's clock, else 0.
func (s *Store) now() (now int64, at mono.Time) {
	if s.clock != nil {
		return s.clock(), 0
	}
	at = mono.Now()
	return int64((at - s.base) / microsecond), at
}

const microsecond = mono.Time(time.Microsecond)

// A hash identifies a user, an action, or a user's state. The seed is random, so that a client
// cannot search for two users that share a state.
type hash uint64

// Odd multipliers tell the parts of a key apart.
const (
	oddAction = 0x9e3779b97f4a7c15
	oddLimit  = 0xc2b2ae3d27d4eb4f
)

func (s *Store) hash(name string) hash { return hash(maphash.String(s.seed, name)) }

// allActions stands for the hash of an action in the key of a limit that counts all actions.
const allActions hash = 0

// key is the hash of a rule's state.
func key(user, action hash, r *machine.Rule) hash {
	return max(user+oddAction*action+oddLimit*hash(r.Hash), 1) // 0 is no key
}

func keyOf(user, action hash, l *core.Limit) hash {
	if l.IsPerUser() {
		action = allActions
	}
	return key(user, action, l.Rule())
}

// shard returns the shard that has all states of a user, so that one lock is enough for
// several limits. It uses the low bits of the hash, and a table the high ones.
func (s *Store) shard(user hash) *shard { return &s.shards[user&hash(len(s.shards)-1)] }

// Accept returns an error to core.New if the limiter has more limits than MaxKeys: it would
// refuse every user.
func (s *Store) Accept(limits []core.Limit) error {
	if int64(len(limits)) > s.max {
		return fmt.Errorf("memorystore: %d limits need as many keys, and MaxKeys is %d", len(limits), s.max)
	}
	return nil
}
