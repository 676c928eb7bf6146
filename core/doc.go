// Package core answers one question: may this user do this, now?
//
//	store := memorystore.New(nil)
//	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
//
//	d, err := replies.Allow(ctx, "laoqian", "reply")
//	switch {
//	case err != nil:
//		// there is no decision: the store failed, or ctx was done
//	case !d.Allowed:
//		// refused; it passes again in d.RetryAfter
//	default:
//		// do it; d.Remaining more would pass right now
//	}
//
// A [Limit] is a rule, a [Limiter] a set of limits over a [Store], a [Decision]
// the answer. Several limits on one limiter are decided in one atomic step: all
// are charged or none.
//
//	posts, err := core.New(store,
//		core.MovingWindow(1, 3*time.Second),
//		core.FixedWindow(200, 24*time.Hour))
//
// # Which limit
//
// Start with [SlidingWindow] for what people do a few times a minute, with
// [Funnel] for what comes in bursts and should flow at a rate, and with
// [FixedWindow] for large daily quotas.
//
//	SlidingWindow  exact; at most max in any period; history can be read; to 10,000
//	MovingWindow   the same decisions, 8 bytes an action, to 50,000,000
//	FixedWindow    cheapest; up to twice max across a boundary
//	ElasticWindow  every attempt restarts the window: only silence clears it
//	TokenBucket    bursts up to capacity, then rate; may start part full
//	Funnel         bursts up to capacity, then rate; one number a key
//	Throttle       a Funnel in the arguments of redis-cell's CL.THROTTLE
//
// # What happens to a refused action
//
// [Limiter.With] derives a limiter that punishes who does not stop, by a [BanPolicy] of
// bans that is decided in the same step as the limits, and whose decisions can be given
// back, with [Refundable].
//
//	posts, err = posts.With(
//		core.BanPolicy{Refusals: 20, Within: time.Minute, Bans: []time.Duration{time.Minute, time.Hour}},
//		core.Refundable{})
//
// [Limiter.Wait] waits until the action may pass, if that is before ctx's deadline:
// buckets and funnels reserve turns in the order of arrival. [Limiter.Refund] gives
// back what an action has charged that came to nothing, and [Limiter.Surcharge] charges
// more for one that went ill.
//
//	d, err := posts.Wait(ctx, "laoqian", "post")
//	if err == nil && d.Allowed && publish() != nil {
//		err = posts.Refund(ctx, d)
//	}
//
// [Limit.Shadow] rehearses a limit beside those in force, on the same traffic.
// [Decision].Reason says what it would have done, and who was limited or banned.
//
//	posts, err := core.New(store,
//		core.FixedWindow(200, 24*time.Hour),
//		core.FixedWindow(100, 24*time.Hour).Named("half").Shadow())
//
// # Exactness
//
// Time and state are whole microseconds and exact fractions on the store's own
// clock; there is no floating point. A window is half-open: an action made at t
// counts while now < t+period. Never more than the limit is admitted, and
// RetryAfter is the very microsecond at which the action passes.
//
// A Peek, an AllowN of 0 and a refusal with [Never] write nothing. Any other
// refusal writes nothing either, but for ElasticWindow and CountRefused, which
// record what they themselves refuse; a bucket with Initial, which an action that
// is too dear for an unseen key starts; a state that lies in the future
// because the clock stepped back, which the first action that meets it puts right; and
// a [BanPolicy], which counts refusals. So nobody is locked out for longer than one full
// period, but by a ban, ElasticWindow and CountRefused, whose purpose that is.
//
// # Changing a limit
//
// State belongs to user, action, kind and name; for windows also to the period, for
// funnels and buckets to capacity, rate and Initial. Limiters of equal identity on one
// store share state.
//
// A window with another max reads the same history, exactly: a user who changes the
// plan takes along what the window has counted. A lowered max reads a longer history as
// if cut and leaves it as it is. A changed period starts anew.
//
// A funnel or bucket of other numbers is another one. It starts whole, or at Initial, so
// a change of plan gives at most one quota more, and to go back and forth gives nothing.
//
// # Stores and decorators
//
// memorystore keeps state in the process, redisstore shares it in a fleet. What
// happens when a store has no answer is said where it is built, with decorators that
// read from the outside in. [Shadow] rehearses all limits without refusing, and
// [Observe] shows every decision.
//
// # When the store fails
//
// What may pass at most, within a window's period or at once from a bucket or
// funnel, with n processes:
//
//	redisstore                           the limit
//	FailOpen(redisstore)                 anything, while Redis has no answer
//	Fallback(redisstore, memorystore)    n times the limit while Redis has no answer,
//	                                     n+1 times across the edge of an outage
//	Fallback(redisstore,                 the limit while Redis has no answer, twice
//	    Divide(memorystore, n))          across the edge; a share is rounded up, which
//	                                     adds at most n-1 actions
//
// The bare store fails closed: its error refuses (the middleware answers 503). Across
// the edge of an outage a user can take what Redis has left before it, what the
// processes give in it, and again what Redis has left after it: that is the burst
// at recovery. Add the limit once for every time that Redis comes back without its
// data, and for every process that is started anew in the outage its own part.
//
// A call that timed out may have been charged, and under FailOpen and Fallback it is
// let pass, or decided elsewhere, all the same. That makes Redis refuse earlier
// afterwards, never later.
//
// FailOpen, Fallback and Shadow stop asking a store that has failed three times in a
// row, so that an outage does not cost every action the time-out. One call at a time
// probes, 250 ms after the last. See [FailOpen].
package core
