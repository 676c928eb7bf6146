// Package redisstore keeps the state of limits in Redis, so that a fleet shares them:
// same answers as memorystore, decided in one round trip by Redis's own clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// Any redis.UniversalClient serves: a single server, Sentinel, Cluster or Ring, with
// Redis 6.2 or later. The server need not be up when the program starts.
//
// With a *redis.Client, of a single server or Sentinel, decisions that are asked for
// while others are under way go out together, in one run of the script. One that finds
// nothing under way goes at once. On a Cluster or Ring each goes by itself, as it does
// if a server behind a plain client turns out to be part of a cluster. A proxy that
// spreads keys over servers needs a client that is not a *redis.Client.
//
// # Under attack
//
// Whoever is over the limit and goes on is refused by the process, without Redis, for as
// long as Redis would certainly refuse too; Redis is asked again within a second, by one
// caller. Such a decision has core.SourceCache. Reset, Refund, Surcharge, Ban, Unban and
// other numbers in a limiter of the same store end that at once, and what other processes
// do, or another Store, is seen within the second. RetryAfter then errs to the later
// side, by no more than the first answer took.
//
// Asked for every time are what costs more than one, unless it is banned; what an
// ElasticWindow, CountRefused or a BanPolicy records; and CL.THROTTLE, whose times are whole
// seconds. Up to 16,384 refusals are kept, in some 4 MB.
//
// # Failure
//
// [Options].Timeout bounds every call, whatever the client's own options are. A
// call that has no answer is an error, [ErrTimeout] or what the client or Redis
// says; it is never a verdict, and no charge is sent twice: the client's retries
// are off for these commands. What happens then is said with core.Fallback or
// core.FailOpen; a bare Store fails closed.
//
// Give the client ContextTimeoutEnabled. Without it a connection whose reply is lost
// is held for the client's ReadTimeout, 5 s by default, and not for five time-outs, and
// once all of its pool are, so long do calls fail after the network is well again.
//
// A caller whose context ends before its charge is sent is not charged; after that it
// may be, and so may one whose charge waits for a connection with those of others who
// stay.
//
// # Keys
//
// A key is tailcut:{user}:action:limit, such as
//
//	tailcut:{laoqian}:reply:sliding:1m0s
//	tailcut:{laoqian}:like:funnel
//
// Bytes that are not printable or that mean something in a key are escaped as %XX,
// and a user or action of more than 128 bytes is kept as ~ and its digest, so any
// two users have different keys and none can choose a cluster slot. Every key
// expires when its state is whole again. Options.Prefix separates applications;
// Options.Secret keeps users out of Redis.
//
// # Server
//
// Limits that are evicted are forgiven. Give them a server of their own with
//
//	maxmemory-policy noeviction
//
// and a user that can do no more than it must:
//
//	ACL SETUSER tailcut on >password resetchannels ~tailcut:* -@all +evalsha +eval +time +type +get +set +del +getrange +setrange +strlen +zadd +zcard +zcount +zrange +zrem +zremrangebyscore +zremrangebyrank +pexpireat +hello +client|setname
//
// With Sentinel that is all. To find its nodes and to see that they are there, a client
// of several also needs
//
//	Cluster: +cluster|slots +asking
//	Ring: +ping
//
// Persistence is not needed; without it a restart forgives everybody once.
//
// # Failover
//
// With Sentinel or Cluster a replica takes over from a master that dies. From the
// death to the election, and the moment that a client takes to hear of it, calls fail.
// Nothing else is to be done: the new master is taught the script by the first call.
//
// A store that may, by +info, asks once which policy there is, and warns if limits can
// be evicted (code "redis-evicts").
//
// Replication is asynchronous: what a master has admitted and not yet passed on is
// forgotten. Users can do again what they did in the replica's lag, which is
// milliseconds on a network that is well, and never more than one quota for each
// failover. A master that is cut off from its replica and not dead goes on admitting
// to whoever still reaches it, which can be one quota more; min-replicas-to-write 1
// ends that after min-replicas-max-lag.
//
// In a Cluster only the users of the dead master wait for the election, if it runs with
//
//	cluster-require-full-coverage no
//
// A slot that moves costs nothing and forgets nothing. But a charge of several limits
// of which some have no state yet, or not on the same side, is refused by the cluster
// with TRYAGAIN, an error, until the slot has moved.
//
// # What a fleet carries
//
// A decision on a Cluster costs its node 16 us of Redis's one thread for a Funnel, 18 for
// a FixedWindow, 30 for a SlidingWindow and 23 for a Funnel with a FixedWindow; sent
// together, to a single server, 4, 4, 10 and 8 (Redis 7.0 on a busy machine of two cores,
// 128 callers). So a node carries some 63,000, 56,000, 33,000 and 43,000 a second, and N
// masters N times that if users are many and alike; a single server carries what three
// to five masters do. All of one user's decisions are on one node. A failover costs
// the 1/N of the users that the master had its election, and the actions of its lag:
// at 30,000 a second and a lag of 1 ms some 30.
package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
)

