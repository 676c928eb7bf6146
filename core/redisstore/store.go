package redisstore

// The store, and its decisions.

import (
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	defaultTimeout = 50 * time.Millisecond
	minTimeout     = time.Millisecond
	maxTimeout     = time.Minute
	defaultPrefix  = "tailcut"
)

// Options are the settings of a store. The zero value is the default.
type Options struct {
	// Timeout bounds every call: 1 ms to 1 minute; 0 is 50 ms.
	Timeout time.Duration

	// Prefix begins every key: 1 to 64 letters, digits, dots, underscores, dashes or
	// colons; "" is "tailcut".
	Prefix string

	// Secret, if not empty, keeps users' names out of Redis: a key then has an
	// HMAC-SHA-256 of the user under Secret. All processes must have the same Secret. With
	// another one every user has a new state.
	Secret string

	// NoRefusalCache has Redis decide every attempt. Set it in a test that moves the
	// server's clock, or if a refusal must end as soon as another process ends it.
	NoRefusalCache bool

	// NoFunctions has the server run the Lua as a script even if it has Redis Functions.
	NoFunctions bool

	// CLThrottle has the server's own CL.THROTTLE decide (redis-cell, Dragonfly). It
	// serves limiters of exactly one Funnel or Throttle whose rate has a period of whole
	// seconds and is at most 1,000 a second. For other limiters core.New returns an error.
	// The answers are the module's, in whole seconds. The module and the scripts have
	// separate states. Decisions cannot be refunded, and a Surcharge is an error.
	CLThrottle bool
}

var (
	_ core.Accepter    = (*Store)(nil)
	_ core.Partitioned = (*Store)(nil)
	_ core.Refunder    = (*Store)(nil)
)

// Store is a [core.Store] on Redis. It is safe for use by many goroutines. It needs no
// closing, and does not close the client.
type Store struct {
	rdb      redis.UniversalClient
	timeout  time.Duration
	prefix   string
	secret   []byte
	cell     bool // CL.THROTTLE
	uncached bool // NoRefusalCache
	queue    *queue
	refusals *refusals
	calls    sync.Pool // *call, answered
	seed     maphash.Seed
	requests [64]atomic.Pointer[request]

	base           time.Time
	answered       atomic.Int64 // how many commands were answered
	dialFailedAt   atomic.Int64 // since base: when a connection last could not be opened
	probes         atomic.Int32 // under way
	panicLogged    atomic.Int64 // when a panic was last logged, since 1970
	policyAt       atomic.Int64 // since base: when to check the policy again
	evictsLogged   atomic.Bool  // whether redis-evicts was logged
	heedsDeadlines bool         // the client is for a single server and heeds deadlines
	sharded        atomic.Bool  // two users' keys may be on two servers
	scripts        atomic.Bool  // not functions
}

// New makes a store on rdb. opts may be nil. New panics if rdb is nil or an option is out of
// bounds. It sends nothing to Redis. The client's hooks get a context of the store, and not
// the caller's. With testing/synctest make the store in the bubble that uses it.
func New(rdb redis.UniversalClient, opts *Options) *Store {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	switch {
	case isNil(rdb):
		panic("redisstore: New: the client is nil; make one with redis.NewClient or redis.NewUniversalClient")
	case o.Timeout < minTimeout || o.Timeout > maxTimeout:
		panic(fmt.Sprintf("redisstore: New: Timeout %s is not within %s to %s; 0 is the default of %s", o.Timeout, minTimeout, maxTimeout, defaultTimeout))
	case !validPrefix(o.Prefix):
		panic(fmt.Sprintf("redisstore: New: Prefix %q is not 1 to 64 letters, digits, dots, underscores, dashes or colons", o.Prefix))
	}
	s := &Store{rdb: rdb, timeout: o.Timeout, prefix: o.Prefix, cell: o.CLThrottle, uncached: o.NoRefusalCache, refusals: newRefusals(), base: time.Now(), seed: maphash.MakeSeed()}
	s.queue = &queue{most: maxCalls, timeout: o.Timeout, aloneTo: map[*redis.Client]int{}}
	s.calls.New = func() any { return new(call) }
	client, single := rdb.(*redis.Client)
	s.sharded.Store(!single)
	s.scripts.Store(o.NoFunctions)
	s.heedsDeadlines = single && heedsDeadlines(client.Options())
	if o.Secret != "" {
		s.secret = []byte(o.Secret)
	}
	return s
}

// isNil reports whether a client is nil, or a nil pointer in an interface.
func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

func validPrefix(s string) bool {
	const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"
	return len(s) <= 64 && strings.Trim(s, legal) == ""
}

// Take decides a charge in one round trip, in a batch with other waiting charges, or repeats
// a refusal from the cache.
func (s *Store) Take(ctx context.Context, c core.Charge) (d core.Decision, err error) {
	if s.cell {
		return s.throttle(ctx, &c)
	}
	var few [4]machine.Reading
	switch {
	case c.Mode == machine.Peek || s.uncached:
		d, _, err = s.ask(ctx, &c, few[:0])
		return d, err
	case c.Mode == machine.Force || c.Ahead > 0 || c.Ban > 0:
		err = s.refusals.change(c.User, c.Action, func() error {
			d, _, err = s.ask(ctx, &c, few[:0])
			return err
		})
		return d, err
	}
	if err := ctx.Err(); err != nil {
		return d, err
	}
	d, known, q := s.refusals.recall(&c)
	if known {
		return d, nil
	}
	d, readings, err := s.ask(ctx, &c, few[:0])
	if err == nil {
		s.refusals.learn(&c, q, &d, readings)
	}
	return d, err
}

// ask has Redis decide, and appends the readings. The charge then has limits of the store's own,
// which may be kept.
func (s *Store) ask(ctx context.Context, c *core.Charge, readings []machine.Reading) (core.Decision, []machine.Reading, error) {
	call := s.calls.Get().(*call)
	call.keys, call.request = s.appendKeys(call.keys[:0], c.User, c.Action, c.Limits), s.request(c)
	c.Limits = call.charge.Limits
	if err := s.do(ctx, call); err != nil {
		return core.Decision{}, nil, err
	}
	readings, now, err := decode(c, call.values, readings)
	clear(call.keys) // so that the user's name can be freed
	call.values, call.batch = nil, nil
	call.state.Store(callWaits)
	s.calls.Put(call)
	if err != nil {
		return core.Decision{}, nil, err
	}
	d := c.Answer(readings, now)
	d.Issue(s)
	return d, readings, nil
}

// Reset deletes the states of the limits for that user and action.
func (s *Store) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	args := []any{"del"}
	for _, k := range s.keys(user, action, limits) {
		args = append(args, k)
	}
	call := &call{args: args, keyAt: 1}
	return s.refusals.change(user, action, func() error {
		if err := s.do(ctx, call); err != nil {
			return err
		}
		if n, ok := call.reply.(int64); !ok || n < 0 {
			return ErrReply
		}
		return nil
	})
}
