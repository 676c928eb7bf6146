package core

// What a store can do besides deciding. Package core and package metrics ask a store, and those
// that it wraps, whether it has these methods.

import (
	"context"

	"github.com/tailcut/tailcut/core/machine"
)

// An Accepter is asked by [New] whether it can serve a limiter. [Limiter.With] asks again, with the
// ban policy's limit if there is one.
type Accepter interface {
	Accept(limits []Limit) error
}

// A Dated store knows the time of day: it sets State.Epoch before [Charge.Check] if a limit has a
// calendar, and without it 0 is 1970. [New] returns an error for a [CalendarWindow] on any other store.
type Dated interface {
	Dated()
}

// An Unwrapper is a decorator. Unwrap returns the store that it wraps. A decorator that changes
// a charge changes those of [Charge.And] too.
type Unwrapper interface {
	Unwrap() Store
}

// A Pair is a decorator with a second store, as [Fallback] is. Other returns that one.
type Pair interface {
	Unwrapper
	Other() Store
}

// A Partitioned store is spread over servers that can fail one by one. Part names the server that has
// the user's states. It must not block.
type Partitioned interface {
	Part(user string) string
}

// A Joiner is a store that can decide about several subjects together: see [All].
type Joiner interface {
	// Joins reports whether the store decides the states of two users in one atomic step, so that it
	// takes a [Charge] with And. It must not block.
	Joins(a, b string) bool
}

// An Amender is a store that can amend a charge of its own: refund units of it, or release or renew
// its slots of [InFlight]. A limiter with InFlight needs one.
type Amender interface {
	// Amend amends what a charge of this store has taken, in one atomic step: see [Receipt.Amend],
	// which also says what done is.
	Amend(ctx context.Context, r *Receipt, a machine.Amendment) (done bool, err error)
}

// A Leaser is a store that takes units of leased limits in advance: see [Limit.Leased]. Leases returns
// how many units it has taken so far, has given back, and has lost because it could not give them back.
type Leaser interface {
	Leases() (taken, returned, lost uint64)
}

// A Sized store keeps a bounded number of keys in process memory. Package metrics does not time
// it.
type Sized interface {
	Len() (keys, maxKeys int)
}

// A Breaker stops asking a store that fails. Failing reports whether it has stopped.
type Breaker interface {
	Failing() bool
}

// A WaitWatcher counts calls of [Limiter.Wait]. Wait asks the store with the context that Waiting
// returns, and calls end with its own results.
type WaitWatcher interface {
	Waiting(ctx context.Context, c Charge) (watched context.Context, end func(Decision, error))
}
