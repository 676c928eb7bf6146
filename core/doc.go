// Package core answers one question: may this user do this, now?
//
//	store := memorystore.New(nil)
//	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
//
//	d, err := replies.Allow(ctx, "alice", "reply")
//	switch {
//	case err != nil:
//		// there is no decision: the store failed, or ctx was done
//	case !d.Allowed:
//		// refused; the action passes again in d.RetryAfter
//	default:
//		// do it; d.Remaining more would pass right now
//	}
//
// The articles on rate limiting that Tailcut follows ask this for a user laoqian. In this
// documentation the user is alice.
//
// A [Limit] is a rule, a [Limiter] a set of limits over a [Store], a [Decision] the
// answer. A limiter decides all of its limits in one atomic step: it charges all of them,
// or none.
//
//	posts, err := core.New(store,
//		core.MovingWindow(1, 3*time.Second),
//		core.FixedWindow(200, 24*time.Hour))
//
// # Which limit
//
//	SlidingWindow  exact: at most max in any period; the history can be read; max up to 10,000
//	MovingWindow   the same decisions, 8 bytes per action; max up to 50,000,000
//	FixedWindow    cheapest; up to twice max across a boundary
//	ElasticWindow  every attempt restarts the window: it ends only after a pause
//	TokenBucket    bursts up to capacity, then the rate; may start partly full
//	Funnel         bursts up to capacity, then the rate
//	Throttle       a Funnel with the arguments of redis-cell's CL.THROTTLE
//
// Start with [SlidingWindow] for what people do, with [Funnel] for traffic that comes
// in bursts and should flow at a rate, and with [FixedWindow] for large daily quotas and
// daily jobs. FixedWindow(1, 24*time.Hour) lets a job run once in 24 hours from its first
// run. [Limit.PerUser] counts all of a user's actions together. The program
// examples/compare draws each limit's answers to the same traffic. examples/replay tries
// limits on an access log.
//
// # Refusals
//
// [BanPolicy] bans users who keep trying after being refused. [Limiter.Wait] blocks until
// the action may pass. [Refundable] makes decisions that [Limiter.Refund] gives back.
// [Limiter.Surcharge] charges for an action that has already happened.
//
//	posts, err = posts.With(
//		core.BanPolicy{Refusals: 20, Within: time.Minute, Bans: []time.Duration{time.Minute, time.Hour}},
//		core.Refundable{})
//
// A ban belongs to one action, or with BanPolicy.PerUser to all of a user's actions. If
// the limiters of replies and posts both have such a policy on one store, a user who is
// banned for replying cannot post either.
//
// [Limit.Shadow] makes a shadow limit, which is a dry run: it is decided on live traffic
// alongside the enforced limits, and never refuses. Decision.Reason says what it would have done.
//
// # Plans and changed numbers
//
// A window's state belongs to the user, the action, the kind, the period and the name. A
// window with another max reads the same history, so a change of plan or of numbers loses
// nothing. A lower max ignores the oldest entries and does not delete them. A window with
// another period starts empty.
//
// The state of a funnel or bucket belongs to its numbers too: capacity, rate and Initial. A
// funnel with other numbers is another funnel, which starts with its full quota. So one change
// of plan gives at most one extra quota. A user who can change plans at will gets the sum of their
// rates: for such plans use windows of one period.
//
// Two limiters with equal limits on one store share their state. That is how replicas work.
//
// [ParseLimit] and [Limit.UnmarshalText] read limits from JSON, YAML, TOML, flags and the
// environment. They are written as the constructors' calls: examples/migrate has a file of
// each.
//
// # Exactness
//
// Times and states are whole microseconds and exact fractions on the store's own clock.
// There is no floating point. A window is half-open: an action made at t counts while
// now < t+period. On one store that keeps its states, a limiter never admits more than its
// limits.
//
// RetryAfter is exact: at that instant the action passes, a microsecond earlier it does
// not. It can be too long, or off by some microseconds, in these cases:
//
//   - after the clock stepped back
//   - for [ReasonFull]
//   - for a Peek by a limiter with a smaller max on a shared window
//   - for an answer from redisstore's cache
//
// It can be too short if a cost is above a bucket's Initial, and the bucket is forgotten while
// the user waits for another limit or a ban. Give such a bucket a longer [Limit.ForgetAfter].
//
// A clock that jumps past the end of a state and back may have lost the state.
//
// A Peek, a Status, an AllowN of 0 and a refusal with [Never] write nothing. Any other
// refusal writes nothing either, except:
//
//   - ElasticWindow and CountRefused record what they themselves refuse
//   - a bucket with Initial is started by an action that costs too much for it
//   - if the refusing limiter has a shorter ForgetAfter than the limiter that admitted last, a
//     bucket with Initial is forgotten sooner
//   - a BanPolicy counts refusals
//   - the first action after the clock stepped back moves a state from the future to now
//
// So no user is locked out for longer than one full period, and a second more with
// redisstore. A ban, an ElasticWindow and CountRefused may last longer: that is their
// purpose. So may turns that callers of Wait have reserved and could not give back, up to their
// deadlines.
//
// # Stores and decorators
//
// memorystore keeps states in process memory, redisstore shares them between processes.
// A decorator is a store that wraps a store. Read nested decorators from the outside in:
//
//	core.Observe(                      // sees every decision, of both stores
//		core.Fallback(                 // asks the second store if the first has no answer
//			redisstore.New(rdb, nil),
//			core.Divide(memorystore.New(nil), 4)), // gives it a quarter of every quota
//		see)
//
// Put Observe outside of Fallback to see what users get, and inside to see one store's
// errors and delays. [Shadow] around all of it makes every limit a shadow limit. Your own
// decorator should have a method Unwrap() Store: see [Unwrapper].
//
// # When the store fails
//
// A store that fails returns an error, and the middleware answers 503. [FailOpen] and
// [Fallback] return a decision instead. With n processes, a user may do at most this within
// a window's period, or at once from a funnel:
//
//	redisstore                          the limit
//	FailOpen(redisstore)                anything, while Redis has no answer
//	Fallback(redisstore, memorystore)   n times the limit while Redis has no answer,
//	                                    n+1 times before, during and after the outage together
//	Fallback(redisstore,                the limit while Redis has no answer, twice the limit
//	    Divide(memorystore, n))         before, during and after the outage together; and
//	                                    at most n-1 more actions, because shares are rounded up
//
// Both stores decide for a user who is active before, during and after an outage, so that
// user can reach the total. Each time Redis loses its data, add the limit once more. A
// call that timed out may have been charged in Redis, and is decided elsewhere too. Redis may
// then refuse earlier, but never later.
//
// FailOpen, Fallback and Shadow stop asking a store that has failed three times in a row,
// so that an outage does not cost every action the timeout. Failures of calls that overlap
// count as one. Then one call every 250 ms probes the store.
//
// # For authors of stores
//
// Of this package, only a store needs these:
//
//	Charge.Check, Charge.Commit     decide a charge on the states that the store keeps
//	Charge.Answer                   makes the decision if the store decides elsewhere, as in Lua
//	Refunder, Decision.Issue        let a decision be given back
//	Accepter, Partitioned, Sized    what else a store can do, and
//	Unwrapper, Pair, Breaker,       what a decorator can do
//	WaitWatcher
//	Receipt.Give, Receipt.Charged   give back to the states, or elsewhere
//	Limit.Rule                      the limit in integers, for package machine
//	Limit.IsPerUser                 whether the state's key leaves out the action
//
// See [Store], and package core/machine. The program examples/blobstore is a complete store.
package core
