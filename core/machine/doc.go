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
// core.Limit.Rule gives the rule of each. What a store can do besides is in store.go. The program
// examples/blobstore is a complete store.
//
// # Machines
//
//	meter.go    buckets and funnels: the instant at which the debt ends (GCRA)
//	counter.go  FixedWindow, ElasticWindow and CalendarWindow: a count, and the window's end
//	trail.go    SlidingWindow and MovingWindow: the instants of the last actions
//	ban.go      a ban policy: the refusals since the last ban, and the ban
//	slots.go    InFlight: the slots that are taken, and when their leases began
//
// calendar.go divides time into the periods of a CalendarWindow.
//
// For each machine there is a Lua file in redisstore/lua. It has functions of the same names in the same
// order: args, load, check, charge, refuse, read, amend, save. trail.lua keeps its instants in log.lua
// for SlidingWindow and in ring.lua for MovingWindow; in Go both are queue.go. refunds.lua and span.lua
// have Go files too. take.lua does what Charge.Check and Charge.Commit in core/charge.go do, and amend.lua
// what Receipt.Amend in core/refund.go does. state.lua has what the others share: how a key's numbers are
// read and written.
//
// Package core/storetest tests the arithmetic of both against a model. After a change run
//
//	go test ./core/memorystore ./core/redisstore
//
// # Time
//
// All times are microseconds on the store's clock, and every instant is positive. Instants
// count from an epoch of the store's own choice. A rule with a [Calendar] needs the time of day: before
// [Rule.Check] the store sets State.Epoch, which is its instant 0 in microseconds since 1970. A
// clock may step back. The first action that finds a state from the future moves it back to
// now, so that no user is locked out for longer than one full period.
//
// # Adding a limit
//
//	core/machine/kinds.go             its Kind and its entry in the table
//	core/machine/NAME.go              its machine, unless it shares one
//	core/redisstore/lua/NAME.lua      the same in Lua, unless it shares one
//	core/window.go, meter.go or NAME.go  its constructor, bounds and identity
//	core/text.go                      how ParseLimit reads its arguments
//	core/leased.go                    why it cannot be leased, unless it is prepaid
//
// Then add it to the model in storetest/model.go and to the examples in storetest/kinds.go, and
// describe it in core/doc.go and the README. If you forget one of these places, a test fails.
//
// A new form of state also needs a Form and an entry in the table of forms in kinds.go, with the name of its
// files. Its machine keeps the state in State.Other, so no store, and no
// binary form, has to know of it. A check does not change what Other points to, because a Peek ends there.
//
// [Rule.Amend] changes what a charge has taken. A kind that takes slots, as InFlight does, gives it back
// when the action ends: its charge is released or renewed, as often as a caller tries, and not refunded.
// So its state tells one charge from another, and a second release of the same charge finds nothing.
package machine
