// Package memorystore keeps the state of limits in the process. It is the store to
// start with: nothing to install, nothing to close.
//
//	store := memorystore.New(nil)
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// Every process counts for itself. Processes that must share their limits use redisstore,
// with a memorystore as the fallback.
//
// # Memory
//
// [Options].MaxKeys bounds the store. A key is one limit of one user and action, so a
// limiter of two limits takes two keys.
//
//	a key                                   40 to 52 bytes, whatever the length of user and action
//	SlidingWindow, MovingWindow             64 bytes more, and 8 to 9 for each action above the fifth
//	TokenBucket with Initial                60 bytes more
//	bucket or funnel after a Refund         120 to 300 bytes more, until the debt of then has drained
//
// A MovingWindow(1,000,000, d) can take 8 MB a key. MaxKeys does not bound that: choose the
// limit with it in mind.
//
// The store keeps a hash of 64 bits in place of user and action, under a random key of the
// process. Two of a million users share a state with a chance of 3 in 100 million.
//
// An expired key stays until a new key needs its room. A table grows when most of its keys
// are live.
//
// # At the bound
//
// A new key takes the place of an expired one. If there is none nearby, the store looks at
// 32 keys, spread over a part of the table, and drops the one nearest to being whole that is
// not refused at present. The user of the dropped key may act again at once: the store has
// then admitted at most one quota too many. A refused key is never dropped, so a flood of
// new keys forgives nobody.
//
// If all those keys are refused, there is no room. New users are then decided by a state
// that they share: one for each limit and shard, of which a store of MaxKeys 1,048,576 has
// 1,024. Together they get no more than one user's quota. If it is used up, the reason is
// core.ReasonFull, and RetryAfter is at most a minute. This is what it costs:
//
//   - A new user shares a quota with others, of any action, who find no room.
//   - A user who gets a key later starts with a quota of its own.
//   - A charge by a shared state cannot be refunded, and a Wait takes no turn in it.
//   - A ban by hand is refused, since a ban is one user's own.
//
// To fill a store with refused keys takes as many users as MaxKeys. If clients can invent
// users, by IPv6 for example, choose MaxKeys with that in mind: a key is 52 bytes.
//
// # Time
//
// The clock is the process's monotonic one, from a base taken in [New]. Changes of the
// wall clock do not matter.
package memorystore
