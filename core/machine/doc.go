// Package machine is for authors of stores. It decides for one limit: from a rule, a state, an
// instant and an ask, all of them integers. A program that limits something uses package core.
//
// A store loads a [State], passes it to [Rule.Check], then to [Rule.Charge] or
// [Rule.Refuse], and writes it back if it is Dirty:
//
//	var s machine.State
//	_ = s.UnmarshalBinary(load(key)) // a missing key has no bytes: the zero State
//	ask := machine.Ask{Cost: 1}
//	rule.Check(&s, now, &ask)
//	if s.Fits {
//		rule.Charge(&s, now, &ask)
//	} else {
//		rule.Refuse(&s, now, &ask, true)
//	}
//	if s.Dirty {
//		save(key, s.MarshalBinary, rule.Expires(&s))
//	}
//
// Package core does this for several limits at once, all or none: a store calls
// core.Charge.Check and core.Charge.Commit with the states of all limits of a charge, and
// core.Limit.Rule gives the rule of each. The program examples/blobstore is a complete store.
//
// # Machines
//
//	Meter    buckets and funnels: the instant at which the debt ends (GCRA)
//	Counter  FixedWindow and ElasticWindow: a count, and the window's end
//	Trail    SlidingWindow and MovingWindow: the instants of the last actions
//	Bans     a ban policy: the refusals since the last ban, and the ban
//
// # Time
//
// All times are microseconds on the store's clock, and every instant is positive. Instants
// count from an epoch of the store's own choice, so a rule cannot tell the hour or the day. A
// clock may step back. The first action that finds a state from the future moves it back to
// now, so that no user is locked out for longer than one full period.
//
// # Adding a limit
//
// These places know the kinds of limits. Tests fail for some that are forgotten, not for all.
//
//	core/machine/rule.go           the Kind, its word, Windowed, Trailed, Counted or Metered, and RecordsRefusals
//	core/machine/state.go          the switches, and Refuse if it records refusals
//	core/machine/refund.go         Rule.Refund
//	core/limit.go, validate.go     the constructor, the doc of Limit.Kind, and the bounds
//	core/compile.go                what identifies the state
//	core/text.go                   Limit.String and ParseLimit
//	core/storetest/model.go        the reference model, and model_refund.go
//	core/storetest/rules.go        kindsOfLimits, and the limit's own promises
//	core/storetest/concurrent.go   hourlyLimits, and the list in linear.go
//	core/redisstore/wire.go        the script's arguments and reply
//	core/redisstore/lua/take.lua   the kind's word chooses the machine, and its parts ask for it
//	core/redisstore/refund.go      refundSpec, and the functions of lua/refund.lua
//	core/redisstore/cache.go       holds: how long a refusal is sure to last
//	core/doc.go, README.md         the tables of limits; examples/compare draws each
//
// A new machine also has a field in [State] and a binary form (binary.go), a place in
// memorystore (slot.go) and a file in redisstore/lua.
package machine
