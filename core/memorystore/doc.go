// Package memorystore keeps the state of limits in the process. Start with it: there is
// nothing to install and nothing to close.
//
//	store := memorystore.New(nil)
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// Every process counts for itself. If processes must share their limits, use redisstore,
// with a memorystore as the fallback.
//
// # Memory
//
// [Options].MaxKeys bounds the store. A key is one limit of one user and action, so a
// limiter of two limits takes two keys.
//
//	a key                                   40 to 50 bytes, whatever the length of user and action
//	SlidingWindow, MovingWindow             64 bytes more for up to 5 actions, and 50 more than
//	                                        that, and 8 to 9 for each action that it held at its
//	                                        fullest, for more (while it grows: see below)
//	TokenBucket with Initial                60 bytes more
//	bucket or funnel after a Refund         120 to 300 bytes more, until its debt has drained
//	BanPolicy, from the first refusal on    a key, 80 to 100 bytes more, and 8 to 16 for each
//	                                        refusal that it held at its fullest
//
// A queue that grows has room to spare. With fewer than max actions, each may take up to 17
// bytes, from 640 actions on up to 13, and from 4,000 on up to 9.
//
// A MovingWindow(1,000,000, d) can take 8 MB a key. MaxKeys does not bound that.
//
// The store keeps a hash of 64 bits in place of user and action, under a random key of its
// own. With a million users, the chance that two of them share a state is 3 in 100
// million.
//
// An expired key stays until the table that holds it is full. The table then removes all
// expired keys, grows if most keys have not expired, and never shrinks.
//
// # At the bound
//
// A new key takes the place of another one. The store looks at 32 keys of the shard, which is
// the part of the store that has all keys of the user. If the shard has few keys and none of the 32 has
// expired, the store looks at 32 of the shard that has most. Of those whose users are not refused
// at present, it drops the one that expires first; a key that has expired goes before all others. Its
// user may act again at once: the store has then admitted at most one quota too many. The key
// of a limit that refuses its user is never dropped, so a flood of new keys unlocks no user.
//
// If the users of all those keys are refused, there is no room. New users then share one
// state for each limit and shard; a store of MaxKeys 1,048,576 has 1,024 shards. Together
// they get no more than one user's quota. If it is used up, the reason is core.ReasonFull,
// and RetryAfter is at most a minute. This has consequences:
//
//   - A new user shares a quota with other new users, whatever their action.
//   - A user who gets a key later starts with a full quota.
//   - A charge to a shared state cannot be refunded: Refund changes nothing, or if the user
//     has a key by then, it may give back units there. Wait reserves no turn in it.
//   - A ban by hand fails: a shared state cannot hold the ban of one user.
//
// To fill a store with refused keys takes as many users as MaxKeys, or fewer who have many
// actions. If clients can invent users, by IPv6 for example, or actions, choose a larger
// MaxKeys.
//
// # Time
//
// The store uses the process's monotonic clock, or Options.Clock. Changes of the wall clock
// do not matter.
package memorystore
