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
// In the articles on rate limiting that Tailcut follows, the user is called laoqian. In this
// documentation it is alice.
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
//	CalendarWindow a quota of each calendar day, month or other period of a time zone
//	ElasticWindow  every attempt restarts the window: it ends only after a pause
//	TokenBucket    bursts up to capacity, then the rate; may start partly full
//	Funnel         bursts up to capacity, then the rate
//	Throttle       a Funnel with the arguments of redis-cell's CL.THROTTLE
//	InFlight       at most n actions at the same time
//
// Start with [SlidingWindow] for what people do, with [Funnel] for traffic that comes in bursts and
// should flow at a rate, and with [FixedWindow] for large daily quotas and daily jobs. [CalendarWindow]
// is for the quotas of a plan, such as 10,000 a month. FixedWindow(1, 24*time.Hour) lets a job run once
// in 24 hours from its first run. [Limit.PerUser] counts all of a user's actions together. The program
// examples/compare draws each limit's answers to the same traffic. examples/replay tries limits on an
// access log.
//
// # Common mistakes
//
// Most mistakes are errors that say what to change, or are logged once: package nethttp lists the
// codes. The compiler and the log do not see these:
//
//	d.Allowed is not read         A refusal is not an error: err is nil, and the action runs.
//	Peek in place of Allow        It charges nothing, so every action passes.
//	user and action are swapped   In Allow the user comes first. Swapped, PerUser limits and bans are for
//	                              everybody, and all keys are in one slot of a Cluster.
//	With's result is not used     It returns another limiter. The first one does not change.
//	Wait without a deadline       It may block for a year, on a limit of a year.
//	one action, charged twice     by two limiters, or by middleware and its handler. Limits of one kind and
//	                              period share their state: 5 and 100 a minute together admit 2 or 3.
//	one Redis, two applications   With one redisstore.Options.Prefix, users and actions of the same name
//	                              count together, even if the applications declare different numbers.
//	a name that a client chooses  Each new user or action has the full quota. So do not use an unchecked
//	                              header, or the raw path.
//
// # Refusals
//
// [BanPolicy] bans users who keep trying after being refused. [Limiter.Ban] bans by hand; for that
// BanPolicy{} is enough. [Limiter.Wait] blocks until the action may pass, and so until a ban ends.
//
//	posts, err = posts.With(
//		core.BanPolicy{Refusals: 20, Within: time.Minute, Bans: []time.Duration{time.Minute, time.Hour}},
//		core.Refundable{})
//
// With [Refundable] a decision can be changed once: see "Costs known at the end".
//
// With [OnlyFailures] the limits count failures only, for attempts that may turn out right, such as logins. No
// number of right attempts at the same time bans.
//
// A ban belongs to one action, or with BanPolicy.PerUser to all of a user's actions. If
// the limiters of replies and posts both have such a policy on one store, a user who is
// banned for replying cannot post either.
//
// [Limit.Shadow] makes a shadow limit, which is a dry run: it is decided on live traffic
// alongside the enforced limits, and never refuses. Decision.Reason says what it would have done.
//
// # Costs known at the end
//
// [Limiter.Settle] replaces an estimate with the real cost: it gives back the difference, or charges
// it in full. [Limiter.Refund] gives back all of a charge, for an action that has failed.
// [Limiter.Surcharge] charges for something that was never estimated, such as a wrong password, as
// far as there is room, and forgives the rest.
//
//	d, err := tokens.AllowN(ctx, "alice", "chat", 2000) // tokens was made with Refundable
//	...                                                 // if d.Allowed, the model writes
//	err = tokens.Settle(ctx, d, written)
//
// Settle may leave a debt of up to one quota for each limit, and the user is refused until it is
// paid off. How that happens depends on the limit:
//
//	TokenBucket, Funnel, Throttle  at the rate, so in the long run no user exceeds the rate
//	SlidingWindow, MovingWindow    as the units leave the window, so a period has at most two
//	                               quotas: one of actions that fitted, and one of debt
//	FixedWindow, CalendarWindow    the rest of a debt is forgiven when the window or period ends, which
//	                               may be soon
//	ElasticWindow                  the same, but the window ends only after a pause
//
// So a user whose every action costs more than its estimate can use up to two quotas in each period of
// a window. If debt must be paid off, use a TokenBucket or Funnel. With a window use a high estimate,
// because what is not used is given back.
//
// # Actions in progress
//
// [InFlight] limits how many actions of a user are in progress at the same time, alone or together
// with other limits. An admitted action takes a slot. [Limiter.Release] frees it when the action ends.
//
//	streams, err := core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute))
//	d, err := streams.Allow(ctx, "alice", "stream")
//	if err == nil && d.Allowed {
//		defer streams.Release(context.WithoutCancel(ctx), d)
//	}
//
// A slot has a lease: if it is neither released nor renewed, because a process died for example, it is
// free after a minute, or after [Limit.Lease]. It is then free even if its action is still in progress,
// so an action that may take longer calls [Limiter.Renew], as the middleware does. There are never more
// leases in force than slots. If Redis loses its data, all slots are free at once.
//
// Any process can release a slot, and the next decision counts it as free. If only InFlight limits refuse,
// the reason is [ReasonInFlight]. Such a refusal does not count towards a ban, and redisstore does not
// cache it.
//
// # Plans and changed numbers
//
// A window's state belongs to the user, the action, the kind, the period and the name; that of a calendar
// window also to the time zone, and that of a leased limit or of InFlight to the lease. A window with
// another max reads the same history, so a change of plan or of numbers loses nothing. A lower max
// ignores the oldest entries and does not delete them. A window with another period starts empty.
//
// The state of a funnel or bucket belongs to its numbers too: capacity, rate and Initial. A
// funnel with other numbers is another funnel, which starts with its full quota. So one change
// of plan gives at most one extra quota. A user who can change plans at will gets the sum of their
// rates: for such plans use windows of one period.
//
// A plan without a limit can still count: give it a window of the other plans' kind and period with the
// highest max. It refuses nobody, Status says what was used, and a user who goes back to another plan
// has used that much. The package's example "UnlimitedPlan" shows it.
//
// Two limiters with equal limits on one store share their state. That is how replicas work.
//
// Package plans has the limits of several plans in a document, which can be replaced while the program runs.
// [ParseLimit] and [Limit.UnmarshalText] read limits from JSON, YAML, TOML, flags and the
// environment. They are written as the constructors' calls: examples/migrate has a file of
// each.
//
// # Several subjects
//
// [All] decides about several users, actions and limiters at once, all or none:
//
//	d, err := core.All(ctx, perUser.For("alice", "post"), perOrg.For("7", "org-post"))
//
// Users and organizations need different actions. Otherwise a user whose id is that of an organization
// shares its counts and bans. Limits and bans that are PerUser ignore the action: there, the ids must
// differ.
//
// If one refuses, none is charged, and d.Subject is the index of the one that binds. Two calls of Allow,
// or two middlewares, would charge the first even if the second refuses. [PeekAll] and [WaitAll] are Peek
// and WaitFor for several subjects. Refund, Settle, Release and Renew apply to all subjects of a decision.
// In the middleware it is LimitAll: see package nethttp.
//
//	store                               how it decides
//	memorystore                         in one atomic step
//	redisstore, one server or Sentinel  in one atomic step and one round trip
//	redisstore, Cluster or Ring         the same if redisstore.Options.Tag is the same for all users;
//	                                    otherwise one subject after the other, and a refusal gives
//	                                    back what was charged
//	Fallback                            together if both of its stores can
//
// One after the other, no limit is exceeded either. But until a charge has been given back, other callers
// may be refused because of it. If the process ends before that, or [Limiter.Refund] cannot give it back,
// the charge stays. Subjects after the one that refuses are not asked, and record nothing.
//
// # Exactness
//
// Times and states are whole microseconds and exact fractions on the store's own clock. There is no
// floating point. A window is half-open: an action made at t counts while now < t+period. A calendar
// window is half-open too. On one store that keeps its states, a limiter never admits more than its
// limits.
//
// RetryAfter is exact: at that instant the action passes, a microsecond earlier it does
// not. It can be too long, or off by some microseconds, in these cases:
//
//   - after the clock stepped back, or the time of day was set
//   - for [ReasonFull]
//   - for [ReasonInFlight], because a slot may be released at any moment
//   - for a Peek by a limiter with a smaller max on a shared window
//   - for an answer from redisstore's cache
//
// It can be too short if a cost is above a bucket's Initial, and the bucket is forgotten while
// the user waits for another limit or a ban. Give such a bucket a longer [Limit.ForgetAfter].
//
// It is too short if an InFlight limit and another limit refuse, and the slots stay taken for longer than
// the other limit's wait, because nobody knows when a slot will be released.
//
// If a refusal has [SourceLease], it is the time until the process may ask Redis again, usually at most
// 27.5 ms. If Redis has refused the same cost, or a lower one, and its wait has not passed, it is the rest of
// that wait if that is longer. There may be room sooner, and Redis may refuse then too.
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
//   - an action whose process has time zone data with a later end of a CalendarWindow's period moves the
//     end there
//
// So no user is locked out for longer than one full period, and a second more with
// redisstore or a CalendarWindow. A ban, an ElasticWindow and CountRefused may last longer: that is their
// purpose. So may turns that callers of Wait have reserved and could not give back, up to their
// deadlines, and a debt that Settle has left, up to the time of one more quota.
//
// # Leased limits
//
// All decisions about one key are made by one Redis server. If a hundred processes ask for the same key,
// such as the limit of a large tenant, that server is the bottleneck. [Limit.Leased] lets each process
// take units in advance, for at most d, and decide from them without asking Redis:
//
//	core.Funnel(10_000, core.Per(10_000, time.Second)).Leased(50*time.Millisecond)
//
// The program examples/tenant has such a limit. [Limit.Lease] is something else: how long a slot of
// [InFlight] is taken.
//
// All processes together never exceed the limit as it is declared, in any interval:
//
//   - A unit is charged before the action, in one step with all other charges. A process begins to
//     count d before it sends the charge. So if Redis charges at the instant s, the action is at an
//     instant a with s <= a <= s+d. What is not used by then is given back, or lost. So only charges
//     without an action are given back.
//   - A window of the length p: the actions of an interval from t to t+p were charged in the interval
//     from t-d to t+p, whose length is p+d. Redis checks charges by a window of the length p+d, so
//     these are at most max.
//   - A funnel or bucket of the capacity c and the rate r: the actions of a time x were charged within
//     x+d. Redis checks charges by the capacity c-r*d, so these are at most c-r*d + r*(x+d), which
//     is c + r*x.
//   - A FixedWindow or CalendarWindow: a lease ends with its window, so the action is in the window of
//     its charge.
//
// This has a price. A MovingWindow admits its max in each p+d instead of p: with 50 ms, a limit for one
// second loses 5% of its rate. A funnel or bucket keeps its rate and loses r*d of its capacity. A FixedWindow
// and a CalendarWindow lose nothing. An action may be refused although another process holds units that it
// does not use, for up to d. The units of a process that dies are lost until their charge is forgotten.
//
// Leases of 20 to 100 ms suit most limits: a longer one costs more of the limit and hardly saves commands.
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
// Of this package, only a store or a decorator needs these:
//
//	Charge.Check, Charge.Commit     decide a charge on the states that the store keeps
//	Charge.Answer                   makes the decision if the store decides elsewhere, as in Lua
//	Charge.Subject                  one of the subjects of a charge
//	Amender, Decision.Issue,        let a decision be refunded, and a slot released or renewed
//	Decision.Receipt
//	Receipt.Amend                   does so with the states; to do it elsewhere,
//	Receipt.Amends, Receipt.Taken   what it changes
//	Accepter                        lets a store refuse a limiter
//	Limit.Rule                      the limit in integers, for package machine
//	Limit.IsPerUser                 whether the state's key leaves out the action
//	Unwrapper, WaitWatcher          what a decorator can do
//
// See [Store], and package core/machine, which has the other optional methods: machine.Dated lets a store
// decide CalendarWindows, and machine.Joiner several subjects together. The program examples/blobstore is a
// complete store.
package core
