package redisstore

// The errors of the store, and how an error of Redis or of the client becomes one of them.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// These are errors of this package, for errors.Is. If the client returns another error, the store
// usually wraps that error. If Redis returns an error to the script, for example because Redis is
// out of memory, the store returns an error that wraps a redis.Error of the same text.
var (
	// ErrTimeout says that Redis did not answer within Options.Timeout, or within a shorter timeout
	// of the client. Redis may have decided the charge nevertheless.
	ErrTimeout = errors.New("redisstore: no answer within the timeout")

	// ErrBusy says that 8,192 calls are waiting for an answer. On a Cluster or Ring the store
	// counts the calls to each server separately. The store did not send the charge.
	ErrBusy = errors.New("redisstore: too many calls are waiting for an answer")

	// ErrState says that a key holds a value of another type, or a value that is not a state of a
	// limit. Delete the key, or choose another Options.Prefix. ErrState matches core.ErrKey.
	ErrState error = keyError("redisstore: a key holds something that is not a state")

	// ErrClock says that the clocks of this process and of Redis differ by more than a period of a
	// CalendarWindow. Set the clocks. ErrClock matches core.ErrKey.
	ErrClock error = keyError("redisstore: the clocks of this process and of Redis differ by more than a period of a CalendarWindow; set them")

	// ErrReply says that Redis sent a reply that the store cannot read. Redis may have decided the
	// charge nevertheless.
	ErrReply = errors.New("redisstore: the reply cannot be read")
)

// A keyError matches core.ErrKey: it is about one key, and the server may work for other users.
type keyError string

func (e keyError) Error() string      { return string(e) }
func (keyError) Is(target error) bool { return target == core.ErrKey }

// A scriptError is an error that Redis returned to the script.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError makes a scriptError a redis.Error.
func (scriptError) RedisError() {}

// plainError makes an error of the text of an error that Redis returned to the script. Redis 6.2
// puts the line number of the script before the text, and a newline after it. plainError removes
// both.
func plainError(text string) scriptError {
	if strings.HasPrefix(text, "@user_script") {
		if _, own, ok := strings.Cut(text, ": -"); ok {
			text = strings.TrimSpace(own)
		}
	}
	return scriptError(text)
}

// explain turns the error of a call into the error that the caller gets. The argument since is when
// the call began.
func (w *wire) explain(ctx context.Context, since time.Time, err error) error {
	var late net.Error
	now := time.Now()
	end, ends := ctx.Deadline()
	text := failure{err}.Error()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == batch.ErrBusy:
		return ErrBusy
	case errors.Is(err, ErrReply):
		return ErrReply
	case err == context.DeadlineExceeded && ends && !now.Before(end):
		return err // both end at once
	case errors.As(err, &late) && late.Timeout():
		if now.Sub(since) < w.options.Timeout {
			return ErrTimeout // of the client's own timeout
		}
		return w.timeoutError()
	case strings.Contains(text, "WRONGTYPE"), strings.Contains(text, "TAILCUTSTATE"):
		return ErrState
	case strings.Contains(text, "TAILCUTCLOCK"):
		return ErrClock
	case redis.HasErrorPrefix(err, "TRYAGAIN"), redis.HasErrorPrefix(err, "CLUSTERDOWN Hash slot not served"):
		return slotFailure{failure{err}}
	}
	return failure{err}
}

// timeoutError returns the error of a call without an answer within Options.Timeout.
func (w *wire) timeoutError() error { return fmt.Errorf("%w of %s", ErrTimeout, w.options.Timeout) }

// brief is an error whose text leaves out the arguments of the command, because the arguments have
// the name of the user.
type brief struct{ error }

func (e brief) Error() string {
	text, _, _ := strings.Cut(e.error.Error(), ", with args beginning with")
	return text
}

func (e brief) Unwrap() error { return e.error }

// failure is an error of the client or of Redis that the store only wraps.
type failure struct{ error }

func (f failure) Error() string { return "redisstore: " + brief(f).Error() }

func (f failure) Unwrap() error { return f.error }

// slotFailure is the failure of one slot of a Cluster, which is being moved or has no master. The
// server may work for other users.
type slotFailure struct{ failure }

func (slotFailure) Is(target error) bool { return target == core.ErrKey }
