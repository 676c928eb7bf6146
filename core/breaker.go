package core

// The breaker of FailOpen, Fallback and Shadow. It decides whether they ask the store that they
// wrap.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/internal/stores"
	"github.com/tailcut/tailcut/core/notice"
)

// A breaker opens if its store fails three times in a row. While it is open, only one call at a
// time asks the store. That call is a probe. For all other calls the breaker returns at once that
// there is no answer, so that FailOpen, Fallback or Shadow handles the call without the store. If
// the store answers a probe, the breaker closes. A breaker needs no timer and no goroutine, because
// each call compares instants.
//
// A client may choose when its call ends. So an error says nothing about the store if the caller
// has canceled, or if the deadline has ended and gave the store less than fairTime. For the same
// reason a probe does not end when its caller leaves. It ends after fairTime at the latest.
//
// If the store is a [Partitioned], such as a cluster, each part that fails has a circuit of its
// own. Parts beyond maxParts share one circuit.
//
// Failures that overlap count once: a failure counts only if its call began after the last failure
// that counted. So a failed batch or a short stall counts once. If the store hangs, the breaker
// opens after three timeouts of the store.
type breaker struct {
	store Store
	what  string // the text that is logged when the breaker opens

	failures atomic.Int64 // the number of failures that have counted, in all parts
	troubled atomic.Bool  // whether circuits has entries; without any, a call takes no lock

	mu       sync.Mutex // guards the fields below
	circuits map[string]*circuit
	calm     time.Time // when the outage is over, if nothing else fails
	warned   bool      // the outage has been logged
	last     error     // the error of the last failure

	faltered notice.Rarely // the warning about single failures
}

var _ Breaker = (*breaker)(nil)

// A circuit is the state of a breaker for a part of its store in which a call has failed lately.
type circuit struct {
	failed  int       // failures in a row; the circuit is open at stores.Trip
	latest  int64     // the number of its last failure
	at      time.Time // the instant of its last failure
	probing bool
	probe   time.Time // the earliest instant of the next probe
}

const (
	fairTime   = time.Second // a store should answer or fail within this time
	maxParts   = 64          // circuits at the same time; further failing parts share one
	probeEvery = 250 * time.Millisecond
	calmFor    = 5 * time.Second // an outage is over after this time without a failure
)

func newBreaker(store Store, where, what string) breaker {
	return breaker{store: mustStore(store, where), what: what, circuits: map[string]*circuit{}}
}

// part returns the part of the store that has the user's states.
func (b *breaker) part(user string) string {
	if s, ok := find[Partitioned](b.store); ok {
		return s.Part(user)
	}
	return ""
}

func (c *circuit) open() bool { return c != nil && c.failed == stores.Trip }

// Open reports whether the breaker is open for the part of the store that has the user's states.
func (b *breaker) Open(user string) bool {
	if !b.troubled.Load() {
		return false
	}
	part := b.part(user)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.circuit(part).open()
}

// Failing reports whether the breaker is open for a part of the store in which a call has failed
// within the last minute.
func (b *breaker) Failing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.circuits {
		if k.open() && time.Since(k.at) < stores.DownFor {
			return true
		}
	}
	return false
}

func (b *breaker) Unwrap() Store { return b.store }

// Reset asks the store even if the breaker is open, because no other store has the states. Its
// result neither opens nor closes the breaker, because it says little about charges.
func (b *breaker) Reset(ctx context.Context, user, action string, limits []Limit) error {
	return b.store.Reset(ctx, user, action, limits)
}

// A verdict is what the result of a call says about the store.
type verdict uint8

const (
	unknown verdict = iota // nothing: the caller left too early, or this process answered
	failed
	answered // the store has answered
	keyError // the store has answered with an ErrKey
)

// judge returns the verdict of a call. The argument short is true if the call's deadline gives the
// store less than fairTime.
func judge(ctx context.Context, short bool, d *Decision, err error) verdict {
	end, _ := ctx.Deadline()
	switch {
	case err == nil && d.Source != SourceCache && d.Source != SourceLease:
		return answered
	case err == nil, ctx.Err() == context.Canceled, short && !time.Now().Before(end):
		return unknown
	case errors.Is(err, ErrKey):
		return keyError
	}
	return failed
}

