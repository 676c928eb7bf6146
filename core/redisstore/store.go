package redisstore

// The store. A decision goes through three stages, each of which asks the next one: the units of leased limits
// that the process holds (internal/lease), the refusals that still hold (internal/refusals), and Redis (wire.go).

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
	"github.com/tailcut/tailcut/core/redisstore/internal/lease"
	"github.com/tailcut/tailcut/core/redisstore/internal/refusals"
)

var (
	_ core.Amender     = (*Store)(nil)
	_ core.Dated       = (*Store)(nil)
	_ core.Joiner      = (*Store)(nil)
	_ core.Leaser      = (*Store)(nil)
	_ core.Partitioned = (*Store)(nil)
)

// Store is a [core.Store] on Redis. It is safe for use by many goroutines. It needs no
// closing, and does not close the client.
type Store struct {
	leases   *lease.Table    // the first stage
	refusals *refusals.Cache // the second
	wire     *wire           // the third
}

// New makes a store on rdb. opts may be nil. New panics if rdb is nil or an option is out of
// bounds. It sends nothing to Redis. The client's hooks get a context of the store, and not
// the caller's. With testing/synctest make the store in the bubble that uses it.
func New(rdb redis.UniversalClient, opts *Options) *Store {
	made := time.Now()
	s := &Store{wire: newWire(rdb, opts)}
	s.refusals = refusals.New(s.wire, func() time.Duration { return time.Since(made) }, s.wire.options.NoRefusalCache)
	s.leases = lease.New(s.refusals, s.wire.options.Timeout, s.wire.timeoutError(), lease.Room)
	return s
}

// Take decides a charge in one round trip, in a batch with other waiting charges, or repeats
// a refusal from the cache. If all limits are leased, it decides by units that this process holds.
func (s *Store) Take(ctx context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	if err := ctx.Err(); err != nil {
		return d, nil, err
	}
	return s.leases.Take(ctx, c)
}

// Amend refunds, releases or renews a charge, in one round trip.
func (s *Store) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	return s.leases.Amend(ctx, r, a)
}

// Reset deletes the states of the limits for that user and action.
func (s *Store) Reset(ctx context.Context, user, action string, limits []core.Limit) (err error) {
	return s.leases.Reset(ctx, user, action, limits)
}

// Dated says that the store knows the time of day.
func (s *Store) Dated() {}

// Connect opens connections to Redis before the program serves, so that the first calls need not:
// that takes up to six round trips, in which calls may time out. It opens two connections, or, if
// Redis is far away, one for each millisecond of the response time, at most PoolSize and 32.
//
// Connect also loads the library of functions, and logs what looks wrong about the server and the
// client: see "Codes in the log". If the server runs neither functions nor scripts, or does not
// answer, Connect returns an error. The program can serve all the same.
func (s *Store) Connect(ctx context.Context) error {
	return s.wire.connect(ctx, func(server string, send batch.Send) error {
		return s.wire.inspect(send, s.wire.server(server), s.wire.ownKey(server))
	})
}

// Leases returns how many units of leased limits this store has taken in advance, has given back, and
// has lost because it could not give them back. See [core.Limit.Leased].
func (s *Store) Leases() (taken, returned, lost uint64) { return s.leases.Counts() }

// Part returns the address of the server that has the user's states, on a Cluster or a Ring.
// Otherwise it is empty. If one server fails, [core.Fallback], [core.FailOpen] and
// [core.Shadow] stop asking only that server.
func (s *Store) Part(user string) string { return s.wire.part(user) }

// Joins reports whether the store decides about two users in one step, as core.All asks: always on a
// single server or Sentinel that takes keys of two users in one command, and on a Cluster or Ring if [Options].Tag gives both users the same tag.
func (s *Store) Joins(a, b string) bool {
	return !s.wire.batches.Sharded() || s.wire.tag(a) == s.wire.tag(b)
}
