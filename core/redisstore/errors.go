package redisstore

// The errors of the store, and how errors of Redis and of the client become them.

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

// The errors of this package, for errors.Is. An error of the client is wrapped as it is. An
// error that Redis returns to the script, such as being out of memory, is wrapped as a
// redis.Error of the same text.
var (
	// ErrTimeout says that there was no answer within Options.Timeout, or within a shorter
	// timeout of the client's own. The charge may have been taken.
	ErrTimeout = errors.New("redisstore: no answer within the timeout")

	// ErrBusy says that too many calls are waiting for an answer: 8,192, on a Cluster or Ring for
	// each server. The charge was not sent.
	ErrBusy = errors.New("redisstore: too many calls are waiting for an answer")

	// ErrState says that a key holds a value of another type, or a value that is not a
	// state. Delete the key, or choose another Options.Prefix. It matches core.ErrKey.
	ErrState error = keyError("redisstore: a key holds something that is not a state")

	// ErrClock says that the clocks of this process and of Redis differ by more than a period of a
	// CalendarWindow. Set them. It matches core.ErrKey.
	ErrClock error = keyError("redisstore: the clocks of this process and of Redis differ by more than a period of a CalendarWindow; set them")

	// ErrReply says that a reply is not one that the script gives. Nothing is read from it.
	ErrReply = errors.New("redisstore: the reply cannot be read")
)

// A keyError matches core.ErrKey: the server may work for other users.
type keyError string

func (e keyError) Error() string      { return string(e) }
func (keyError) Is(target error) bool { return target == core.ErrKey }

// scriptError is an error that Redis returned to the script.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (scriptError) RedisError() {}

// plainError returns an error that Redis returned to the script. Redis 6.2 puts the line of
// the script before the text, and a newline after it.
func plainError(text string) scriptError {
	if strings.HasPrefix(text, "@user_script") {
		if _, own, ok := strings.Cut(text, ": -"); ok {
			text = strings.TrimSpace(own)
		}
	}
	return scriptError(text)
}

// explain turns an error of a call into the caller's: the end of its own context, ErrTimeout,
// an error of this package, or a failure.
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

// timeoutError is the error of a call without an answer within Options.Timeout.
func (w *wire) timeoutError() error { return fmt.Errorf("%w of %s", ErrTimeout, w.options.Timeout) }

// brief is an error of Redis without the command's arguments, which have the user's name.
type brief struct{ error }

func (e brief) Error() string {
	text, _, _ := strings.Cut(e.error.Error(), ", with args beginning with")
	return text
}

func (e brief) Unwrap() error { return e.error }

// failure is an error of the client or of Redis.
type failure struct{ error }

func (f failure) Error() string { return "redisstore: " + brief(f).Error() }

func (f failure) Unwrap() error { return f.error }

// slotFailure is the failure of one slot of a Cluster, which is being moved or has no master.
// The node may work for other users.
type slotFailure struct{ failure }

func (slotFailure) Is(target error) bool { return target == core.ErrKey }
