package redisstore

// This file has the last stage of a decision, which asks Redis. A charge becomes a word
// (request.go) and keys (keys.go). The store may send the charge together with others
// (internal/batch). The Lua on the server decides the charge (server.go).

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/later"
	"github.com/tailcut/tailcut/core/internal/stores"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// A wire asks Redis about every charge.
type wire struct {
	options       Options // with the defaults
	batches       *batch.Queue
	eviction      evictionCheck
	prefixChecked atomic.Bool
	clientChecked atomic.Bool
	servers       sync.Map // *server, by address
	refusal       refusal
	clock         func() time.Time // the clock of this process, which says the periods of calendar windows
	requests      [64]atomic.Pointer[request]
}

// newWire makes a wire of the arguments of [New].
func newWire(rdb redis.UniversalClient, opts *Options) *wire {
	if stores.IsNil(rdb) {
		panic("redisstore: the client is nil; make one with redis.NewClient or redis.NewUniversalClient")
	}
	w := &wire{options: opts.withDefaults(), clock: time.Now}
	w.batches = batch.New(rdb, w.options.Timeout, w.exchange)
	return w
}

// Decide has Redis decide a charge. It returns what [core.Charge.Answer] needs.
func (w *wire) Decide(ctx context.Context, c core.Charge) (readings []machine.Reading, now int64, err error) {
	r := w.request(&c)
	call := &batch.Call{Keys: w.keys(&c), Word: r.word, Size: r.size, Weight: r.weight}
	if r.slots {
		call.Number = rand.Int64N(mostNumber) + 1
	}
	reply, err := w.do(ctx, call)
	lost := call.Lost
	if err == nil {
		readings, now, err = r.decode(reply)
		lost = err != nil
	}
	if err != nil && r.slots && lost {
		w.releaseLost(&c, call.Number)
	}
	return readings, now, err
}

// mostNumber is the highest number for the first slot of a charge. Lua needs the numbers of all
// slots of the charge below 2^53. The numbers are random. If a key has 10,000 slots, about one
// charge in 10^12 gets a number that is in use.
const mostNumber = 1<<53 - 1<<14

// releaseLost releases, in the background, the slots of a charge that has no answer. Redis may
// still receive the charge, or may have refused it. Therefore, if releaseLost does not find the
// slots, it tries again for about a minute. If Redis does not answer, it may try for longer, but
// not after the lease has ended.
func (w *wire) releaseLost(c *core.Charge, number int64) {
	release := machine.Amendment{Verb: machine.VerbRelease}
	for _, p := range c.Parts() {
		r := &core.Record{Charge: core.Charge{User: strings.Clone(p.User), Action: strings.Clone(p.Action), Cost: p.Cost, Terms: &core.Terms{Limits: p.Limits}}}
		var taken machine.Reading
		taken.Fits, taken.Detail = true, number
		r.Readings = slices.Repeat([]machine.Reading{taken}, len(r.Limits))
		lease := time.Duration(0)
		for i := range r.Limits {
			if r.Amends(i, release) {
				lease = max(lease, r.Limits[i].Period())
			}
		}
		if lease > 0 {
			later.Try(func() (found bool, err error) {
				return w.Amend(context.Background(), r, release)
			}).Now(lease)
		}
	}
}

// Amend has Redis refund, release or renew a charge.
func (w *wire) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	amended, word := amendWord(r, a)
	keys := w.appendKeys(nil, r.User, r.Action, amended)
	args := append(box([]any{nil, nil, len(keys)}, keys), strconv.FormatInt(r.At, 10), word)
	n, err := w.number(ctx, keys, func(send batch.Send) ([]any, error) { return w.run(send, amend, args) })
	return n == 1, err
}

// amendWord returns the limits whose states an amendment changes, and a string that tells the script
// the rules of these limits.
func amendWord(r *core.Record, a machine.Amendment) (amended []core.Limit, word string) {
	var b []byte
	var numbers [8]int64
	for i := range r.Limits {
		if r.Amends(i, a) {
			amended = append(amended, r.Limits[i])
			rule := r.Limits[i].Rule()
			b = appendLimit(append(b, ' '), rule, formOf(rule).amendArgs(rule, numbers[:0], r.Taken(i), a))
		}
	}
	return amended, string(b)
}

// Reset deletes the states that the limits have for the user and the action.
func (w *wire) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return w.delete(ctx, w.appendKeys(nil, user, action, limits))
}

func (w *wire) delete(ctx context.Context, keys []string) error {
	_, err := w.number(ctx, keys, simple(1, box([]any{"del"}, keys)...))
	return err
}

// number sends a command and returns its reply, which must be a number.
func (w *wire) number(ctx context.Context, keys []string, c batch.Command) (n int64, err error) {
	reply, err := w.do(ctx, &batch.Call{Keys: keys, Command: c})
	if err != nil {
		return 0, err
	}
	n, ok := reply[0].(int64)
	if len(reply) > 1 || !ok || n < 0 {
		return 0, ErrReply
	}
	return n, nil
}

// simple returns a command with the given arguments. The argument keyAt is the index of the first
// key in args. If the command has no key, keyAt is 0.
func simple(keyAt int8, args ...any) batch.Command {
	return func(send batch.Send) ([]any, error) { return send(args, keyAt) }
}

// do sends a call to Redis and waits for its reply.
func (w *wire) do(ctx context.Context, c *batch.Call) ([]any, error) {
	start := time.Now()
	reply, err := w.batches.Do(ctx, c)
	if err != nil {
		return nil, w.explain(ctx, start, err)
	}
	w.checkServer()
	return reply, nil
}

// exchange sends charges to Redis in one run of the program take, and gives each charge its part of
// the reply.
func (w *wire) exchange(send batch.Send, calls []*batch.Call) error {
	reply, err := w.run(send, take, takeArgs(calls))
	switch {
	case err == nil:
		distribute(reply, calls)
	case w.refusesTogether(send, calls, err):
		return batch.Apart{Reply: err}
	}
	return err
}

// connect is [Store.Connect]. It calls find for each server.
func (w *wire) connect(ctx context.Context, find func(server string, send batch.Send) error) error {
	start := time.Now()
	err := w.batches.Connect(ctx, func(server string, send batch.Send) error {
		_ = w.readEviction(send)
		return find(server, send)
	})
	if err != nil {
		return w.explain(ctx, start, err)
	}
	w.checkClient()
	w.checkPrefix(ctx)
	return nil
}

// part is [Store.Part].
func (w *wire) part(user string) string {
	var buf [128]byte
	return w.batches.Server(string(w.appendUser(buf[:0], user)))
}
