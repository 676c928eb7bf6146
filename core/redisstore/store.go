package redisstore

// The store, and its decisions. Below it are, in this order: what is sent and replied (protocol.go),
// the Lua that runs on the server (library.go), what sends it (internal/batch), the cache of
// refusals (internal/refusals), and before all of them the units of leased limits that the process
// holds (internal/lease).

import (
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"strconv"
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
	_ core.Dated       = (*Store)(nil)
	_ core.Joiner      = (*Store)(nil)
	_ core.Leaser      = (*Store)(nil)
	_ core.Partitioned = (*Store)(nil)
	_ core.Amender     = (*Store)(nil)
)

// Store is a [core.Store] on Redis. It is safe for use by many goroutines. It needs no
// closing, and does not close the client.
type Store struct {
	options  Options // with the defaults
	batches  *batch.Queue
	refusals *refusals.Cache
	leases   *lease.Table
	eviction evictionCheck
	scripts  atomic.Bool // not functions
	seed     maphash.Seed
	clock    func() time.Time // this process's, which says the periods of calendar windows
	requests [64]atomic.Pointer[request]
}

// New makes a store on rdb. opts may be nil. New panics if rdb is nil or an option is out of
// bounds. It sends nothing to Redis. The client's hooks get a context of the store, and not
// the caller's. With testing/synctest make the store in the bubble that uses it.
func New(rdb redis.UniversalClient, opts *Options) *Store {
	if isNil(rdb) {
		panic("redisstore: New: the client is nil; make one with redis.NewClient or redis.NewUniversalClient")
	}
	o := opts.withDefaults()
	s := &Store{options: o, seed: maphash.MakeSeed(), clock: time.Now}
	s.scripts.Store(o.NoFunctions)
	made := time.Now()
	s.refusals = refusals.New(func() time.Duration { return time.Since(made) })
	s.batches = batch.New(rdb, o.Timeout, s.exchange)
	s.leases = lease.New(lease.Server{
		Decide: s.decide, Amend: s.Amend,
		Timeout: o.Timeout, Late: fmt.Errorf("%w of %s", ErrTimeout, o.Timeout),
	}, lease.Room)
	return s
}

// Take decides a charge in one round trip, in a batch with other waiting charges, or repeats
// a refusal from the cache. If all limits are leased, it decides by units that this process holds.
func (s *Store) Take(ctx context.Context, c core.Charge) (d core.Decision, err error) {
	switch held := lease.Of(&c); {
	case s.options.CLThrottle:
		return s.throttle(ctx, &c)
	case held > 0:
		return s.leases.Take(ctx, &c, held)
	case c.Ban > 0: // what the process holds may pass no user who is banned
		s.leases.Drop(c.User, c.Action, c.Limits)
		defer s.leases.Drop(c.User, c.Action, c.Limits)
	}
	return s.decide(ctx, c)
}

// decide decides a charge in Redis, or repeats a refusal.
func (s *Store) decide(ctx context.Context, c core.Charge) (d core.Decision, err error) {
	if err := ctx.Err(); err != nil {
		return d, err
	}
	r := s.request(&c)
	c.Limits = r.subjects[0].Limits // which never change
	ask := func() (core.Decision, []machine.Reading, error) { return s.ask(ctx, &c, r) }
	switch {
	case c.Mode == machine.ModePeek || s.options.NoRefusalCache:
		d, _, err = ask()
	case c.Mode != machine.ModeCharge || c.And != nil || c.Ahead > 0 || c.Ban > 0:
		err = s.refusals.Change(&c, func() error {
			d, _, err = ask()
			return err
		})
	default:
		d, err = s.refusals.Take(&c, ask)
	}
	return d, err
}

// ask sends the charge to Redis.
func (s *Store) ask(ctx context.Context, c *core.Charge, r *request) (core.Decision, []machine.Reading, error) {
	reply, err := s.do(ctx, s.keys(c), r, r.weight)
	if err != nil {
		return core.Decision{}, nil, err
	}
	readings, now, err := r.decode(reply)
	if err != nil {
		return core.Decision{}, nil, err
	}
	d := c.Answer(readings, now)
	d.Issue(s)
	return d, readings, nil
}

// Dated says that the store knows the time of day.
func (s *Store) Dated() {}

// Reset deletes the states of the limits for that user and action.
func (s *Store) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	s.leases.Drop(user, action, limits)
	defer s.leases.Drop(user, action, limits)
	keys := s.appendKeys(nil, user, action, limits)
	return s.refusals.Change(&core.Charge{User: user, Action: action}, func() error {
		_, err := s.number(ctx, keys, simple(1, box([]any{"del"}, keys)...))
		return err
	})
}

// Amend refunds, releases or renews a charge, in one round trip.
func (s *Store) Amend(ctx context.Context, r *core.Receipt, a machine.Amendment) (done bool, err error) {
	amended, word := amendWord(r, a)
	keys := s.appendKeys(nil, r.User, r.Action, amended)
	args := append(box([]any{nil, nil, len(keys)}, keys), strconv.FormatInt(r.At, 10), word)
	send := func() error {
		n, err := s.number(ctx, keys, func(send batch.Send) ([]any, error) { return s.run(send, amend, args) })
		done = n == 1
		return err
	}
	if a.Verb == machine.VerbRefund {
		err = s.refusals.Change(&core.Charge{User: r.User, Action: r.Action}, send)
	} else { // the cache has no refusal that a slot can end
		err = send()
	}
	return done, err // after send, which sets done
}

// number sends a command whose reply is a number.
func (s *Store) number(ctx context.Context, keys []string, c command) (n int64, err error) {
	reply, err := s.do(ctx, keys, c, 0)
	if err != nil {
		return 0, err
	}
	n, ok := reply[0].(int64)
	if len(reply) > 1 || !ok || n < 0 {
		return 0, ErrReply
	}
	return n, nil
}

// Leases returns how many units of leased limits this store has taken in advance, has given back, and
// has lost because it could not give them back. See [core.Limit.Leased].
func (s *Store) Leases() (taken, returned, lost uint64) { return s.leases.Counts() }

// Part returns the address of the server that has the user's states, on a Cluster or a Ring.
// Otherwise it is empty. If one server fails, [core.Fallback], [core.FailOpen] and
// [core.Shadow] stop asking only that server.
func (s *Store) Part(user string) string {
	var few [128]byte
	return s.batches.Server(string(s.appendUser(few[:0], user)))
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

// A command is a call that is not a charge.
type command func(send batch.Send) (reply []any, err error)

// simple returns a command that is sent as it is. keyAt is the index of its first key, or 0 if
// it has none.
func simple(keyAt int8, args ...any) command {
	return func(send batch.Send) ([]any, error) { return send(args, keyAt) }
}

// do sends a request or a command and waits for its reply.
func (s *Store) do(ctx context.Context, keys []string, args any, weight int) ([]any, error) {
	start := time.Now()
	reply, err := s.batches.Do(ctx, keys, args, weight)
	if err != nil {
		return nil, s.explain(ctx, start, err)
	}
	return reply, nil
}

// isNil reports whether a client is nil, or a nil pointer in an interface.
func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
