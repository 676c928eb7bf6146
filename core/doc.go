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
// [New] makes a [Limiter] from a store and one or more limits. [Limiter.Allow] returns a
// [Decision]. A limiter charges an action to all of its limits in one atomic step, or to none. Make
// each limiter once, at start-up.
//
// # I want to
//
// The most common tasks:
//
//   - limit a route: nethttp.Limit, ginlimit.Limit or echolimit.Limit; by address: nethttp.PerIP
//   - lock a login after failures: see "Logins" in package keyfuncs; without HTTP: [OnlyFailures]
//   - allow 10,000 calls a month, of all actions together: CalendarWindow(10_000, Month,
//     nil).PerUser(); for plans in a file: package plans
//   - limit streams that are open at the same time: [InFlight], as in examples/llmproxy; if
//     the handler returns earlier, nethttp.Hold, as in examples/websocket; without HTTP, call
//     [Limiter.Release] when a stream ends
//   - share limits in a fleet: Fallback(redisstore.New(rdb, nil), memorystore.New(nil)); see "When
//     the store fails"
//
// Who is limited, and for what:
//
//   - limit users by id and guests by address: keyfuncs.First
//   - limit a user and their organization together: nethttp.LimitAll, or [All]
//   - count all of a user's actions together: [Limit.PerUser]
//   - keep a share of a common limit for each tenant: see "A share for each tenant"
//   - ban users who keep trying: [BanPolicy], as in examples/admin
//
// What a limit does:
//
//   - wait for a turn instead of being refused: [Limiter.Wait], or nethttp.Config.MaxWait
//   - pace calls to another server: package nethttp/roundtripper
//   - charge what an action has cost in the end: [Limiter.Settle], as in examples/llmproxy
//   - give a charge back: [Limiter.Refund]
//
// What you can see:
//
//   - show users what they have left: [Limiter.Status]
//   - count decisions: package metrics
//   - tell customers when a quota is nearly used up: [Observe], as in examples/quota
//   - try a limit without refusing: [Limit.Shadow]; on an access log: examples/replay
//   - test: testing/synctest moves the clock of a memorystore; for Redis see examples/migrate
//
// # Which limit
//
//	SlidingWindow   At most max in any period. The history can be read. Max is at most 10,000.
//	MovingWindow    The same, with 8 to 9 bytes per action. Max is at most 50,000,000.
//	FixedWindow     The cheapest. Up to twice max may pass across the boundary of two windows.
//	CalendarWindow  A quota of each calendar day, month or other period of a time zone. A month may
//	                begin on the day on which a customer has paid.
//	ElasticWindow   Attempts restart the window, refused ones too, so it ends only after a pause.
//	TokenBucket     A burst up to capacity, then the rate. It may start partly full.
//	Funnel          A burst up to capacity, then the rate. A period may have the sum of both.
//	Throttle        A Funnel with the arguments of redis-cell's CL.THROTTLE.
//	InFlight        At most n actions at the same time.
//	Nothing         No action: for what a plan does not include, or what is switched off.
//
// For actions of people, such as comments, start with [SlidingWindow]. For traffic that comes in
// bursts and should flow at a rate, start with [Funnel]. For large daily quotas, start with
// [FixedWindow]. FixedWindow(1, 24*time.Hour) lets a job run once in 24 hours. [Per] and [Every]
// make the [Rate] of a funnel or bucket. The program examples/compare draws each limit's answers to
// the same traffic.
//
// # Common mistakes
//
// Most mistakes cause an error that says what to change, or a line in the log. These mistakes
// mostly cause neither:
//
//	d.Allowed is not read         A refusal is not an error: err is nil, and the action runs.
//	Peek in place of Allow        Peek charges nothing, so every action passes.
//	user and action are swapped   In Allow the user comes first. If they are swapped, limits and
//	                              bans with PerUser apply to all users together, and all keys of an
//	                              action are in one slot of a Cluster.
//	With's result is not used     With returns another limiter. The first limiter does not change.
//	one action is charged twice   Two calls of Allow charge it, by limiters whose limits have one
//	                              kind and period. Such limits share a state, so 5 and 100 a minute
//	                              together admit 2 or 3. If two middlewares do it, the log says
//	                              charged-twice.
//	clients choose the name       Each new user or action has the full quota. So do not use an
//	                              unchecked header, or the raw path.
//
// # Names by topic
//
//   - Limiters: [Must] panics if [New] returns an error. Use it if the numbers are constants in the
//     code. An error for a mistake in a limit matches [ErrConfig]. [Limiter.With] adds an [Option].
//     [Limiter.Limits] lists the limits. [ParseLimit] reads a [Limit] from text. [PerKey] keeps a
//     limiter for each key, such as a time zone or the day on which a customer has paid. Month.From
//     makes the [CalendarUnit] of such a day.
//   - Decisions: [Limiter.Allow] and [Limiter.AllowN] charge, and [Limiter.Peek] charges nothing. A
//     [Decision] has a [Reason], a [Source], and a RetryAfter that may be [Never]. Errors of the
//     caller are [ErrNoUser], [ErrNoAction] and [ErrCost].
//   - State: [Limiter.Status] returns a [Status], which has a [LimitStatus] for each limit and a
//     [BanStatus]. [Limiter.Reset] deletes the state of the limits.
//   - Several subjects: [Limiter.For] makes a [Subject] for [All], [PeekAll] and [WaitAll]. The
//     limiters of the subjects must share a store: [Limiter.SharesStore].
//   - Failures only: [OnlyFailures], and [Limiter.Surcharge] for a failure.
//   - Actions in progress: [Limiter.Release], [Limiter.Renew], [Limiter.Lease] and [ErrLeaseEnded].
//   - Costs: [Limiter.Refund], [Limiter.RefundN] and [Limiter.Settle] need a [Refundable] limiter.
//     They return [ErrNoReceipt] if an allowed action has no receipt.
//   - Waiting: [Limiter.Wait] and [Limiter.WaitN] return [ErrRefused] if the turn does not come
//     before the deadline.
//   - Bans by hand: [Limiter.Ban] and [Limiter.Unban] need a [BanPolicy]. Their error without one
//     is [ErrNoBanPolicy].
//   - Stores: [Observe] calls a function with each [Observation]. [Shadow] makes a dry run of all
//     limits on a store.
//
// # Exactness
//
// Times and states are whole microseconds and exact fractions, on the store's own clock. In a
// SlidingWindow or MovingWindow, an action made at t counts while now < t+period. As long as a
// store keeps its states, a limiter on it admits no more than its limits allow.
//
// RetryAfter is exact in most cases: after this time the action passes if nothing else is charged,
// and a microsecond earlier it does not. [Decision] lists exceptions.
//
// A Peek, a Status, an AllowN of 0 and a refusal with [Never] write nothing. Most other refusals
// write nothing either. These are exceptions:
//
//   - An ElasticWindow, or a SlidingWindow with CountRefused, records the attempts that it refuses.
//   - A BanPolicy counts refusals.
//   - If a bucket with Initial has no state yet, an action that costs too much for it starts the
//     bucket.
//   - If the clock has stepped back, the first action moves a state from the future to now.
//   - An action may correct the end of a CalendarWindow. If ForgetAfter was changed, an action may
//     also correct when a bucket is forgotten.
//
// A user who only tries again is not locked out for longer than one full period. With redisstore or
// a CalendarWindow it may be a second more. Some things can last longer: a ban, an ElasticWindow, a
// SlidingWindow with CountRefused, a MovingWindow with Leased, a slot of InFlight that is renewed,
// a turn that Wait has reserved, and a debt that Settle has left. An action that costs more than a
// quota never passes.
//
// # Plans and changed numbers
//
// [Limit] says what identifies a state. If a window's max changes, the window keeps its history, so
// a change of plan loses nothing. If its period changes, the window starts empty. If a funnel or
// bucket gets other numbers, it starts with its full quota, or with Initial. So one change of plan
// gives at most one extra quota. For plans that a user can change at will, use windows of one
// period.
//
// [Limiter.Refund] needs the decision, so it cannot give units back next week. Instead give the
// user a plan of the same windows with a higher max, until the period ends. The windows keep their
// counts.
//
// A plan without a limit can still count: give it a window of the other plans' kind and period with
// the highest max. See the example "UnlimitedPlan".
//
// Two limiters with equal limits on one store share their state. That is how replicas work.
//
// # A share for each tenant
//
// If many tenants share a common limit, one of them can use it up, and the others are refused. To
// keep a share for each tenant, give each one a second, smaller limit: its guarantee.
//
//  1. A request within the guarantee passes. [Limiter.Surcharge] charges it to the common limit.
//  2. Any other request needs room in the common limit.
//
// The example "Guarantee" does this in ten lines. A request makes two calls of the store.
//
// Together, the tenants can then use up to the sum of the common limit and all guarantees, and they
// can do this permanently. So use guarantees only if the servers can carry this sum.
//
// # Costs known at the end
//
// [Limiter.Settle] replaces the estimate that was charged with the real cost. It gives back the
// difference, or charges it. What does not fit is a debt of up to one quota, and the user is
// refused until the debt is paid off:
//
//	TokenBucket, Funnel, Throttle  It is paid off at the rate, so in the long run no user exceeds
//	                               the rate.
//	SlidingWindow, MovingWindow    It is paid off as its units leave the window. A period has at most
//	                               two quotas, one of actions that fitted, and one of debt.
//	FixedWindow, CalendarWindow    The end of the window or period forgives it.
//	ElasticWindow                  The end of the window forgives it. The window ends only after a
//	                               pause.
//
// [Limiter.Surcharge] charges for something that was never estimated, as far as there is room.
//
// # Stores and decorators
//
// A memorystore keeps states in process memory. A redisstore shares them between processes. A
// decorator is a store that wraps a store: [Fallback], [FailOpen], [Divide], [Shadow] and
// [Observe]. Read nested decorators from the outside in:
//
//	core.Observe(                      // sees every decision, of both stores
//		core.Fallback(                 // asks the second store if the first has no answer
//			redisstore.New(rdb, nil),
//			core.Divide(memorystore.New(nil), 4)), // gives it a quarter of every quota
//		see)
//
// # When the store fails
//
// A store that fails returns an error, and the middleware answers 503. [FailOpen] and [Fallback]
// return a decision instead. With n processes, a user may do at most this in a window's period, or
// at once from a funnel:
//
//	store                               during an outage      in a period partly in the outage
//	redisstore                          nothing               the limit
//	FailOpen(redisstore)                anything              anything
//	Fallback(redisstore, memorystore)   n times the limit     n+1 times the limit
//	Fallback(redisstore,                the limit, rounded    twice the limit
//	    Divide(memorystore, n))         up for each process
//
// Each time that Redis loses its data, a user may use the limit once more. [FailOpen] says when a
// store counts as failed.
//
// # Codes in the log
//
// A log line begins with the name of its package, whose documentation lists its codes. Those of
// this package:
//
//	store-fails      Three failures in a row. The message says what happens until the store
//	                 answers: Fallback, FailOpen and Shadow differ.
//	store-answers    The store answers again, and no call has failed for 5 seconds.
//	store-falters    Some calls fail, but fewer than three in a row. Logged at most once a minute.
//	fallback-unused  The first store of a Fallback always has an answer, so the second is never
//	                 asked. Give the shared store first.
//	slot-outlived    The lease of a slot of InFlight ended, and the slot was neither released nor
//	                 renewed. Call Release when the action has ended. If the action takes longer than
//	                 a lease, call Renew, or give the limit a longer Lease.
//	long-wait        A caller of Wait waits for more than an hour, because its context has no
//	                 deadline. Give it one, or call WaitAll.
//
// # For authors of stores
//
// These names are for stores and decorators: [Store], [Charge], [Terms], [Part], [Record],
// [SameLimits], [Accepter], [Amender], [Dated], [Joiner], [Partitioned], [Sized], [Leaser],
// [Breaker], [Unwrapper], [WaitWatcher], [Stores], [ErrKey] and Limit.Rule. [Store] says what a
// store does: it calls Charge.Check and Charge.Commit on the states that it keeps, or Charge.Answer
// if it decides elsewhere, as in Lua. Package core/machine has the states. Package core/storetest
// tests an implementation. The program examples/blobstore is a complete store.
package core
