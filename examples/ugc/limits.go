package main

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
)

// userHeader names the user. It stands in for a session: in earnest a user's name
// comes from a login, never from what the client says that it is.
const userHeader = "X-User-ID"

// user tells users apart: by the header, and who does not send it by the address.
var user = keyfuncs.First(keyfuncs.Header(userHeader), keyfuncs.RemoteIP)

// Limits are what a user may do in the forum, and how often. Reading is free.
type limits struct {
	reply *core.Limiter // five a minute, whichever minute one looks at
	like  *core.Limiter // fifteen at once, then one every two seconds
	post  *core.Limiter // ten at once, three for a new user, then one every six seconds; and a hundred a day
}

func newLimits(store core.Store) limits {
	return limits{
		reply: core.Must(core.New(store, core.SlidingWindow(5, time.Minute))),
		like:  core.Must(core.New(store, core.Funnel(15, core.Per(30, time.Minute)))),
		post: core.Must(core.New(store,
			core.TokenBucket(10, core.Every(6*time.Second)).Initial(3),
			core.FixedWindow(100, 24*time.Hour))),
	}
}

// newStore makes the store that the limits count in: in the process, or with Redis's
// address for a whole fleet, and in the process as long as Redis has no answer.
func newStore(redisAddr string) (store core.Store, end func()) {
	memory := memorystore.New(nil)
	if redisAddr == "" {
		return memory, func() {}
	}
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	return core.Fallback(redisstore.New(rdb, nil), memory), func() { _ = rdb.Close() }
}
