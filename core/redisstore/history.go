package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// An Entry is one unit of an action in the history of a SlidingWindow. An action of cost 3 has three
// entries.
type Entry struct {
	Time     time.Time // by Redis's clock
	Admitted bool      // if not, the action was refused; only CountRefused records it then
}

// History returns what a SlidingWindow has recorded for a user and an action, oldest first. Without
// CountRefused, it has the admitted actions of the last period that were not refunded. It may also
// have older actions.
//
// If the limit has CountRefused, a refused attempt takes the place of older entries, which may have
// been admitted. History then usually returns at most as many entries as the limit's max. The
// argument limit is the limit that the limiter has, or a limit with the same identity.
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
	keys := s.wire.appendKeys(nil, user, action, []core.Limit{limit})
	// A script's reply has the same form in RESP2 and RESP3.
	read := simple(3, "eval", "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", 1, keys[0])
	values, err := s.wire.do(ctx, &batch.Call{Keys: keys, Command: read})
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
