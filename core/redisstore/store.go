package redisstore

// The store, and its decisions. In the order of a decision, it uses the units of leased limits that the
// process holds (internal/lease), the cache of refusals (internal/refusals), what sends charges in
// batches (internal/batch), the words that are sent and replied (protocol.go), and the Lua that runs on
// the server (library.go).

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
	"github.com/tailcut/tailcut/core/redisstore/internal/lease"
	"github.com/tailcut/tailcut/core/redisstore/internal/refusals"
)

var (
	_ core.Accepter    = (*Store)(nil)
	_ core.Amender     = (*Store)(nil)
	_ core.Dated       = (*Store)(nil)
	_ core.Joiner      = (*Store)(nil)
	_ core.Leaser      = (*Store)(nil)
	_ core.Partitioned = (*Store)(nil)
)

// Store is a [core.Store] on Redis. It is safe for use by many goroutines. It needs no
// closing, and does not close the client.
type Store struct {
	options       Options // with the defaults
	batches       *batch.Queue
	refusals      *refusals.Cache
	leases        *lease.Table
	eviction      evictionCheck
	prefixChecked atomic.Bool
	ways          sync.Map // *way, by address: how a server runs programs
	refusal       refusal
	clock         func() time.Time // this process's, which says the periods of calendar windows
	requests      [64]atomic.Pointer[request]
}

// New makes a store on rdb. opts may be nil. New panics if rdb is nil or an option is out of
// bounds. It sends nothing to Redis. The client's hooks get a context of the store, and not
// the caller's. With testing/synctest make the store in the bubble that uses it.
func New(rdb redis.UniversalClient, opts *Options) *Store {
	if isNil(rdb) {
		panic("redisstore: New: the client is nil; make one with redis.NewClient or redis.NewUniversalClient")
	}
	o := opts.withDefaults()
	s := &Store{options: o, clock: time.Now}
	made := time.Now()
	s.refusals = refusals.New(func() time.Duration { return time.Since(made) }, o.NoRefusalCache || o.CLThrottle)
	s.batches = batch.New(rdb, o.Timeout, s.exchange)
	s.leases = lease.New(lease.Server{
		Decide: s.decide, Amend: s.Amend,
		Timeout: o.Timeout, Late: fmt.Errorf("%w of %s", ErrTimeout, o.Timeout),
	}, lease.Room)
	return s
}

// Take decides a charge in one round trip, in a batch with other waiting charges, or repeats
// a refusal from the cache. If all limits are leased, it decides by units that this process holds.
func (s *Store) Take(ctx context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	if err := ctx.Err(); err != nil {
		return d, nil, err
	}
	if held := lease.Of(&c); held > 0 {
		return s.leases.Take(ctx, &c, held)
	}
	if c.Ban > 0 { // what the process holds may pass no user who is banned
		s.leases.Drop(c.User, c.Action, c.Limits)
		defer s.leases.Drop(c.User, c.Action, c.Limits)
	}
	return s.decide(ctx, c)
}

// decide decides a charge in Redis, or repeats a refusal.
func (s *Store) decide(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	r := s.request(&c)
	return s.refusals.Decide(&c, func() (core.Decision, *core.Record, []machine.Reading, error) { return s.ask(ctx, &c, &r) })
}

// ask sends a charge to Redis: to the Lua, or to the server's own CL.THROTTLE.
func (s *Store) ask(ctx context.Context, c *core.Charge, r *request) (d core.Decision, kept *core.Record, readings []machine.Reading, err error) {
	if s.options.CLThrottle {
		d, err = s.throttle(ctx, c)
		return d, nil, nil, err
	}
	call := &batch.Call{Keys: s.keys(c), Word: r.word, Size: r.size, Weight: r.weight}
	if r.slots {
		call.Number = rand.Int64N(mostNumber) + 1
	}
	var now int64
	reply, err := s.do(ctx, call)
	lost := call.Lost
	if err == nil {
		readings, now, err = r.decode(reply)
		lost = err != nil
	}
	if err != nil {
		if r.slots && lost {
			s.releaseLost(c, call.Number)
		}
		return d, nil, nil, err
	}
	if d, kept = c.Answer(readings, now); kept != nil {
		kept.By = s
	}
	return d, kept, readings, nil
}

