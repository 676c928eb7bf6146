package redisstore

// The store, and its decisions. Below it are, in this order: what is sent and replied (protocol.go),
// the Lua that runs on the server (library.go), what sends it (internal/batch), the cache of
// refusals (internal/refusals), and before all of them the units of leased limits that the process
// holds (internal/lease).

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
	"github.com/tailcut/tailcut/core/redisstore/internal/lease"
	"github.com/tailcut/tailcut/core/redisstore/internal/refusals"
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
	// colons; "" is "tailcut". Give each application on a server its own: with one prefix
	// they share the limits of users and actions of the same name.
	Prefix string

	// Secret, if not empty, keeps users' names out of Redis: a key then has an
	// HMAC-SHA-256 of the user under Secret. All processes must have the same Secret. With
	// another one every user has a new state.
	Secret string

	// Tag, if not nil, returns the hash tag of a user's keys; nil and "" are the user. Users with one
	// tag have their keys in one slot of a Cluster, so that core.All decides about them in one step.
	// If users are named "org-7/alice" and organizations "org-7", this makes the organization the tag:
	//
	//	func(user string) string { org, _, _ := strings.Cut(user, "/"); return org }
	//
	// It is called for every decision, and must return the same for a user in all processes. With
	// another one the users whose tag differs have a new state. A slot is on one server, so all users
	// with one tag are.
	Tag func(user string) string

	// NoRefusalCache has Redis decide every attempt. Set it in a test that moves the
	// server's clock, or if a refusal must end as soon as another process ends it.
	NoRefusalCache bool

	// NoFunctions has the server run the Lua as a script even if it has Redis Functions.
	NoFunctions bool

	// CLThrottle has the server's own CL.THROTTLE decide (redis-cell, Dragonfly). It
	// serves limiters of exactly one Funnel or Throttle whose rate has a period of whole
	// seconds and is at most 1,000 a second. For other limiters core.New returns an error.
	// The answers are the module's, in whole seconds. The module and the scripts have
	// separate states. Decisions cannot be refunded, and a Surcharge is an error, as is core.All of
	// several subjects.
	CLThrottle bool
}

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
		s.leases.Drop(c.User)
		defer s.leases.Drop(c.User)
	}
	return s.decide(ctx, c)
}

// decide decides a charge in Redis, or repeats a refusal.
func (s *Store) decide(ctx context.Context, c core.Charge) (d core.Decision, err error) {
	r := s.request(&c)
	c.Limits = r.subjects[0].Limits // which never change
	ask := func() (core.Decision, []machine.Reading, error) { return s.ask(ctx, &c, r) }
	switch {
	case c.Mode == machine.Peek || s.options.NoRefusalCache:
		d, _, err = ask()
	case c.And != nil || c.Mode == machine.Force || c.Mode == machine.Owe || c.Ahead > 0 || c.Ban > 0:
		err = s.refusals.Change(&c, func() error {
			d, _, err = ask()
			return err
		})
	case ctx.Err() != nil:
		err = ctx.Err()
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
	s.leases.Drop(user)
	defer s.leases.Drop(user)
	keys := s.appendKeys(nil, user, action, limits)
	return s.change(ctx, user, action, keys, simple(1, box([]any{"del"}, keys)...))
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

// change sends a command that can end a refusal. Its reply is a number.
func (s *Store) change(ctx context.Context, user, action string, keys []string, c command) error {
	return s.refusals.Change(&core.Charge{User: user, Action: action}, func() error {
		_, err := s.number(ctx, keys, c)
		return err
	})
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

// An Entry is an action in the history of a SlidingWindow.
type Entry struct {
	Time     time.Time // by Redis's clock
	Admitted bool      // false: refused, which only CountRefused records
}

// History returns the history of a SlidingWindow for user and action, oldest first. It has all
// admitted actions of the last period, and maybe some older ones. With CountRefused it has the
// newest entries, as many as the limit's max: refused attempts displace admitted ones. limit is
// the limiter's own, or one of the same identity.
func (s *Store) History(ctx context.Context, user, action string, limit core.Limit) ([]Entry, error) {
	if k := limit.Rule().Kind; k != machine.KindSlidingWindow && k != machine.KindSlidingRefused {
		return nil, fmt.Errorf("redisstore: History: %s keeps no history; SlidingWindow does", limit)
	}
	switch {
	case ctx == nil:
		return nil, errors.New("redisstore: History: the context is nil; pass the request's, or context.Background()")
	case user == "":
		return nil, core.ErrNoUser
	case action == "":
		return nil, core.ErrNoAction
	}
	keys := s.appendKeys(nil, user, action, []core.Limit{limit})
	// A script's reply has the same form in RESP2 and RESP3.
	values, err := s.do(ctx, keys, simple(3, "eval", "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", 1, keys[0]), 0)
	if err != nil {
		return nil, err
	}
	if len(values)%2 != 0 {
		return nil, ErrReply
	}
	entries := make([]Entry, 0, len(values)/2)
	for i := 0; i < len(values); i += 2 {
		member, ok1 := values[i].(string)
		score, ok2 := values[i+1].(string)
		us, err := strconv.ParseUint(score, 10, 53)
		id, refused := strings.CutSuffix(member, "r")
		if _, err2 := strconv.ParseUint(id, 10, 54); !ok1 || !ok2 || err != nil || err2 != nil {
			return nil, ErrState
		}
		entries = append(entries, Entry{Time: time.UnixMicro(int64(us)), Admitted: !refused})
	}
	return entries, nil
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

// exchange sends charges in one run of take, or one command.
func (s *Store) exchange(send batch.Send, calls []*batch.Call) (err error) {
	if c, ok := calls[0].Args.(command); ok {
		calls[0].Reply, err = c(send)
	} else {
		var reply []any
		if reply, err = s.run(send, take, takeArgs(calls)); err == nil {
			distribute(reply, calls)
		}
	}
	if err == nil {
		s.checkEviction()
	}
	return err
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
