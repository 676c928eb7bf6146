package machine

// What a store can tell besides its decisions. All of it is optional. Package core and package metrics ask
// a store, and those that it wraps, whether it has these methods. The other optional methods are about
// package core's types: core.Accepter, core.Amender, core.Unwrapper and core.WaitWatcher in core/store.go.

// A Dated store knows the time of day: it sets Entry.Epoch before [Rule.Check] if a limit has a
// calendar, and without it 0 is 1970. core.New returns an error for a CalendarWindow on any other store.
type Dated interface {
	Dated()
}

// A Joiner is a store that can decide about several subjects together: see core.All.
type Joiner interface {
	// Joins reports whether the store decides the states of two users in one atomic step, so that it
	// takes a core.Charge with More. It must not block.
	Joins(a, b string) bool
}

// A Partitioned store is spread over servers that can fail one by one. Part names the server that has
// the user's states. It must not block.
type Partitioned interface {
	Part(user string) string
}

// A Sized store keeps a bounded number of keys in process memory. Package metrics does not time
// it.
type Sized interface {
	Len() (keys, maxKeys int)
}

// A Leaser is a store that takes units of leased limits in advance: see core.Limit.Leased. Leases returns
// how many units it has taken so far, has given back, and has lost because it could not give them back.
type Leaser interface {
	Leases() (taken, returned, lost uint64)
}

// A Breaker stops asking a store that fails.
type Breaker interface {
	// Failing reports whether it has stopped, for any user, and a call has failed within the last minute. So
	// a part of the store that no caller needs any more is not down for ever.
	Failing() bool

	// Open reports whether it has stopped for a user.
	Open(user string) bool
}