// The errors that are this package's own, in the sense of errors.Is. What the client
// says is wrapped as it is; what Redis says to the script, that it is out of memory for
// example, is wrapped as a redis.Error of the same text.
var (
	// ErrTimeout: there was no answer within Options.Timeout, or within a time-out of the
	// client's own that is shorter. The charge may have been taken.
	ErrTimeout = errors.New("redisstore: no answer within the time-out")

	// ErrBusy: too many calls wait for an answer already. The charge was not sent.
	ErrBusy = errors.New("redisstore: too many calls wait for an answer")

	// ErrState: a key holds a value of another type, or one that is no state. Delete
	// it, or choose another Options.Prefix. It is a core.ErrKey.
	ErrState error = keyError("redisstore: a key holds something that is not a state")

	// ErrReply: Redis's answer is not one of ours. Nothing is read from it.
	ErrReply = errors.New("redisstore: the reply cannot be read")
)

// A keyError says nothing of how the server fares with others.
type keyError string

func (e keyError) Error() string      { return string(e) }
func (keyError) Is(target error) bool { return target == core.ErrKey }

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

	// Secret, if not empty, keeps users out of Redis: a key then has an
	// HMAC-SHA-256 of the user under it. All processes must have the same; with
	// another everyone starts anew.
	Secret string

	// CLThrottle has the server's own CL.THROTTLE decide (redis-cell, Dragonfly). It
	// serves limiters of exactly one Funnel or Throttle whose rate has a period of
	// whole seconds and is at most 1,000 a second; another is an error of core.New.
	// Its answers are the module's, to the second, and its state is apart from that
	// of the scripts. Nothing can be given back, and a Surcharge is an error.
	CLThrottle bool
}

// Store is a [core.Store] on Redis. It is safe for use by many goroutines and needs
// no closing; the client stays the caller's.
type Store struct {
	rdb     redis.UniversalClient
	timeout time.Duration
	prefix  string
	secret  []byte
	cell    bool // CL.THROTTLE
	line    *line
	denials *denials
	calls   sync.Pool // *call, answered
	seed    maphash.Seed
	orders  [64]atomic.Pointer[order]

	answered  atomic.Int32 // commands, up to policyAfter
	scattered atomic.Bool  // the keys of two users may be on two servers
}

// New makes a store on rdb. opts may be nil. It panics if rdb is nil or an option is
// out of bounds; it does not talk to Redis. The client's hooks see the commands with a
// context of the store's own. In a test with testing/synctest make it in the bubble where
// it is used.
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
	case rdb == nil:
		panic("redisstore: New: the client is nil; make one with redis.NewClient or redis.NewUniversalClient")
	case o.Timeout < minTimeout || o.Timeout > maxTimeout:
		panic(fmt.Sprintf("redisstore: New: Timeout %s is not within %s to %s; 0 is the default of %s", o.Timeout, minTimeout, maxTimeout, defaultTimeout))
	case !validPrefix(o.Prefix):
		panic(fmt.Sprintf("redisstore: New: Prefix %q is not 1 to 64 letters, digits, dots, underscores, dashes or colons", o.Prefix))
	}
	s := &Store{rdb: rdb, timeout: o.Timeout, prefix: o.Prefix, cell: o.CLThrottle, denials: newDenials(), seed: maphash.MakeSeed()}
	s.line = &line{most: maxCalls, timeout: o.Timeout}
	s.calls.New = func() any { return new(call) }
	_, single := rdb.(*redis.Client)
	s.scattered.Store(!single)
	if o.Secret != "" {
		s.secret = []byte(o.Secret)
	}
	return s
}

func validPrefix(s string) bool {
	const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"
	return len(s) <= 64 && strings.Trim(s, legal) == ""
}

//go:embed take.lua
var takeSource string

var takeScript = redis.NewScript(takeSource)

