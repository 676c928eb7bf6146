// Package machine is for authors of stores. It decides for one limit: from a rule, a state, an
// instant and an ask, all of them integers. A program that limits something uses package core.
//
// A store loads a [State], passes it in an [Entry] to [Rule.Check], then to [Rule.Charge] or
// [Rule.Refuse], and writes it back if the entry is Dirty:
//
//	var e machine.Entry
//	e.State, _ = rule.Unmarshal(load(key)) // a missing key has no bytes: the zero State
//	ask := machine.Ask{}
//	rule.Check(&e, now, 1, &ask)
//	if e.Fits {
//		rule.Charge(&e, now, 1, &ask)
//	} else {
//		rule.Refuse(&e, now, 1, true, false)
//	}
//	if e.Dirty {
//		save(key, rule.Marshal(e.State), e.Expires)
//	}
//
// Package core does this for several limits at once, all or none: a store calls
// core.Charge.Check and core.Charge.Commit with the entries of all limits of a charge, and
// core.Limit.Rule gives the rule of each. What a store can do besides is in core/store.go. The program
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
// machine.go says what each of them computes. calendar.go divides time into the periods of a CalendarWindow.
//
// For each machine there is a Lua file in redisstore/lua. It has functions of the same names in the same
// order, with the same arguments: load, check, charge, refuse, read, amend, save. Two more, args and amendArgs,
// read what redisstore/forms.go sends. trail.lua keeps its instants in log.lua for SlidingWindow and in ring.lua
// for MovingWindow; in Go both are queue.go. refunds.lua has a Go file too.
// take.lua does what Charge.Check and Charge.Commit in core/charge.go do, and says what the arguments are.
// amend.lua does what Record.Amend in core/record.go does. state.lua has what the others share: how a key's
// numbers are read and written.
//
// Package core/storetest tests the arithmetic of both against a model. After a change run
//
//	go test ./core/memorystore ./core/redisstore
//
// # Time
//
// All times are microseconds on the store's clock, and every instant is positive. Instants
// count from an epoch of the store's own choice. A rule with a [Calendar] needs the time of day: before
// [Rule.Check] the store sets Entry.Epoch, which is its instant 0 in microseconds since 1970. A
// clock may step back. The first action that finds a state from the future moves it back to
// now, so that no user is locked out for longer than one full period.
//
// # Adding a limit
//
//	core/machine/machine.go           its Kind and its entry in the table
//	core/machine/NAME.go              its machine, unless it shares one
//	core/redisstore/lua/NAME.lua      the same in Lua, unless it shares one
//	core/window.go, meter.go or NAME.go  its constructor, bounds and identity
//	core/text.go                      how ParseLimit reads its arguments
//	core/leased.go                    why it cannot be leased, unless it is prepaid
//
// Then add it to the model in storetest/model.go and to the examples in storetest/kinds.go, and
// describe it in core/doc.go and the README. If you forget one of these places, a test fails.
//
// A new form of state also needs a Form and an entry in the table of forms in machine.go, with the name of its
// files, and an entry in the table of redisstore/forms.go, which says what Redis is sent and what it replies. Its
// machine keeps the state in State.Data, so no store has to know of it. Its check must not change what Data points
// to: after a Peek the store writes nothing back.
//
// [Rule.Amend] changes what a charge has taken. A kind that takes slots, as InFlight does, gives it back
// when the action ends: its charge is released or renewed, as often as a caller tries, and not refunded.
// So its state tells one charge from another, and a second release of the same charge finds nothing.
package machine
