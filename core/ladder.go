package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A BanPolicy punishes who does not stop: so many refusals within a time lead to a
// ban, and each further one to the next rung.
//
//	replies, err := replies.With(core.BanPolicy{
//		Refusals: 20, Within: time.Minute,
//		Bans: []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
//	})
//
// It is decided in the same atomic step as the limits. Whoever is banned is refused
// with the reason [ReasonBanned]; his attempts are charged to nothing and lengthen
// nothing. An attempt counts as one refusal whatever its cost; one that can never
// pass does not count, nor does a Peek.
//
// A ladder belongs to user and action: limiters on one store share it, with their
// own numbers; what one of them no longer counts, because its Within or ForgetAfter is
// shorter, it forgets for all. It is kept for as long as it can matter; memorystore may
// drop one that bans nobody at present when it is full, and with it the rung.
type BanPolicy struct {
	// Refusals, from 1 to 100, within Within, from 1 ms to 365 days, lead to a
	// ban. A refusal counts until just before Within is over.
	Refusals int
	Within   time.Duration

	// Bans are how long the first ban lasts, the next, and so on; the last one
	// repeats. 1 to 16, each from 1 ms to 365 days.
	Bans []time.Duration

	// ForgetAfter, from 1 ms to 365 days, without refusal or ban brings the user back to
	// the first rung; 0 is 24 h.
	ForgetAfter time.Duration
}

const (
	maxRefusals  = 100
	maxBans      = 16
	defaultQuiet = 24 * time.Hour
)

// rungs are a ladder's numbers in microseconds.
type rungs struct {
	refusals      int
	within, quiet int64
	bans          []int64
}

func (a BanPolicy) extend(l *Limiter) error {
	if l.ladder() != nil {
		return configError("core: With: the limiter has a BanPolicy already; give one")
	}
	if a.ForgetAfter == 0 {
		a.ForgetAfter = defaultQuiet
	}
	bad := func(format string, args ...any) error {
		return configError("core: BanPolicy: " + fmt.Sprintf(format, args...))
	}
	switch {
	case a.Refusals < 1 || a.Refusals > maxRefusals:
		return bad("Refusals %d is not within 1 to %d", a.Refusals, maxRefusals)
	case len(a.Bans) < 1 || len(a.Bans) > maxBans:
		return bad("%d Bans are not 1 to %d", len(a.Bans), maxBans)
	}
	if err := validatePeriod("Within", a.Within, bad); err != nil {
		return err
	}
	if err := validatePeriod("ForgetAfter", a.ForgetAfter, bad); err != nil {
		return err
	}
	r := &rungs{refusals: a.Refusals, within: a.Within.Microseconds(), quiet: a.ForgetAfter.Microseconds()}
	for _, ban := range a.Bans {
		if err := validatePeriod("a ban of", ban, bad); err != nil {
			return err
		}
		r.bans = append(r.bans, ban.Microseconds())
	}
	l.limits = append(l.limits, Limit{kind: KindLadder, max: a.Refusals, ladder: r}.derived())
	return nil
}

// Standing is the state of a [BanPolicy]: what a user has done and been given.
type Standing struct {
	Last  int64   // the last refusal or ban
	Until int64   // the end of the ban; it may be past
	Rung  int     // bans in a row, however many the policy has lengths for
	Marks []int64 // the refusals since, oldest first
}

// Rungs are a ladder's numbers, for a store that decides elsewhere: times in
// microseconds.
func (l Limit) Rungs() (refusals int, within, quiet int64, bans []int64) {
	return l.ladder.refusals, l.ladder.within, l.ladder.quiet, l.ladder.bans
}

// fitsLadder reports whether there is no ban. A charge of the ladder alone is a ban
// given by hand, which always fits.
func (l *Limit) fitsLadder(s *State, now int64, byHand bool) bool {
	s.shift = 0
	if !s.Kept || s.Standing == nil {
		s.Standing, s.Kept = nil, false
		return true
	}
	s.shift = max(0, s.Standing.Last-now) // the clock stepped back
	return byHand || s.Standing.Until-s.shift <= now
}