// Take decides a charge in one round trip, together with those that wait with it, or
// repeats a refusal.
func (s *Store) Take(ctx context.Context, c core.Charge) (d core.Decision, err error) {
	if s.cell {
		return s.throttle(ctx, &c)
	}
	var few [4]core.Reading
	switch {
	case c.Peek:
		d, _, err = s.ask(ctx, &c, few[:0])
		return d, err
	case c.Force || c.Ahead > 0 || c.Limits[0].Kind() == core.KindLadder:
		err = s.denials.change(c.User, c.Action, func() error {
			d, _, err = s.ask(ctx, &c, few[:0])
			return err
		})
		return d, err
	}
	if err := ctx.Err(); err != nil {
		return d, err
	}
	d, known, q := s.denials.recall(&c)
	if known {
		return d, nil
	}
	d, readings, err := s.ask(ctx, &c, few[:0])
	if err == nil {
		s.denials.learn(&c, q, &d, readings)
	}
	return d, err
}

// ask has Redis decide, and appends what it reads.
func (s *Store) ask(ctx context.Context, c *core.Charge, readings []core.Reading) (core.Decision, []core.Reading, error) {
	call := s.calls.Get().(*call)
	call.keys, call.order = s.appendKeys(call.keys[:0], c.User, c.Action, c.Limits), s.order(c)
	if err := s.do(ctx, call); err != nil {
		return core.Decision{}, nil, err
	}
	readings, now, err := decode(c, call.reply, readings)
	clear(call.keys) // they hold the user
	call.reply = nil
	call.state.Store(callWaits)
	s.calls.Put(call)
	if err != nil {
		return core.Decision{}, nil, err
	}
	d := c.Answer(readings, now)
	d.Issue(s)
	return d, readings, nil
}

// dated is whether the script says when it has decided, and what meters know of refunds.
func dated(c *core.Charge) bool { return c.Receipt && !c.Peek && !c.Force }

// Reset forgets the states of the limits for that user and action.
func (s *Store) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	line := []any{"del"}
	for _, k := range s.keys(user, action, limits) {
		line = append(line, k)
	}
	call := &call{line: line, keyAt: 1}
	return s.denials.change(user, action, func() error {
		if err := s.do(ctx, call); err != nil {
			return err
		}
		if n, ok := call.reply.(int64); !ok || n < 0 {
			return ErrReply
		}
		return nil
	})
}

func (s *Store) keys(user, action string, limits []core.Limit) []string {
	return s.appendKeys(nil, user, action, limits)
}

func (s *Store) appendKeys(keys []string, user, action string, limits []core.Limit) []string {
	var few [128]byte
	base := s.appendBase(few[:0], user, action)
	for i := range limits {
		identity := limits[i].Identity()
		if s.cell {
			identity = cellIdentity(limits[i])
		}
		keys = append(keys, string(append(base, identity...)))
	}
	return keys
}

// An order is what the script is told of a charge, but for the keys.
type order struct {
	charge core.Charge // without whose it is
	spec   any         // a string
	size   int         // numbers in the reply
	weight int         // how long it takes, in simple charges
}

// order is that of a charge. Limiters have the same again and again, so the last few are
// kept, each in the one place where it can be.
func (s *Store) order(c *core.Charge) *order {
	at := &s.orders[maphash.String(s.seed, c.Limits[0].Identity())%uint64(len(s.orders))]
	if o := at.Load(); o != nil && o.of(c) {
		return o
	}
	o := &order{charge: *c, spec: spec(c)}
	o.charge.User, o.charge.Action, o.charge.Limits = "", "", slices.Clone(c.Limits)
	if dated(c) {
		o.size++
	}
	for i := range c.Limits {
		o.size += words(&c.Limits[i], dated(c))
		o.weight += weight(&c.Limits[i], c.Cost)
	}
	at.Store(o)
	return o
}

func (o *order) of(c *core.Charge) bool {
	k := &o.charge
	return k.Cost == c.Cost && k.Peek == c.Peek && k.Force == c.Force && k.Receipt == c.Receipt &&
		k.Ahead == c.Ahead && slices.Equal(k.Limits, c.Limits)
}

