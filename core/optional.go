package core

// What a store can do besides deciding. Package core and package metrics ask a store, and those
// that it wraps, whether it has these methods.

import "context"

// An Accepter is asked by [New] whether it can serve a limiter. [Limiter.With] asks again, with the
// ban policy's limit if there is one.
type Accepter interface {
	Accept(limits []Limit) error
}

// An Unwrapper is a decorator. Unwrap returns the store that it wraps.
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

// A Refunder is a store that can give back a charge.
type Refunder interface {
	// Refund gives back units, 1 to Cost, of what a charge of this store has taken,
	// in one atomic step: see [Receipt.Give].
	Refund(ctx context.Context, r *Receipt, units int64) error
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
	Waiting(ctx context.Context, action string, limits []Limit) (watched context.Context, end func(Decision, error))
}
