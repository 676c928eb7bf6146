package redisstore

// The last stage of a decision: it asks Redis. A charge becomes words (protocol.go) and keys (keys.go), goes
// out in a batch with others (internal/batch), and is decided by the Lua that runs on the server (library.go).

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/stores"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// A wire asks Redis.
type wire struct {
	options       Options // with the defaults
	batches       *batch.Queue
	eviction      evictionCheck
	prefixChecked atomic.Bool
	clientChecked atomic.Bool
	ways          sync.Map // *way, by address: how a server runs programs
	refusal       refusal
	clock         func() time.Time // this process's, which says the periods of calendar windows
	requests      [64]atomic.Pointer[request]
}

// newWire is for the arguments of the constructors.
func newWire(rdb redis.UniversalClient, opts *Options) *wire {
	if stores.IsNil(rdb) {
		panic("redisstore: the client is nil; make one with redis.NewClient or redis.NewUniversalClient")
	}
	s := &wire{options: opts.withDefaults(), clock: time.Now}
	s.batches = batch.New(rdb, s.options.Timeout, s.exchange)
	return s
}

// Take decides a charge in one round trip. A refusal always has a record, even if the charge asks
// for none, because the cache of refusals needs its readings.
func (s *wire) Take(ctx context.Context, c core.Charge) (d core.Decision, kept *core.Record, err error) {
	r := s.request(&c)
	call := &batch.Call{Keys: s.keys(&c), Word: r.word, Size: r.size, Weight: r.weight}
	if r.slots {
		call.Number = rand.Int64N(mostNumber) + 1
	}
	var readings []machine.Reading
	var now int64
	reply, err := s.do(ctx, call)
	lost := call.Lost
	if err == nil {
		readings, now, err = r.decode(reply)
		lost = err != nil
	}
	if err != nil {
		if r.slots && lost {
			s.releaseLost(&c, call.Number)
		}
		return d, nil, err
	}
	switch d, kept = c.Answer(readings, now); {
	case kept != nil:
		kept.By = s
	case !d.Allowed:
		kept = &core.Record{Charge: c, Readings: readings}
	}
	return d, kept, nil
}

// Amend refunds, releases or renews a charge in one round trip.
func (s *wire) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	amended, word := amendWord(r, a)
	keys := s.appendKeys(nil, r.User, r.Action, amended)
	args := append(box([]any{nil, nil, len(keys)}, keys), strconv.FormatInt(r.At, 10), word)
	n, err := s.number(ctx, keys, func(send batch.Send) ([]any, error) { return s.run(send, amend, args) })
	return n == 1, err
}

// Reset deletes the states of the limits for that user and action.
func (s *wire) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return s.delete(ctx, s.appendKeys(nil, user, action, limits))
}

func (s *wire) delete(ctx context.Context, keys []string) error {
	_, err := s.number(ctx, keys, simple(1, box([]any{"del"}, keys)...))
	return err
}

// number sends a command whose reply is a number.
func (s *wire) number(ctx context.Context, keys []string, c batch.Command) (n int64, err error) {
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

// do sends a call to Redis and waits for its reply.
func (s *wire) do(ctx context.Context, c *batch.Call) ([]any, error) {
	start := time.Now()
	reply, err := s.batches.Do(ctx, c)
	if err != nil {
		return nil, s.explain(ctx, start, err)
	}
	s.checkServer()
	return reply, nil
}

// connect is [Store.Connect]. It has find look at each server.
func (s *wire) connect(ctx context.Context, find func(server string, send batch.Send) error) error {
	start := time.Now()
	err := s.batches.Connect(ctx, func(server string, send batch.Send) error {
		_ = s.readEviction(send)
		return find(server, send)
	})
	if err != nil {
		return s.explain(ctx, start, err)
	}
	s.checkClient()
	s.checkPrefix(ctx)
	return nil
}

// part is the address of the server that has the user's states, on a Cluster or a Ring. Otherwise it is empty.
func (s *wire) part(user string) string {
	var buf [128]byte
	return s.batches.Server(string(s.appendUser(buf[:0], user)))
}