// spec is the script's ARGV for a charge.
func spec(c *core.Charge) string {
	var few [256]byte
	b := append(few[:0], '1')
	switch {
	case c.Peek:
		b[0] = '0'
	case c.Force:
		b[0] = '3'
	case c.Receipt:
		b[0] = '2'
	}
	if c.Ahead > 0 {
		b = strconv.AppendInt(append(b, ':'), c.Ahead, 10)
	}
	numbers := func(ns ...int64) {
		for _, n := range ns {
			b = strconv.AppendInt(append(b, ' '), n, 10)
		}
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		b = append(b, ' ')
		if l.Shadowed() {
			b = append(b, '~')
		}
		switch l.Kind() {
		case core.KindTokenBucket, core.KindFunnel:
			n := l.Numbers(c.Cost)
			if l.Memory() > 0 {
				b = append(b, "initial"...)
			} else {
				b = append(b, "meter"...)
			}
			numbers(n.Cost, n.CostPart, n.Full, n.FullPart, n.Den)
			if l.Memory() > 0 {
				numbers(n.Start, n.StartPart, l.Memory().Microseconds())
			}
		case core.KindLadder:
			refusals, within, quiet, bans := l.Rungs()
			byHand := int64(0)
			if i == 0 && !c.Peek {
				byHand = c.Cost
			}
			b = append(b, "ladder"...)
			numbers(byHand, int64(refusals), within, quiet)
			numbers(bans...)
		default:
			b = append(b, l.Kind().String()...)
			// A cost above the quota is all the same to a window; Lua's numbers end at 2^53.
			numbers(min(c.Cost, 1<<40), int64(l.Quota()), l.Period().Microseconds())
		}
	}
	return string(b)
}

// weight is how long a limit takes the script, in simple charges: a queue writes an
// entry for each unit.
func weight(l *core.Limit, cost int64) int {
	switch l.Kind() {
	case core.KindSlidingWindow, core.KindSlidingRefused:
		return 4 + int(min(cost, int64(l.Quota()))/2)
	case core.KindMovingWindow:
		return 4 + int(min(cost, int64(l.Quota()))/2000)
	}
	return 1
}

// words is how many numbers the script replies for a limit.
func words(l *core.Limit, dated bool) int {
	switch l.Kind() {
	case core.KindFixedWindow, core.KindElasticWindow:
		return 2
	case core.KindTokenBucket, core.KindFunnel:
		n := 1
		if l.Numbers(1).Den > 1 {
			n++
		}
		if dated {
			n++
		}
		return n
	case core.KindLadder:
		return 4
	}
	return 3
}

// decode appends a charge's part of the reply, which has the numbers of each limit and
// nothing else, but for the instant of a charge that is dated.
func decode(c *core.Charge, reply any, readings []core.Reading) ([]core.Reading, int64, error) {
	values, ok := reply.([]any)
	if !ok {
		return nil, 0, ErrReply
	}
	now, dated := int64(0), dated(c)
	if dated {
		if len(values) == 0 {
			return nil, 0, ErrReply
		}
		if now, ok = values[0].(int64); !ok || now < 0 {
			return nil, 0, ErrReply
		}
		values = values[1:]
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		var n [4]int64
		size := words(l, dated)
		if len(values) < size {
			return nil, 0, ErrReply
		}
		for j := range size {
			v, ok := values[j].(int64)
			if !ok || v < 0 {
				return nil, 0, ErrReply
			}
			n[j] = v
		}
		values = values[size:]
		r := core.Reading{Fits: n[0]&1 == 1}
		switch l.Kind() {
		case core.KindTokenBucket, core.KindFunnel:
			if r.Rest = n[0] >> 1; dated {
				r.Count, n[size-1] = n[size-1], 0
			}
			r.Part = n[1]
		default:
			r.Count, r.Rest, r.Wait, r.Part = n[0]>>1, n[1], n[2], n[3]
		}
		readings = append(readings, r)
	}
	if len(values) > 0 {
		return nil, 0, ErrReply
	}
	return readings, now, nil
}

// An Entry is an action in the history of a SlidingWindow.
type Entry struct {
	Time     time.Time // by Redis's clock
	Admitted bool      // false: refused, which only CountRefused records
}

// History returns what a SlidingWindow remembers of user and action, oldest first:
// the actions of its period, and maybe some older ones that no longer count. The
// limit must be the one, or of the identity, that the limiter has.
func (s *Store) History(ctx context.Context, user, action string, limit core.Limit) ([]Entry, error) {
	if k := limit.Kind(); k != core.KindSlidingWindow && k != core.KindSlidingRefused {
		return nil, fmt.Errorf("redisstore: History: %s keeps no history; SlidingWindow does", limit)
	}
	key := s.keys(user, action, []core.Limit{limit})[0]
	// By a script, whose reply is of one shape in RESP2 and RESP3.
	call := &call{line: []any{"eval", "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", 1, key}, keyAt: 3}
	if err := s.do(ctx, call); err != nil {
		return nil, err
	}
	values, ok := call.reply.([]any)
	if !ok || len(values)%2 != 0 {
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
