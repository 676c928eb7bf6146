// Package machine is for authors of stores. It has the arithmetic of one limit, in integers. A
// program that limits something uses package core.
//
// A [Rule] is a limit's numbers, and a [State] is what the store keeps for a key. A store does this
// for an action:
//
//  1. It loads the State into an [Entry].
//  2. [Rule.Check] says whether the action fits.
//  3. [Rule.Charge] or [Rule.Refuse] changes the State.
//  4. If the Entry is Dirty, the store writes the State back.
//
// In code:
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
// Package core does this for several limits at once, all or none. A store calls core.Charge.Check
// and core.Charge.Commit with the entries of all limits of a charge. core.Limit.Rule returns the
// rule of a limit. What else a store can do is in core/store.go. The program examples/blobstore is
// a complete store.
//
// # Machines
//
//	meter.go    buckets and funnels: the instant at which the debt ends (GCRA)
//	counter.go  FixedWindow, ElasticWindow and CalendarWindow: a count, and the window's end
//	trail.go    SlidingWindow and MovingWindow: the instants of the last actions
//	ban.go      a ban policy: the refusals since the last ban, and the ban
//	slots.go    InFlight: the slots that are taken, and when each lease began or was renewed
//
// machine.go says what each of them computes. calendar.go divides time into the periods of a
// CalendarWindow.
//
// For each machine there is a Lua file in redisstore/lua. It has functions of the same names in the
// same order: load, check, charge, refuse, read, amend, save. take.lua says which arguments they
// have. Two more functions, args and amendArgs, read what redisstore/forms.go sends. The other Lua
// files:
//
//	log.lua, ring.lua       the instants of trail.lua, for SlidingWindow and for MovingWindow; in Go
//	                        both are in queue.go
//	refunds.lua             what refunds.go has
//	take.lua                what Charge.Check and Charge.Commit in core/charge.go do; its head says
//	                        what the arguments are
//	amend.lua               what Record.Amend in core/record.go does
//	state.lua               how a key's numbers are read and written
//	clock.lua               the instant of a run, by the server's clock
//
// Package core/storetest tests the Go and the Lua against a model. After a change run
//
//	go test ./core/memorystore ./core/redisstore
//
// # Time
//
// All times are in microseconds on the store's clock. The instants that a store passes are
// positive. The store chooses its instant 0. A rule with a [Calendar] needs the time of day: before
// [Rule.Check] the store sets Entry.Epoch to its instant 0 in microseconds since 1970.
//
// A clock may step back. The first action that finds a state from the future moves the state back,
// so that the step locks no user out for much longer than one full period, or one full ban.
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
// Then add the limit to the model in storetest/model.go and to the examples in storetest/kinds.go,
// and describe it in core/doc.go and the README. If you forget one of these places, a test usually
// fails.
//
// A new form of state also needs a Form, an entry with the name of its files in the table of forms
// in machine.go, and an entry in the table of redisstore/forms.go, which says what Redis is sent
// and what it replies. Its machine keeps the state in State.Data, so no store has to know of it.
// Its check must not change what Data points to: after a Peek the store writes nothing back.
//
// A decision may depend on something of a call besides its cost. For example, InFlight does not
// take slots again that the action holds already. For such a call package core makes a copy of the
// limit, and sets a field of the copy's Rule, such as Held: see Subject.Within. Caches and the
// queues of Wait recognise limits by the address of their slice in memory. The copy has another
// address, so its decisions are not mixed with those of the original. An argument of
// redisstore/forms.go sends the field to Redis, and Limit.derived in core/limit.go keeps it.
//
// [Rule.Amend] changes what a charge has taken: by a refund, a release or a renewal. A kind that
// takes slots, as InFlight does, is released or renewed, and not refunded. A caller may release a
// charge twice. So each slot in the state has an ID, and the second release finds nothing.
package machine
