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
// Five names are enough to begin with: [New] makes a [Limiter] of a store and one or more limits, such as a
// [SlidingWindow], and [Limiter.Allow] returns a [Decision]. A limiter charges an action to all of its limits in
// one atomic step, or to none. Make each limiter once, at start-up.
//
// # I want to
//
//   - limit a route: nethttp.Limit, ginlimit.Limit or echolimit.Limit; by address in one line nethttp.PerIP
//   - lock a login after failures: nethttp.Config.OnlyFailures over a SlidingWindow; program examples/login. Without
//     HTTP: [OnlyFailures], and [Limiter.Surcharge] for a failure
//   - give 10,000 calls a month: CalendarWindow(10_000, Month, nil), see [CalendarWindow]; plans in a file: package
//     plans; program examples/quota
//   - limit open streams and sockets: [InFlight], and [Limiter.Release] when one ends; programs examples/llmproxy and
//     examples/websocket
//   - share limits in a fleet: redisstore.New inside [Fallback], which admits more during an outage: see "When the
//     store fails"
//   - limit users by name, and guests by address: keyfuncs.First
//   - limit a user and their organization together: nethttp.LimitAll, or [All]
//   - wait for a turn: [Limiter.Wait], or nethttp.Config.MaxWait; program examples/worker
//   - pace calls to another server: package nethttp/roundtripper, with Funnel(1, Per(9, time.Second)) where ten a
//     second are allowed
//   - charge what an action has cost in the end: [Limiter.Settle]; program examples/llmproxy
//   - give a charge back: [Limiter.Refund]
//   - ban users who keep trying: [BanPolicy]; program examples/admin
//   - show users what they have left: [Limiter.Status]
//   - try a limit without refusing: [Limit.Shadow]; on the access log of yesterday: examples/replay
//   - count decisions: package metrics
//   - keep a share of a common limit for quiet tenants: see "A share for the quiet"
//   - tell customers when a quota is nearly used up: [Observe]; program examples/quota
//   - test: testing/synctest moves the clock of a memorystore; with Redis see examples/migrate
//
// # Names
//
//   - Limiters: [Must] panics where [New] returns an error, for numbers in the code. Mistakes in limits match
//     [ErrConfig]. [Limiter.With] adds an [Option]. [Limiter.Limits] lists each [Limit]. [ParseLimit] reads a limit
//     from text. [PerKey] keeps a limiter for each time zone or day on which a customer has paid: Month.From makes
//     a [CalendarUnit] of such a day.
//   - Decisions: [Limiter.Allow] and [Limiter.AllowN] charge, and [Limiter.Peek] charges nothing. A [Decision] has a
//     [Reason], a [Source], and a RetryAfter that may be [Never]. Errors of the caller are [ErrNoUser],
//     [ErrNoAction] and [ErrCost].
//   - State: [Limiter.Status] returns a [Status], which has a [LimitStatus] for each limit and a [BanStatus].
//     [Limiter.Reset] deletes the state of the limits.
//   - Several subjects: [Limiter.For] makes a [Subject], for [All], [PeekAll] and [WaitAll]. Their limiters must
//     share a store: [Limiter.SharesStore].
//   - Failures only: [OnlyFailures] and [Limiter.Surcharge]. Package keyfuncs has the recipe under "Logins".
//   - Actions in progress: [Limiter.Release], [Limiter.Renew], [Limiter.Lease] and [ErrLeaseEnded].
//   - Costs: [Limiter.Refund], [Limiter.RefundN] and [Limiter.Settle] need a [Refundable] limiter: see
//     [ErrNoReceipt].
//   - Waiting: [Limiter.Wait] and [Limiter.WaitN] return [ErrRefused] if the turn does not come in time.
//   - Bans by hand: [Limiter.Ban] and [Limiter.Unban], which need a [BanPolicy]: see [ErrNoBanPolicy].
//   - Stores: [Observe] calls a function with each [Observation]. [Shadow] makes a dry run of all limits on a store.
//
// # Which limit
//
//	SlidingWindow  exact: at most max in any period; the history can be read; max up to 10,000
//	MovingWindow   the same decisions, 8 bytes per action; max up to 50,000,000
//	FixedWindow    cheapest; up to twice max across a boundary
//	CalendarWindow a quota of each calendar day, month or other period of a time zone; a month may begin on
//	               the day on which a customer has paid
//	ElasticWindow  every attempt restarts the window: it ends only after a pause
//	TokenBucket    bursts up to capacity, then the rate; may start partly full
//	Funnel         bursts up to capacity, then the rate: in a period up to the sum of both
//	Throttle       a Funnel with the arguments of redis-cell's CL.THROTTLE
//	InFlight       at most n actions at the same time
//	Nothing        no action: what a plan does not include, or what is switched off
//
// Start with [SlidingWindow] for what people do, with [Funnel] for traffic that comes in bursts and should flow
// at a rate, and with [FixedWindow] for large daily quotas. A [Rate] is [Per] or [Every]. FixedWindow(1,
// 24*time.Hour) lets a job run once in 24 hours. [Limit.PerUser] counts all of a user's actions together. The
// program examples/compare draws each limit's answers to the same traffic.
//
// # Common mistakes
//
// Most mistakes are errors that say what to change, or are logged once with a code, such as a Wait without a deadline
// (long-wait) or two middlewares that charge one action twice (charged-twice of package nethttp). The compiler and the
// log do not see these:
//
//	d.Allowed is not read         A refusal is not an error: err is nil, and the action runs.
//	Peek in place of Allow        It charges nothing, so every action passes.
//	user and action are swapped   In Allow the user comes first. Swapped, PerUser limits and bans are for
//	                              everybody, and all keys are in one slot of a Cluster.
//	With's result is not used     It returns another limiter. The first one does not change.
//	one action, charged twice     by two calls of Allow. Limiters of one kind and period share their state for an
//	                              action: 5 and 100 a minute together admit 2 or 3.
//	a name that a client chooses  Each new user or action has the full quota. So do not use an unchecked
//	                              header, or the raw path.
//
// # Exactness
//
// Times and states are whole microseconds and exact fractions on the store's own clock. A window is half-open:
// an action made at t counts while now < t+period. On one store that keeps its states, a limiter never admits
// more than its limits.
//
// RetryAfter is exact: at that instant the action passes if nothing else is charged, and a microsecond earlier
// it does not. [Decision] lists the exceptions.
//
// A Peek, a Status, an AllowN of 0 and a refusal with [Never] write nothing. Any other refusal writes nothing
// either, except:
//
//   - ElasticWindow and CountRefused record what they themselves refuse
//   - a BanPolicy counts refusals
//   - a bucket with Initial is started by an action that costs too much for it
//   - the first action after the clock stepped back moves a state from the future to now
//
// So no user is locked out for longer than one full period, and a second more with redisstore or a
// CalendarWindow. Only a ban, an ElasticWindow, CountRefused, a turn that Wait has reserved and a debt that
// Settle has left may last longer.
//
// # Plans and changed numbers
//
// [Limit] says what identifies a state. A window with another max reads the same history, so a change of plan
// or of numbers loses nothing. A window with another period starts empty, and a funnel or bucket with other
// numbers starts with its full quota. So one change of plan gives at most one extra quota. For plans that a
// user can change at will, use windows of one period.
//
// [Limiter.Refund] needs the decision, so it cannot give units back next week. Give the user more instead: a plan
// of the same windows with a higher max, until the period ends. The window keeps its count.
//
// A plan without a limit can still count: give it a window of the other plans' kind and period with the highest
// max. See the example "UnlimitedPlan".
//
// Two limiters with equal limits on one store share their state. That is how replicas work.
//
// # A share for the quiet
//
// If many tenants share a common limit, one loud tenant can use it up, and the others are refused. To keep a share
// for each tenant, give it a small limit besides, its guarantee. A request within the guarantee passes, and
// [Limiter.Surcharge] charges it to the common limit. Any other request needs room in the common limit. The example
// Guarantee is that, in ten lines.
//
// Use it if the servers can carry more than the common limit for a while. All tenants together then do at most what
// the common limit and all guarantees allow in sum, and may do so for as long as they like. A request makes two
// calls of the store. No combination of limits keeps both the guarantees and the exact rate of the common limit.
//
// # Costs known at the end
//
// [Limiter.Settle] gives back the difference between the estimate and the real cost, or charges it in full.
// What does not fit is a debt of up to one quota, and the user is refused until it is paid off:
//
//	TokenBucket, Funnel, Throttle  at the rate, so in the long run no user exceeds the rate
//	SlidingWindow, MovingWindow    as the units leave the window: a period has at most two quotas, one of
//	                               actions that fitted, and one of debt
//	FixedWindow, CalendarWindow    the rest of a debt is forgiven when the window or period ends
//	ElasticWindow                  the same, but the window ends only after a pause
//
// [Limiter.Surcharge] charges for something that was never estimated, as far as there is room.
//
// # Stores and decorators
//
// memorystore keeps states in process memory, redisstore shares them between processes. A decorator is a store
// that wraps a store: [Fallback], [FailOpen], [Divide], [Shadow] and [Observe]. Read nested decorators from the
// outside in:
//
//	core.Observe(                      // sees every decision, of both stores
//		core.Fallback(                 // asks the second store if the first has no answer
//			redisstore.New(rdb, nil),
//			core.Divide(memorystore.New(nil), 4)), // gives it a quarter of every quota
//		see)
//
// # When the store fails
//
// A store that fails returns an error, and the middleware answers 503. [FailOpen] and [Fallback] return a
// decision instead. With n processes, a user may do at most this within a window's period, or at once from a
// funnel:
//
//	redisstore                          the limit
//	FailOpen(redisstore)                anything, while Redis has no answer
//	Fallback(redisstore, memorystore)   n times the limit while Redis has no answer,
//	                                    n+1 times before, during and after the outage together
//	Fallback(redisstore,                the limit while Redis has no answer, twice the limit before,
//	    Divide(memorystore, n))         during and after the outage together; shares are rounded up
//
// Each time Redis loses its data, add the limit once more. [FailOpen] says when a store counts as failed.
//
// # Codes in the log
//
// A log line begins with the name of its package, whose documentation lists its codes. Those of this one:
//
//	store-fails      Three calls in a row have failed. The message says what happens until the store
//	                 answers: Fallback, FailOpen and Shadow differ.
//	store-answers    The store answers again, and no call has failed for 5 seconds.
//	store-falters    Some calls fail, but not several in a row. Logged at most once a minute.
//	fallback-unused  The first store of a Fallback always has an answer, so the second is never asked. Give
//	                 the shared store first.
//	slot-outlived    The lease of a slot of InFlight ended, and the slot was neither released nor renewed.
//	                 Call Release when the action has ended. If it takes longer than a lease, call Renew, or
//	                 give the limit a longer Lease.
//	long-wait        A caller of Wait waits for more than an hour, because its context has no deadline. Give
//	                 it one, or call WaitAll.
//
// # For authors of stores
//
// Only a store or a decorator needs these names: [Store], [Charge], [Terms], [Part], [Record], [SameLimits],
// [Accepter], [Amender], [Dated], [Joiner], [Partitioned], [Sized], [Leaser], [Breaker], [Unwrapper], [WaitWatcher],
// [Stores], [ErrKey] and Limit.Rule. [Store] says what a store does: it calls Charge.Check and Charge.Commit on the
// states that it keeps, or Charge.Answer if it decides elsewhere, as in Lua. Package core/machine has the states.
// Package core/storetest tests an implementation. The program examples/blobstore is a complete store.
package core
