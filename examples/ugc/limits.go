package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
)

// userHeader names the user in this demo. A real service takes the user from a session,
// never from a header that the client can choose.
const userHeader = "X-User-ID"

// user is the header, or the address if there is no header.
var user = keyfuncs.First(keyfuncs.Header(userHeader), keyfuncs.RemoteIP)

// Limits are what a user may do in the forum, and how often. Reading is free.
type limits struct{ reply, like, post *core.Limiter }

func newLimits(store core.Store) limits {
	return limits{newReplyLimit(store), newLikeLimit(store), newPostLimit(store)}
}

// newReplyLimit admits five replies in any minute. Users who keep trying are banned.
func newReplyLimit(store core.Store) *core.Limiter {
	replies := core.Must(core.New(store,
		core.SlidingWindow(5, time.Minute),
		// Would three do? See the log.
		core.SlidingWindow(3, time.Minute).Named("three").Shadow()))
	return core.Must(replies.With(core.BanPolicy{
		Refusals: 5, Within: time.Minute,
		Bans: []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
	}))
}

// newLikeLimit admits fifteen likes at once, then one every two seconds.
func newLikeLimit(store core.Store) *core.Limiter {
	return core.Must(core.New(store, core.Funnel(15, core.Per(30, time.Minute))))
}

// newPostLimit admits ten posts at once, three for a new user, then one every six
// seconds; and a hundred a day.
func newPostLimit(store core.Store) *core.Limiter {
	return core.Must(core.New(store,
		core.TokenBucket(10, core.Every(6*time.Second)).Initial(3),
		core.FixedWindow(100, 24*time.Hour)))
}

// likeMaxWait is how long a like waits for its turn rather than being refused.
const likeMaxWait = time.Second

// postCost is the final cost of a post: nothing if it failed. So a client may send invalid posts
// without limit. If they cost your server much, let only status 500 and above cost nothing.
func postCost(status int) int {
	if status >= 400 {
		return 0
	}
	return 1
}

// observed logs refusals, and the actions that a shadow limit would refuse or nearly
// refuse.
func observed(store core.Store, logger *slog.Logger) core.Store {
	return core.Observe(store, func(ctx context.Context, o core.Observation) {
		if d := o.Decision; d.Reason != "" && !o.Peek {
			logger.LogAttrs(ctx, slog.LevelInfo, "decision", slog.String("action", o.Action), slog.Bool("allowed", d.Allowed),
				slog.String("reason", string(d.Reason)), slog.String("limit", reasoned(o)), slog.Int("bans", int(d.BanLevel)))
		}
	})
}

// reasoned names the limit that a decision's reason is about, as package metrics does: the
// ban, the shadow limit, of which each limiter here has at most one, or the binding one.
func reasoned(o core.Observation) string {
	switch o.Decision.Reason {
	case core.ReasonBanned:
		return "ban"
	case core.ReasonShadowed, core.ReasonNear:
		for _, l := range o.Limits {
			if l.IsShadow() {
				return l.Identity()
			}
		}
	}
	return o.Limits[o.Decision.Binding].Identity()
}

// newStore makes the store of the limits. With Redis's address a fleet shares it, and the
// process decides while Redis has no answer.
func newStore(ctx context.Context, redisAddr string) (store core.Store, end func()) {
	memory := memorystore.New(nil)
	if redisAddr == "" {
		return memory, func() {}
	}
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	shared := redisstore.New(rdb, nil)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = shared.Connect(ctx) // so that the first requests need not; if Redis is down, the process decides
	return core.Fallback(shared, memory), func() { _ = rdb.Close() }
}
