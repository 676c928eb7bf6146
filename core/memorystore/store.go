package memorystore

// The store, its options and its shards.

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	defaultMaxKeys = 1 << 20
	maxMaxKeys     = 1 << 32

	// A full shard holds shardKeys keys to twice as many, and more if there are maxShards. With many
	// shards processors rarely wait for a lock, and growing a small table is a short pause.
	shardKeys = 4096
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

// Store is a [core.Store] in process memory. It is safe for use by many goroutines, starts none,
// and needs no closing.
type Store struct {
	seed   maphash.Seed
	now    func() int64 // microseconds, at least 1
	max    int64
	used   atomic.Int64 // keys in all shards, and those that charges have reserved
	shards []shard      // their number is a power of two
}

var (
	_ core.Accepter = (*Store)(nil)
	_ core.Refunder = (*Store)(nil)
	_ core.Sized    = (*Store)(nil)
)

// New makes a store. opts may be nil. It panics if an option is out of bounds.
func New(opts *Options) *Store {
	base := time.Now().Add(-time.Microsecond) // so that no instant is 0
	now := func() int64 { return int64(time.Since(base) / time.Microsecond) }
	if opts != nil && opts.Clock != nil {
		clock := opts.Clock
		base = clock()
		now = func() int64 { return max(1, epoch+clock().Sub(base).Microseconds()) }
	}
	return newStore(opts, now)
}

// epoch is the instant of New if there is an Options.Clock. It is high, so that the clock can
// step back far before an instant is negative.
const epoch = 1 << 50

func newStore(opts *Options, now func() int64) *Store {
	maxKeys := defaultMaxKeys
	if opts != nil && opts.MaxKeys != 0 {
		maxKeys = opts.MaxKeys
	}
	if maxKeys < 1 || int64(maxKeys) > maxMaxKeys {
		panic(fmt.Sprintf("memorystore: New: MaxKeys %d is not within 1 to %d; 0 is the default of %d", maxKeys, int64(maxMaxKeys), defaultMaxKeys))
	}
	shards := 1 << (bits.Len(uint(max(1, min(maxKeys/shardKeys, maxShards)))) - 1)
	s := &Store{seed: maphash.MakeSeed(), now: now, max: int64(maxKeys), shards: make([]shard, shards)}
	for i := range s.shards {
		s.shards[i].keys.slots, s.shards[i].shared.slots = empty[:], empty[:]
	}
	return s
}

// Accept returns an error to core.New if the limiter has more limits than MaxKeys: it would
// refuse every user.
func (s *Store) Accept(limits []core.Limit) error {
	if int64(len(limits)) > s.max {
		return fmt.Errorf("memorystore: %d limits need as many keys, and MaxKeys is %d", len(limits), s.max)
	}
	return nil
}

// Len returns how many keys the store keeps, and MaxKeys. Expired keys count until the store
// drops them.
func (s *Store) Len() (keys, maxKeys int) { return int(s.used.Load()), int(s.max) }

// A shard has all states of some users, so that one lock is enough for several limits.
type shard struct {
	mu     sync.Mutex
	keys   table
	shared table // the states that users without a key share: see room.go

	// The places and states of the present charge. Here they need no allocation, however many
	// limits there are.
	places []place
	states []machine.State // zero between charges
}

// lock locks the shard of a user. It uses the low bits of the hash, and a table the high ones.
func (s *Store) lock(user hash) *shard {
	sh := &s.shards[user&hash(len(s.shards)-1)]
	sh.mu.Lock()
	return sh
}

// A hash identifies a user, an action, or a user's state. The seed is random, so that a client
// cannot search for two users that share a state.
type hash uint64

func (s *Store) hash(name string) hash { return hash(maphash.String(s.seed, name)) }

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
