// Package storetest is the conformance suite for implementations of core.Store.
// A store's own tests call [Run]:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Fixture {
//			clock := newClock()
//			return storetest.Fixture{Store: newStore(clock), Advance: clock.advance}
//		})
//	}
//
// It has six parts, which a test can also call one by one. [Rules] checks each
// sentence of core's documentation by exact decisions. [Trace] compares long
// random histories with a naive model that recounts everything each time.
// [Waits] has callers wait for shared limits, and cancel. [Vectors] are replies recorded from
// redis-cell. [Concurrent] has many goroutines charge one key, and give back. [Linearizable] looks
// for an order of concurrent calls that explains all their answers.
//
// It imports package testing and registers flags, so only tests should import it.
package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// Fixture is a store under test, with a clock that the test controls.
type Fixture struct {
	Store core.Store

	// Advance moves the store's clock, by whole microseconds. A negative d steps
	// it back, but never to before the store was opened. The clock starts above 0 and
	// otherwise stands still. The store's expiries must use this clock too.
	//
	// Nil means that the clock runs by itself. All of Waits and the tests of exact instants,
	// which are much of Rules, are then skipped, some of them after a part that needs no
	// instant. A time in a decision may be up to 5 s less than on a clock that stands still.
	//
	// Run the suite twice, once with Advance and once with nil: some faults show only while
	// the clock runs.
	Advance func(d time.Duration)

	// Now returns the store's time of day. A store that is not a core.Dated has none: leave it nil, and
	// no limit that needs it is tested.
	Now func() time.Time

	// Traces is how many random traces Trace runs, of about 40 calls each; 0 means 500. With
	// -short it is a tenth. The flag -rapid.checks, if given, overrides both.
	Traces int
}

// Run runs the whole suite as subtests of t. It calls open once for each of them.
// open returns a store without states, or with a fresh key space.
func Run(t *testing.T, open func(testing.TB) Fixture) {
	t.Run("Rules", func(t *testing.T) { Rules(t, open) })
	t.Run("Trace", func(t *testing.T) { Trace(t, open) })
	t.Run("Waits", func(t *testing.T) { Waits(t, open) })
	t.Run("Vectors", func(t *testing.T) { Vectors(t, open) })
	t.Run("Concurrent", func(t *testing.T) { Concurrent(t, open) })
	t.Run("Linearizable", func(t *testing.T) { Linearizable(t, open) })
}

// A rule that a store cannot be tested on is skipped for a reason that begins with these
// words. CI demands that it ran on another store.
const notHere = "not on this fixture: "

// stands skips the test unless the clock stands still.
func (f *Fixture) stands(t testing.TB) {
	t.Helper()
	if f.Advance == nil {
		t.Skip(notHere + "its clock runs by itself")
	}
}

// dated skips the test of a limit with a calendar unless the fixture has a time of day.
func (f *Fixture) dated(t testing.TB, limits ...core.Limit) {
	t.Helper()
	for i := range limits {
		if f.Now == nil && limits[i].Rule().Calendar != nil {
			t.Skip(notHere + "its store has no time of day")
		}
	}
}

// exact are the limits whose decisions the fixture can predict: a calendar window's only on a clock
// that stands still.
func (f *Fixture) exact(limits []core.Limit) []core.Limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l core.Limit) bool {
		return l.Rule().Calendar != nil && (f.Now == nil || f.Advance == nil)
	})
}

// toMinute moves the clock to the next minute of the calendar.
func (f *Fixture) toMinute() {
	if f.Now != nil && f.Advance != nil {
		now := f.Now()
		f.Advance(now.Truncate(time.Minute).Add(time.Minute).Sub(now))
	}
}

// refunds skips the test unless the store can give back.
func (f *Fixture) refunds(t testing.TB) {
	t.Helper()
	if _, able := f.Store.(core.Amender); !able {
		t.Skip(notHere + "its store gives nothing back")
	}
}

// slots skips the test if it has InFlight and core.New refuses that, because the store cannot free slots.
func (f *Fixture) slots(t testing.TB, limits []core.Limit) {
	t.Helper()
	if _, err := core.New(f.Store, core.InFlight(1)); err != nil && slices.ContainsFunc(limits, func(l core.Limit) bool { return l.Kind() == "inflight" }) {
		t.Skip(notHere + "its store frees no slots")
	}
}

// tolerance is how much a running clock may take from a time.
const tolerance = 5 * time.Second

// agree reports whether got is the decision want. Without a clock to stand still
// times may be a little shorter, and with them the choice between limits that
// bind alike.
func (f *Fixture) agree(got, want core.Decision) bool {
	if f.Advance == nil {
		for _, d := range [][2]*time.Duration{{&got.RetryAfter, &want.RetryAfter}, {&got.ResetAfter, &want.ResetAfter}} {
			if *d[0] <= *d[1] && *d[0] >= *d[1]-tolerance {
				*d[0] = *d[1]
			}
		}
	}
	return bare(got) == bare(want)
}

// sameBan reports whether got is the ban want, as agree does.
func (f *Fixture) sameBan(got, want core.BanStatus) bool {
	if f.Advance == nil {
		for _, d := range [][2]*time.Duration{{&got.RetryAfter, &want.RetryAfter}, {&got.ForgetAfter, &want.ForgetAfter}} {
			if *d[0] <= *d[1] && *d[0] >= *d[1]-tolerance {
				*d[0] = *d[1]
			}
		}
	}
	return got == want
}

// bare is the decision less its receipt, so that it can be compared. A store may
// repeat what it said.
func bare(d core.Decision) core.Decision {
	if d.Source == core.SourceCache {
		d.Source = core.SourceStore
	}
	return core.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter,
		Binding: d.Binding, Reason: d.Reason, Source: d.Source, Shadow: d.Shadow, BanLevel: d.BanLevel, Subject: d.Subject,
	}
}
