// Package memorystore keeps the state of limits in process memory. Start with it: there is nothing
// to install and nothing to close.
//
//	store := memorystore.New(nil)
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// Each process counts separately. If processes must share their limits, use redisstore, with a
// memorystore as the fallback.
//
// # Memory
//
// [Options].MaxKeys bounds the number of keys. A key is one limit of one user and action, so a
// limiter of two limits takes two keys.
//
//	a key                                   40 to 50 bytes, whatever the length of user and action
//	SlidingWindow, MovingWindow             70 bytes more for up to 5 actions. For more actions 120
//	                                        bytes more, and 8 to 9 bytes for each action of the
//	                                        queue's largest size so far
//	InFlight                                90 bytes more, and 16 to 32 bytes for each slot of its
//	                                        largest number so far, until all slots are free
//	TokenBucket with Initial                60 bytes more
//	bucket or funnel after a Refund         140 to 320 bytes more, until its debt has drained
//	bucket or funnel in debt after Settle   60 bytes more
//	BanPolicy, from a refusal or ban on     a key, 130 to 150 bytes more, and 8 to 16 bytes for each
//	                                        refusal of its largest number so far
//
// A growing queue has spare room. While it holds fewer than max actions, each action can take up to
// 17 bytes. From 640 actions on it can take up to 13 bytes, and from 4,000 on up to 9.
// BenchmarkMemory prints the figures.
//
// A MovingWindow(1,000,000, d) can take 8 MB per key. MaxKeys does not bound that.
//
// Instead of user and action the store keeps a 64-bit hash, keyed with a random key per store. With
// a million users, the chance that any two of them share a state is 3 in 100 million.
//
// An expired key stays until the table that holds it is full, or until the store needs its place. A
// full table removes all its expired keys. It grows if it is still more than 70% full, and never
// shrinks.
//
// # At the bound
//
// If the store has MaxKeys keys, a new key takes the place of an old one. The store looks at up to
// 32 keys, and sometimes at up to 32 more:
//
//  1. An expired key is dropped first.
//  2. Of the other keys, the store drops only one whose limit does not refuse its user now. It
//     drops the key that has used the smallest part of its quota. This part counts less, the longer
//     the key has not been used.
//  3. If the limits of all those keys refuse, there is no room: see below.
//
// The store does not drop a key whose limit refuses its user, so a flood of new keys unlocks no
// user. [Options].Clock describes an exception.
//
// A user whose key was dropped starts with a full quota, or with Initial. An attacker could use
// that, by making new keys until the store drops the key with the attacker's own failures. That
// takes many actions. Suppose that a limit allows five failed logins. To make the store forget four
// failures, other keys must have about four times MaxKeys failures, however these are distributed:
// four million with the default. So do not make MaxKeys small for logins.
//
// The store consists of parts. With MaxKeys 1,048,576 there are 256. If there is no room, all new
// users of a part share one state for each limit. Together they get no more than one user's quota.
// If the quota is used up, the reason is core.ReasonFull, and RetryAfter is at most a minute. This
// has consequences:
//
//   - A new user shares a quota with other new users, whatever their action.
//   - A user who gets a key later starts with a full quota.
//   - Refund does not change the shared state. If the user has got a key since the charge, Refund
//     may give back units to this key.
//   - Wait reserves no turn.
//   - A slot of InFlight is free when its lease ends. Release does not free it, and Renew fails.
//   - A ban by hand fails, and so does a Settle that would charge more, because a shared state
//     cannot hold the ban or the debt of one user.
//
// To fill a store with refused keys, an attacker needs MaxKeys users, or fewer users with many
// actions each. If clients can invent users (with IPv6 addresses, for example) or actions, choose a
// larger MaxKeys.
//
// # Time
//
// The store uses the process's monotonic clock, or Options.Clock. Changes of the wall clock matter
// only to a CalendarWindow, which reads the time of day. With Options.Clock it reads the time of
// day from that clock.
//
// # Codes in the log
//
//	store-dropped  A hundred memorystores were made and dropped within an hour. A store that is made
//	               for each request limits no user: make it and its limiters once, at start-up.
package memorystore