// climb moves the standing: by a ban of so long, if it is not 0, or else by a
// refusal, if there was one.
func (l *Limit) climb(s *State, now, ban int64, refused bool) {
	if ban == 0 && !refused && s.shift == 0 {
		return
	}
	if s.Standing == nil {
		s.Standing = new(Standing)
	}
	t := s.Standing
	t.Rung = l.rung(t, now+s.shift)
	t.Marks = t.Marks[:copy(t.Marks, t.Marks[l.dead(t, now+s.shift):])]
	t.Last -= s.shift
	t.Until -= s.shift
	for i := range t.Marks {
		t.Marks[i] -= s.shift
	}
	s.shift = 0
	if refused {
		t.Last = now
		if t.Marks = append(t.Marks, now); len(t.Marks) >= l.ladder.refusals {
			ban = l.ladder.bans[min(t.Rung, len(l.ladder.bans)-1)]
			t.Rung++
		}
	}
	if ban > 0 {
		t.Last, t.Until, t.Marks = now, now+ban, t.Marks[:0]
	}
	s.Kept, s.Changed = true, true
}

// rung is how many bans in a row count at an instant.
func (l *Limit) rung(t *Standing, now int64) int {
	if now >= max(t.Last, t.Until)+l.ladder.quiet {
		return 0
	}
	return t.Rung
}

// dead is how many marks no longer count at an instant.
func (l *Limit) dead(t *Standing, now int64) (n int) {
	for n < len(t.Marks) && t.Marks[n]+l.ladder.within <= now {
		n++
	}
	return n
}

func (l *Limit) readLadder(r *Reading, s *State, now int64) {
	t := s.Standing
	if t == nil {
		return
	}
	now += s.shift
	live := Standing{Last: t.Last, Until: t.Until, Rung: l.rung(t, now), Marks: t.Marks[l.dead(t, now):]}
	r.Count, r.Part = int64(len(live.Marks)), int64(live.Rung)
	r.Rest, r.Wait = max(0, l.forgotten(&live)-now), max(0, live.Until-now)
}

// forgotten is the instant from which the standing need not be kept.
func (l *Limit) forgotten(t *Standing) int64 {
	end := max(t.Last, t.Until)
	if t.Rung > 0 {
		end += l.ladder.quiet
	}
	if len(t.Marks) > 0 {
		end = max(end, t.Last+l.ladder.within)
	}
	return end
}

// ladder is the limiter's, or nil. It comes after all limits.
func (l *Limiter) ladder() []Limit {
	if i := len(l.limits) - 1; i >= 0 && l.limits[i].kind == KindLadder {
		return l.limits[i:]
	}
	return nil
}

// ErrNoBanPolicy is the error of Ban and Unban on a limiter without a [BanPolicy].
var ErrNoBanPolicy = errors.New("core: the limiter has no BanPolicy; give it one with With")

// Ban bans user from action by hand for so long from now, 1 ms to 365 days, in place
// of any ban that there is. It does not count as a rung. It is kept by the store that
// decides at the time: a Fallback's second one, say, forgets it with its process.
func (l *Limiter) Ban(ctx context.Context, user, action string, d time.Duration) error {
	if err := l.checkLadder(ctx, user, action); err != nil {
		return err
	}
	err := validatePeriod("the ban of", d, func(format string, args ...any) error {
		return configError("core: Ban: " + fmt.Sprintf(format, args...))
	})
	if err != nil {
		return err
	}
	got, err := l.store.Take(ctx, Charge{User: user, Action: action, Limits: l.ladder(), Cost: d.Microseconds()})
	if err == nil && (got.Reason == ReasonFull || got.Source == SourceNone) {
		err = errNotBanned
	}
	return err
}

var errNotBanned = errors.New("core: nobody is banned: the store is full, or has no answer")

// Unban ends a ban and forgets the refusals and bans before it, in every store where
// they may be kept. The limits stay as they are.
func (l *Limiter) Unban(ctx context.Context, user, action string) error {
	if err := l.checkLadder(ctx, user, action); err != nil {
		return err
	}
	return l.store.Reset(ctx, user, action, l.ladder())
}

// Inspect says how user stands on the ladder: Allowed, if there is no ban, else
// RetryAfter is how long it lasts; Limit is how many refusals lead to a ban, and
// Remaining how many are left; BanLevel, how many bans in a row there were; ResetAfter,
// when all is forgotten. It writes nothing.
func (l *Limiter) Inspect(ctx context.Context, user, action string) (Decision, error) {
	if err := l.checkLadder(ctx, user, action); err != nil {
		return Decision{}, err
	}
	return l.store.Take(ctx, Charge{User: user, Action: action, Limits: l.ladder(), Cost: 1, Peek: true})
}

func (l *Limiter) checkLadder(ctx context.Context, user, action string) error {
	if l.ladder() == nil {
		return ErrNoBanPolicy
	}
	return check(ctx, user, action)
}
