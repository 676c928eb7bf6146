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

// Options are the settings of a store. The zero value has the defaults.
type Options struct {
	// Timeout is the longest time that a call may take, except for Connect. It is from 1 ms to 1
	// minute. 0 stands for the default of 50 ms.
	Timeout time.Duration

	// Prefix and a colon begin every key. Prefix has 1 to 64 letters, digits, dots, underscores,
	// dashes or colons. "" stands for the default of "tailcut". Give each application on a server
	// another Prefix: two applications with the same Prefix count users and actions of the same
	// name together if their limits have the same identity. For example, SlidingWindows of one
	// period have the same identity even if their max differs.
	Prefix string

	// App names the application. "" stands for the path of the program's main module. If another
	// application has the same Prefix, the store logs a warning once: in Connect, or after 100
	// answers of Redis. Applications that share limits on purpose set the same App. The key
	// PREFIX:application keeps the name for 30 days after the last start.
	App string

	// Secret, if not empty, keeps the names of users out of Redis: a key has an HMAC-SHA-256 of the
	// user under Secret instead of the user. All processes must have the same Secret. If the Secret
	// changes, every user starts with a new state.
	Secret string

	// Tag, if not nil, returns the hash tag of a user's keys. If Tag is nil or returns "", the tag
	// is the user. On a Cluster the keys of all users with the same tag are in one slot, so that
	// core.All decides about these users in one step. For example, users are named "org-7/alice",
	// and their organization "org-7". This function makes the organization the tag of all of them:
	//
	//	func(user string) string { org, _, _ := strings.Cut(user, "/"); return org }
	//
	// The store calls Tag whenever it asks Redis. Tag must return the same tag for a user in all
	// processes. If the tag of a user changes, the user starts with a new state. A slot is on one
	// server, and so are all users with the same tag.
	Tag func(user string) string

	// NoRefusalCache makes Redis decide every attempt, except those that are decided by leased
	// units. Set NoRefusalCache in a test that moves the server's clock, or if a refusal must end
	// as soon as another process ends it.
	NoRefusalCache bool

	// NoFunctions makes the server run the Lua as a script even if the server has Redis Functions.
	NoFunctions bool
}

// withDefaults returns the options with the defaults filled in. It panics if an option is out of
// bounds.
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

// checkClient logs once if the client ignores deadlines and its ReadTimeout is longer than a batch
// may take.
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
