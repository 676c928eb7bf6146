package redisstore

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const (
	defaultTimeout = 50 * time.Millisecond
	minTimeout     = time.Millisecond
	maxTimeout     = time.Minute
	defaultPrefix  = "tailcut"
)

// Options are the settings of a store. The zero value is the default.
type Options struct {
	// Timeout bounds every call: 1 ms to 1 minute; 0 is 50 ms.
	Timeout time.Duration

	// Prefix begins every key, before a colon: 1 to 64 letters, digits, dots, underscores, dashes or
	// colons; "" is "tailcut". Give each application on a server its own: with one prefix they
	// count users and actions of the same name together, even if their limits have different
	// numbers.
	Prefix string

	// App names the application; "" is the path of the program's main module. If another
	// application has the Prefix, the log says so once, in Connect or after 100 answers. Applications
	// that share limits on purpose have one App. The key PREFIX:application keeps it, for 30 days
	// after the last start.
	App string

	// Secret, if not empty, keeps users' names out of Redis: a key then has an
	// HMAC-SHA-256 of the user under Secret. All processes must have the same Secret. With
	// another one every user has a new state.
	Secret string

	// Tag, if not nil, returns the hash tag of a user's keys. If Tag is nil or returns "", the tag
	// is the user. The keys of all users with one tag are in one slot of a Cluster, so that
	// core.All decides about these users in one step. If users are named "org-7/alice" and
	// organizations "org-7", this makes the organization the tag:
	//
	//	func(user string) string { org, _, _ := strings.Cut(user, "/"); return org }
	//
	// Tag is called for every decision, and must return the same for a user in all processes. If
	// the tag of a user changes, the user has a new state. All users with one tag are on one
	// server, because a slot is.
	Tag func(user string) string

	// NoRefusalCache makes Redis decide every attempt. Set it in a test that moves the server's
	// clock, or if a refusal must end as soon as another process ends it.
	NoRefusalCache bool

	// NoFunctions makes the server run the Lua as a script even if it has Redis Functions.
	NoFunctions bool
}

// withDefaults returns the options with the defaults. It panics if one is out of bounds.
func (o *Options) withDefaults() (all Options) {
	if o != nil {
		all = *o
	}
	all.Timeout, all.Prefix = cmp.Or(all.Timeout, defaultTimeout), cmp.Or(all.Prefix, defaultPrefix)
	switch {
	case all.Timeout < minTimeout || all.Timeout > maxTimeout:
		panic(fmt.Sprintf("redisstore: Options.Timeout %s is not within %s to %s; 0 is the default of %s", all.Timeout, minTimeout, maxTimeout, defaultTimeout))
	case !validPrefix(all.Prefix):
		panic(fmt.Sprintf("redisstore: Options.Prefix %q is not 1 to 64 letters, digits, dots, underscores, dashes or colons", all.Prefix))
	case strings.HasSuffix(all.Prefix, ":"):
		slog.Default().Warn(fmt.Sprintf("redisstore: Options.Prefix %q ends in a colon, and the store adds one, so keys begin with %q; leave it out, unless there are keys of that name already", all.Prefix, all.Prefix+":"),
			"code", "prefix-colon")
	}
	return all
}

// checkClient logs once that the client ignores deadlines, unless it gives up as soon by its ReadTimeout.
func (w *wire) checkClient() {
	read, holds := w.batches.Holds()
	if !holds || w.clientChecked.Swap(true) {
		return
	}
	slog.Default().Warn("redisstore: the client ignores deadlines, so a connection whose reply is lost is held until the client's ReadTimeout; set ContextTimeoutEnabled in its options",
		"code", "client-ignores-deadlines", "read_timeout", read)
}

func validPrefix(s string) bool {
	const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"
	return len(s) <= 64 && strings.Trim(s, legal) == ""
}
