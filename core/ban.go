package core

// Bans: BanPolicy bans users who keep trying, and Ban and Unban do so by hand.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// A BanPolicy bans users who keep trying after being refused. A user who has been refused Refusals
// times within the time Within is banned. The lengths of a user's bans are listed in Bans.
//
//	replies, err := replies.With(core.BanPolicy{
//		Refusals: 20, Within: time.Minute,
//		Bans: []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
//	})
//
// The zero BanPolicy bans nobody by itself. It allows [Limiter.Ban] and [Limiter.Unban] on the
// limiter.
//
// A store decides about the ban and the limits in one atomic step. A banned user is refused with
// [ReasonBanned]. The attempts of a banned user are charged to no limit, and do not lengthen the
// ban. [Limiter.Surcharge] and [Limiter.Settle] charge even during a ban. A refused attempt counts
// as one refusal, whatever its cost. Some calls do not count, such as a Peek, a refusal by
// [InFlight] alone, an action whose cost can never pass, and a call of Wait whose action passes in
// the end.
//
// Refusals and bans belong to a user and an action, or only to a user if PerUser is set. If the
// policies of limiters on one store have the same PerUser, the limiters share the refusals and
// bans. Each limiter applies its own policy to them. This has consequences:
//
//   - If one limiter limits IDs and another limits addresses, give them different actions, because
//     an ID can look like an address.
//   - If another limiter has a shorter Within or ForgetAfter, the refusals and bans may be
//     forgotten as early as that limiter says.
//   - A full memorystore may forget the refusals and past bans of a user who is not banned at that
//     time.
type BanPolicy struct {
	// Refusals is the number of refusals that lead to a ban, from 1 to 100. They must happen within
	// the time Within, which is from 1 ms to 365 days. A refusal counts until just before Within
	// has passed.
	Refusals int
	Within   time.Duration

	// Bans has the lengths of the first ban, of the second ban, and so on. All further bans are as
	// long as the last one. There are from 1 to 16 lengths, each from 1 ms to 365 days.
	Bans []time.Duration

	// If a user has had no refusal and no ban for the time ForgetAfter, the user's next ban is a first
	// ban again. ForgetAfter is from 1 ms to 365 days. 0 means 24 h.
	ForgetAfter time.Duration

	// PerUser counts the refusals of all of a user's actions together. A ban then holds for all
	// actions, in every limiter on the store whose BanPolicy has PerUser.
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
	if l.smallest == 0 {
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

// rule compiles the policy. If the policy is wrong, the error says why.
func (p BanPolicy) rule() (*machine.BanRule, error) {
	bad := badIn("BanPolicy")
	err := validatePeriod("ForgetAfter", p.ForgetAfter, bad)
	switch {
	case p.Refusals == 0 && p.Within == 0 && len(p.Bans) == 0: // bans by hand only
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

// banned is the shape of the limit that a ban policy is for a store. Only With makes it.
type banned struct{}

func (banned) text(l *Limit) string { return fmt.Sprintf("BanPolicy{Refusals: %d}", l.max) }

func (banned) validate(_ *Limit, bad badValue) error {
	return bad("a ban policy is given to With, not to New")
}

func (banned) compile(*Limit) {}

func (banned) identity(*Limit) string { return "" }

// ErrNoBanPolicy is the error of Ban and Unban if the limiter has no [BanPolicy].
var ErrNoBanPolicy = errors.New("core: the limiter has no BanPolicy; for bans by hand, derive one with With(core.BanPolicy{})")

var errNotBanned = errors.New("core: the store has not kept the ban: it is full, or has no answer; ban again when it answers")

// Ban bans user from action for d, from now on. d is from 1 ms to 365 days. The limiter needs a
// [BanPolicy]. The zero BanPolicy is enough:
//
//	calls, err := calls.With(core.BanPolicy{})
//	err = calls.Ban(ctx, "our-account", "github", retryAfter) // GitHub has answered 429
//
// Each limiter on the store that has a policy with the same PerUser then refuses the user and
// action, and [Limiter.Wait] waits until the ban ends. A limiter without a policy ignores bans. To
// look for a ban, it would have to read one more key. That would cost a quarter more of Redis's
// time for each decision, and would make calls fail while a Cluster moves the slot.
//
// Ban replaces the present ban, if there is one. It does not count as a ban of the policy. If
// BanPolicy.PerUser is set, the ban holds for all actions, whichever action is given.
//
// If the limiter's store has not kept the ban, Ban returns an error. With [Fallback], the second
// store may still have kept it. That store then applies the ban in this process while the first
// store has no answer.
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

// Unban ends a ban, and deletes the refusals and bans that were counted before. It does so in all
// stores of the limiter. If a store fails, Unban returns its error. The state of the limits does
// not change.
//
// To let a banned user in again, call [Limiter.Reset] first, and then Unban. In the other order, a
// limit that is still used up may refuse an attempt between the two calls. That refusal may start
// the next ban.
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
