package redisstore

// A store decides in three stages. If a stage does not decide, it asks the next one:
//
//   1. internal/lease decides by units of leased limits that this process has taken in advance.
//   2. internal/refusals repeats a refusal that still holds.
//   3. wire.go asks Redis.

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

// Store is a [core.Store] on Redis. Many goroutines may use it at once. A Store needs no closing,
// and does not close the client.
type Store struct {
	leases   *lease.Table    // the first stage
	refusals *refusals.Cache // the second
	wire     *wire           // the third
}

// New makes a store on rdb, and sends nothing to Redis. If opts is nil, the options are the
// defaults. New panics if rdb is nil or if an option is out of bounds. Except in Connect, the
// client's hooks get a context of the store, and not the caller's context. A test with
// testing/synctest must make the store in the bubble that uses the store.
func New(rdb redis.UniversalClient, opts *Options) *Store {
	made := time.Now()
	s := &Store{wire: newWire(rdb, opts)}
	s.refusals = refusals.New(s.wire, func() time.Duration { return time.Since(made) }, s.wire.options.NoRefusalCache)
	s.leases = lease.New(s.refusals, s.wire.options.Timeout, s.wire.timeoutError(), lease.Room)
	return s
}

// Take decides a charge in one of these ways:
//
//   - If all limits of the charge are leased, this process may decide by units that it has taken in
//     advance.
//   - If Redis has refused an equal charge within the last second, this process may repeat that
//     refusal.
//   - Otherwise Redis decides, usually in one round trip. Charges that wait at the same time may
//     share a command.
func (s *Store) Take(ctx context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	if err := ctx.Err(); err != nil {
		return d, nil, err
	}
	return s.leases.Take(ctx, c)
}

// Amend refunds, releases or renews a charge, usually in one round trip.
func (s *Store) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	return s.refusals.Amend(ctx, r, a)
}

// Reset deletes the states that the limits have for the user and the action.
func (s *Store) Reset(ctx context.Context, user, action string, limits []core.Limit) (err error) {
	return s.leases.Reset(ctx, user, action, limits)
}

// Dated tells package core that the store knows the time of day.
func (s *Store) Dated() {}

// Connect opens connections to Redis before the program serves. Without Connect the first calls
// open them, which takes up to six round trips, and those calls may time out. Connect opens one
// connection to a server for each millisecond of the server's response time: at least 2, at most
// 32, and no more than the client may open.
//
// Connect also loads the library of functions, if the Redis user may load it. It logs what looks
// wrong about the server and the client: see "Codes in the log". If the server runs neither functions nor scripts, or does
// not answer, Connect returns an error. The program can serve all the same.
func (s *Store) Connect(ctx context.Context) error {
	return s.wire.connect(ctx, func(server string, send batch.Send) error {
		return s.wire.inspect(send, s.wire.server(server), s.wire.ownKey(server))
	})
}

// Leases returns how many units of leased limits this store has taken in advance, how many of them
// it has given back, and how many it has lost. Units are lost if the store could not give them
// back, or if a ban or a Reset has discarded them. See [core.Limit.Leased].
func (s *Store) Leases() (taken, returned, lost uint64) { return s.leases.Counts() }

// Part returns the address of the server that has the states of the user. It returns "" if the
// client is not for a Cluster or a Ring, and before the first answer of Redis. If one server fails,
// [core.Fallback], [core.FailOpen] and [core.Shadow] use Part to stop asking that server, and still
// ask the others.
func (s *Store) Part(user string) string { return s.wire.part(user) }

// Joins reports whether the store can decide about the users a and b in one step, as core.All
// needs. If both users have the same tag, Joins reports true: see [Options].Tag. Otherwise it
// reports true on a single server or with Sentinel, until the store finds that the server or a
// proxy does not take the keys of two users in one command.
func (s *Store) Joins(a, b string) bool {
	return !s.wire.batches.Sharded() || s.wire.tag(a) == s.wire.tag(b)
}
