package redisstore

// The command that carries calls to Redis.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// run has the server decide charges. Of equal charges in a row it sends the first, and how
// often it is repeated. If the last charges have equal arguments, it sends these once,
// which saves 5 % of a batch of one limiter's charges.
func (s *Store) run(b *batch, calls []*call) (any, error) {
	args := make([]any, 3, 4+len(calls)*(1+len(calls[0].keys)))
	var few [16]any
	var repeats []byte
	words, again := slices.Grow(few[:0], len(calls)), 0
	for i, c := range calls {
		if i > 0 && c.equals(calls[i-1]) {
			again++
			continue
		}
		repeats, again = appendRepeat(repeats, len(words), again), 0
		words = append(words, c.word)
		for _, k := range c.keys {
			args = append(args, k)
		}
	}
	repeats = appendRepeat(repeats, len(words), again)
	for n := len(words); n > 1 && words[n-1] == words[n-2]; n-- {
		words = words[:n-1]
	}
	args[2] = len(args) - 3
	args = append(args, words...)
	if repeats != nil {
		args = append(args, repeats)
	}
	return s.runProgram(b, take, args)
}

// appendRepeat appends how often the charge of that number is repeated, if it is.
func appendRepeat(b []byte, number, again int) []byte {
	if again == 0 {
		return b
	}
	return fmt.Appendf(b, "*%d:%d", number, again)
}

// equals reports whether two calls have the same keys and arguments.
func (c *call) equals(other *call) bool {
	return c.word == other.word && slices.Equal(c.keys, other.keys)
}

// process sends a command once. keyAt is the index of its first key.
func (s *Store) process(b *batch, args []any, keyAt int8) (any, error) {
	cmd := newCommand(b, args...)
	cmd.SetFirstKeyPos(keyAt)
	var err error
	if !b.direct && s.dialFailed() { // a caller cannot leave a probe that it makes itself
		err = s.probe(b, args[keyAt].(string))
	}
	if err == nil {
		err = s.rdb.Process(b, cmd)
	}
	if err == nil {
		s.checkPolicy()
		return cmd.Val(), cmd.Err()
	}
	if b.Err() != nil {
		err = b.cause
	}
	var opErr *net.OpError
	if errors.As(err, &opErr) && opErr.Op == "dial" {
		s.dialFailedAt.Store(int64(time.Since(s.base)) + 1)
	}
	// A Cluster's client looks for a new master when it retries a command, which these
	// commands forbid, or once a minute. After ReloadState it looks at once, at most five
	// times a second.
	if c, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok && !asScript(err) {
		c.ReloadState(b)
	}
	return nil, err
}

// command is a Redis command that the client does not retry: if a charge was sent and not
// answered, it may have been taken. A Cluster's client still repeats it after MOVED, ASK and
// READONLY. Then nothing was written: a server's role does not change while a script runs.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, args ...any) command {
	cmd := command{redis.NewCmd(ctx, args...)}
	cmd.SetStepCount(1) // otherwise a Cluster's client sends COMMAND to its nodes
	return cmd
}

// NoRetry turns the client's retries off.
func (command) NoRetry() bool { return true }