// do sends a call to Redis and waits for its reply.
func (s *Store) do(ctx context.Context, c *batch.Call) ([]any, error) {
	start := time.Now()
	reply, err := s.batches.Do(ctx, c)
	if err != nil {
		return nil, s.explain(ctx, start, err)
	}
	s.checkServer()
	return reply, nil
}

// Accept returns an error to core.New if the store cannot serve a limiter of these limits.
// Only with [Options].CLThrottle are there such limiters.
func (s *Store) Accept(limits []core.Limit) error {
	if s.options.CLThrottle {
		return acceptCell(limits)
	}
	return nil
}

// Dated says that the store knows the time of day.
func (s *Store) Dated() {}

// Reset deletes the states of the limits for that user and action.
func (s *Store) Reset(ctx context.Context, user, action string, limits []core.Limit) (err error) {
	s.leases.Drop(user, action, limits)
	defer s.leases.Drop(user, action, limits)
	defer s.refusals.Change(user, action)(&err)
	keys := s.appendKeys(nil, user, action, limits)
	_, err = s.number(ctx, keys, simple(1, box([]any{"del"}, keys)...))
	return err
}

// Amend refunds, releases or renews a charge, in one round trip.
func (s *Store) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	defer s.refusals.Change(r.User, r.Action)(&err)
	amended, word := amendWord(r, a)
	keys := s.appendKeys(nil, r.User, r.Action, amended)
	args := append(box([]any{nil, nil, len(keys)}, keys), strconv.FormatInt(r.At, 10), word)
	n, err := s.number(ctx, keys, func(send batch.Send) ([]any, error) { return s.run(send, amend, args) })
	return n == 1, err
}

// number sends a command whose reply is a number.
func (s *Store) number(ctx context.Context, keys []string, c batch.Command) (n int64, err error) {
	reply, err := s.do(ctx, &batch.Call{Keys: keys, Command: c})
	if err != nil {
		return 0, err
	}
	n, ok := reply[0].(int64)
	if len(reply) > 1 || !ok || n < 0 {
		return 0, ErrReply
	}
	return n, nil
}

// simple returns a command that is sent as it is. keyAt is the index of its first key, or 0 if
// it has none.
func simple(keyAt int8, args ...any) batch.Command {
	return func(send batch.Send) ([]any, error) { return send(args, keyAt) }
}

// Connect opens connections to Redis: two, or if it is far away one for each millisecond of its
// response time, at most PoolSize and 32. It also loads the library of functions, and returns an error if
// the server runs neither that nor scripts, and it logs what looks wrong about the server. Call it before the
// program serves. Otherwise the first calls open connections, in up to six round trips, and may time out
// meanwhile. If Connect returns an error, the program can serve all the same.
func (s *Store) Connect(ctx context.Context) error {
	start := time.Now()
	err := s.batches.Connect(ctx, func(server string, send batch.Send) error {
		_ = s.readEviction(send)
		if s.options.CLThrottle {
			return nil
		}
		return s.findWay(send, s.way(server), s.ownKey(server))
	})
	if err != nil {
		return s.explain(ctx, start, err)
	}
	s.checkPrefix(ctx)
	return nil
}

// Leases returns how many units of leased limits this store has taken in advance, has given back, and
// has lost because it could not give them back. See [core.Limit.Leased].
func (s *Store) Leases() (taken, returned, lost uint64) { return s.leases.Counts() }

// Part returns the address of the server that has the user's states, on a Cluster or a Ring.
// Otherwise it is empty. If one server fails, [core.Fallback], [core.FailOpen] and
// [core.Shadow] stop asking only that server.
func (s *Store) Part(user string) string {
	var buf [128]byte
	return s.batches.Server(string(s.appendUser(buf[:0], user)))
}

// Joins reports whether the store decides about two users in one step, as core.All asks: always on a
// single server or Sentinel, and on a Cluster or Ring if they have one [Options].Tag. CL.THROTTLE decides
// about one.
func (s *Store) Joins(a, b string) bool {
	switch {
	case s.options.CLThrottle:
		return false
	case !s.batches.Sharded():
		return true
	}
	return s.tag(a) == s.tag(b)
}

// isNil reports whether a client is nil, or a nil pointer in an interface.
func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