// ask asks the store, if admit allows it. If the store has no answer, ok is false. If ok is true,
// either err is nil and d is the store's decision, or err is not nil, because the caller had left.
func (b *breaker) ask(caller context.Context, c Charge) (d Decision, r *Record, ok bool, err error) {
	if err := caller.Err(); err != nil {
		return d, nil, true, err
	}
	begun := b.failures.Load()
	ask, probe := b.admit(c.User)
	if !ask {
		return d, nil, false, nil
	}
	ctx, v, short := caller, unknown, false
	if probe {
		v = failed // stays if the store panics
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(caller), fairTime)
		defer cancel()
	} else if end, ends := ctx.Deadline(); ends {
		short = time.Until(end) < fairTime
	}
	defer func() {
		if v == failed || v == keyError || b.troubled.Load() {
			b.note(c.User, begun, probe, v, err)
		}
	}()
	d, r, err = b.store.Take(ctx, c)
	v = judge(ctx, short, &d, err)
	return d, r, err == nil || caller.Err() == context.Canceled, err
}

// admit reports whether a call may ask the store, and whether it is a probe.
func (b *breaker) admit(user string) (ask, probe bool) {
	if !b.troubled.Load() {
		return true, false
	}
	part := b.part(user)
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.circuit(part)
	if !k.open() {
		return true, false
	}
	if k.probing || time.Now().Before(k.probe) {
		return false, false
	}
	k.probing = true
	return true, true
}

// note counts the verdict of a call. begun is the value of b.failures when the call began.
func (b *breaker) note(user string, begun int64, probe bool, v verdict, err error) {
	part := b.part(user) // before the lock, because a store's Part may panic or wait
	now, opens, over, falters := time.Now(), false, false, v == keyError
	b.mu.Lock()
	k := b.circuit(part)
	if k == nil && v == failed {
		k = b.add(part)
	}
	if probe && k != nil {
		k.probing, k.probe = false, now // if the verdict is unknown, the next probe may begin at once
	}
	switch {
	case k == nil:
	case v == failed && (probe || !k.open() && k.latest <= begun):
		k.latest, k.at, k.probe = b.failures.Add(1), now, now.Add(probeEvery)
		b.last, b.calm = err, now.Add(calmFor)
		k.failed = min(k.failed+1, stores.Trip)
		opens = k.open() && !b.warned
		b.warned = b.warned || opens
	case v == answered && probe:
		k.failed, b.calm = 0, now.Add(calmFor)
	case v == answered && !k.open():
		falters, err = k.failed > 0, b.last
		k.failed = 0
	}
	if v == answered && !now.Before(b.calm) {
		// If a circuit is still open, no caller has needed its part lately.
		over, b.warned = b.warned, false
		clear(b.circuits)
		b.troubled.Store(false)
	}
	b.mu.Unlock()
	if opens {
		args := []any{"code", "store-fails", "error", err}
		if part != "" {
			args = append(args, "part", part)
		}
		slog.Default().Warn(b.what, args...)
	}
	if falters && b.faltered.Due() {
		slog.Default().Warn("core: the store answers, but not every call", "code", "store-falters", "error", err)
	}
	if over {
		slog.Default().Info("core: the store answers again", "code", "store-answers")
	}
}

// circuit returns the circuit of a part, or nil if nothing has failed there lately.
func (b *breaker) circuit(part string) *circuit {
	if k := b.circuits[part]; k != nil || len(b.circuits) < maxParts {
		return k
	}
	return b.circuits[""]
}

// add makes the circuit of a part. If there are maxParts circuits, it makes the shared one.
func (b *breaker) add(part string) *circuit {
	if len(b.circuits) >= maxParts {
		part = ""
	}
	b.circuits[part] = new(circuit)
	b.troubled.Store(true)
	return b.circuits[part]
}
