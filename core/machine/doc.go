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
// All times are microseconds on the store's clock, and every instant is positive. A clock
// may step back. The first action that finds a state from the future moves it back to
// now, so that no user is locked out for longer than one full period.
package machine
