package core

// Bans: a policy for users who keep trying, and bans by hand.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// A BanPolicy bans users who keep trying after being refused. When a user has been refused a number
// of times within a period, the user is banned. Each further ban of the same user is the next in a
// list.
//
//	replies, err := replies.With(core.BanPolicy{
//		Refusals: 20, Within: time.Minute,
//		Bans: []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
//	})
//
// The zero BanPolicy bans nobody by itself. It is for [Limiter.Ban] and [Limiter.Unban].
//
// The policy is decided in the same atomic step as the limits. A banned user is refused with
// [ReasonBanned]. The attempts of a banned user are charged to no limit, and do not lengthen the
// ban. An attempt counts as one refusal whatever its cost. These do not count as refusals: a Peek,
// an action whose cost can never pass, and a call of Wait whose action passes in the end.
//
// The refusals and bans belong to a user and an action, or to the user alone if PerUser is set. All
// limiters on one store share them, and each limiter applies the numbers of its own policy. So:
//   - If one limiter limits ids and another limits addresses, give them different actions, because
//     an id can look like an address.
//   - If a limiter has a shorter Within or ForgetAfter than another, the other limiter forgets as
//     early.
//   - A full memorystore may forget the refusals of a user who is not banned now.
type BanPolicy struct {
	// Refusals, 1 to 100, is the number of refusals within the time Within, 1 ms to 365 days, that
	// leads to a ban. A refusal counts until just before Within has passed.
	Refusals int
	Within   time.Duration

	// Bans are the lengths of the first ban, of the second and so on. All further bans are as long
	// as the last one. There are 1 to 16 lengths, each from 1 ms to 365 days.
	Bans []time.Duration

	// ForgetAfter, 1 ms to 365 days, is the time without a refusal or a ban after which the user's
	// next ban is the first one again. 0 means 24 h.
	ForgetAfter time.Duration

	// PerUser counts the refusals of all of a user's actions together, and bans the user from all
	// actions: from every action of every limiter whose BanPolicy has PerUser.
	PerUser bool
}

const (
	maxBans           = 16
	defaultBanForgets = 24 * time.Hour
)

func (p BanPolicy) extend(l *Limiter) error {
	if l.ban() != nil {
		return configError("core: With: the limiter has a BanPolicy already; give one")
	}
	if admitsNothing(enforced(l.limits)) {
		return errNothing("With", "a BanPolicy")
	}
	p.ForgetAfter = cmp.Or(p.ForgetAfter, defaultBanForgets)
	rule, err := p.rule()
	if err != nil {
		return err
	}
	limit := Limit{kind: machine.KindBan, shape: banned{}, max: p.Refusals, rule: machine.NewBan(rule)}
	limit.rule.PerUser = p.PerUser
	l.limits = append(slices.Clone(l.limits), limit.derived())
	return nil
}

// rule compiles the policy, or says what is wrong with it.
func (p BanPolicy) rule() (*machine.BanRule, error) {
	bad := badIn("BanPolicy")
	err := validatePeriod("ForgetAfter", p.ForgetAfter, bad)
	switch {
	case p.Refusals == 0 && p.Within == 0 && len(p.Bans) == 0: // by hand only
	case p.Refusals < 1 || p.Refusals > machine.KindBan.Most():
		return nil, bad("Refusals %d is not within 1 to %d", p.Refusals, machine.KindBan.Most())
	case len(p.Bans) < 1 || len(p.Bans) > maxBans:
		return nil, bad("Bans has %d entries; give it 1 to %d", len(p.Bans), maxBans)
	default:
		err = cmp.Or(validatePeriod("Within", p.Within, bad), err)
	}
	if err != nil {
		return nil, err
	}
	b := &machine.BanRule{Refusals: p.Refusals, Within: p.Within.Microseconds(), ForgetAfter: p.ForgetAfter.Microseconds()}
	for _, ban := range p.Bans {
		if err := validatePeriod("a ban of", ban, bad); err != nil {
			return nil, err
		}
		b.Bans = append(b.Bans, ban.Microseconds())
	}
	return b, nil
}

// banned is the shape of a ban policy's limit, which only With makes.
type banned struct{}

func (banned) text(l *Limit) string { return fmt.Sprintf("BanPolicy{Refusals: %d}", l.max) }

func (banned) validate(_ *Limit, bad badValue) error {
	return bad("a ban policy is given to With, not to New")
}

func (banned) compile(*Limit) {}

func (banned) identity(*Limit) string { return "" }

// ErrNoBanPolicy is the error of Ban and Unban on a limiter without a [BanPolicy].
var ErrNoBanPolicy = errors.New("core: the limiter has no BanPolicy; for bans by hand, derive one with With(core.BanPolicy{})")

var errNotBanned = errors.New("core: the store has not kept the ban: it is full, or has no answer; ban again when it answers")

// Ban bans user from action for d, 1 ms to 365 days, from now on. The limiter needs a [BanPolicy].
// The zero BanPolicy is enough:
//
//	calls, err := calls.With(core.BanPolicy{})
//	err = calls.Ban(ctx, "our-account", "github", retryAfter) // GitHub has answered 429
//
// Every limiter with such a policy on the same store then refuses that user and action.
// [Limiter.Wait] waits until the ban ends. A limiter without a policy does not look at bans,
// because one more key would cost each decision a quarter more of Redis's time, and fail calls
// while a Cluster moves the slot.
//
// Ban replaces any ban in force, and does not count as a ban of the policy. If BanPolicy.PerUser is
// set, the ban is from all actions, whichever action is given. If the limiter's store has not kept
// the ban, Ban returns an error. The second store of a [Fallback] may then apply the ban in this
// process while the first store has no answer.
func (l *Limiter) Ban(ctx context.Context, user, action string, d time.Duration) error {
	if err := l.checkBan(ctx, user, action); err != nil {
		return err
	}
	if err := validatePeriod("the ban of", d, badIn("Ban")); err != nil {
		return err
	}
	got, _, err := l.store.Take(ctx, Charge{user, action, 1, &Terms{Limits: l.ban(), Ask: machine.Ask{Ban: d.Microseconds()}}})
	if err == nil && (got.Reason == ReasonFull || got.Source != SourceStore) {
		err = errNotBanned
	}
	return err
}

// Unban ends a ban, and deletes the refusals and bans that were counted before it, in all stores of
// the limiter. If a store fails, Unban returns its error. The state of the limits does not change.
// To let a banned user in again, call [Limiter.Reset] first and then Unban. In the other order, an
// attempt between the two calls may be refused by a limit that is still used up, and start the next
// ban.
func (l *Limiter) Unban(ctx context.Context, user, action string) error {
	if err := l.checkBan(ctx, user, action); err != nil {
		return err
	}
	return l.store.Reset(ctx, user, action, l.ban())
}

func (l *Limiter) checkBan(ctx context.Context, user, action string) error {
	if err := l.check(ctx, user, action, 1); err != nil {
		return err
	}
	if l.ban() == nil {
		return ErrNoBanPolicy
	}
	return nil
}
