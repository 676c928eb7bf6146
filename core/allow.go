package core

// The methods of a Limiter for one user and one action. They check the arguments, ask the store,
// and keep the receipt.

import (
	"context"
	"errors"

	"github.com/tailcut/tailcut/core/machine"
)

// Allow reports whether user may do action now. If the action is allowed, Allow charges one unit.
// With [OnlyFailures] it takes only a slot.
//
// If Allow returns an error, there is no decision. The error is [ErrNoUser], [ErrNoAction], the
// error of ctx if ctx was done, or the store's error. If the limiter is zero or ctx is nil, the
// error matches [ErrConfig].
//
// If the limiter has an [InFlight], the call of the store does not end with ctx. Otherwise the
// store could take a slot for a caller that has left. The store's own timeout ends the call.
func (l *Limiter) Allow(ctx context.Context, user, action string) (d Decision, err error) {
	err = l.allow(ctx, user, action, 1, &d)
	return d, err
}

// AllowN is [Limiter.Allow] for an action that costs n units. It charges all of the units or none.
// These costs are special:
//   - If n is above the quota of a limit that is enforced, the action is refused, RetryAfter is
//     [Never], and nothing is written.
//   - If n is 0, only a ban refuses the action, and RetryAfter is the time until the ban ends.
//     Without a ban the action is allowed, even if a limit has no room. The other numbers are those
//     of [Limiter.Peek].
//   - If n is negative, the error is [ErrCost].
//   - If n is above 1,000,000 but not above an enforced quota, and the quota of a [MovingWindow] is
//     above 1,000,000 too, the error matches [ErrCost]. To write so many units would delay all
//     users.
func (l *Limiter) AllowN(ctx context.Context, user, action string, n int) (d Decision, err error) {
	err = l.allow(ctx, user, action, n, &d)
	return d, err
}

// allow does the work of AllowN. It writes the decision to d, because returning it would copy it
// once more.
func (l *Limiter) allow(ctx context.Context, user, action string, n int, d *Decision) (err error) {
	switch err = l.check(ctx, user, action, n); {
	case err != nil:
	case n == 0:
		*d, err = l.allowNothing(ctx, user, action)
	default:
		err = l.take(ctx, &Charge{user, action, int64(n), l.terms[machine.ModeCharge]}, d)
	}
	return err
}

// check returns the error of a call with invalid arguments, or with a ctx that is done.
func (l *Limiter) check(ctx context.Context, user, action string, cost int) error {
	switch {
	case l == nil || l.store == nil:
		return errZeroLimiter
	case ctx == nil:
		return errNoContext
	case user == "":
		return ErrNoUser
	case action == "":
		return ErrNoAction
	case ctx.Err() != nil:
		return ctx.Err()
	case cost < 0:
		return ErrCost
	case cost > mostUnits && l.portioned > 0 && int64(cost) <= l.smallest:
		return errLargeCost
	}
	return nil
}

// take asks the store for the decision about a charge of one subject, and writes it to d. If the
// store returns an error, take leaves d zero.
func (l *Limiter) take(ctx context.Context, c *Charge, d *Decision) (err error) {
	if l.slotWaiters != nil {
		ctx = c.outlives(ctx)
	}
	var r *Record
	// The caller has just written the fields one by one. To copy them in larger parts would be slower.
	if *d, r, err = l.store.Take(ctx, Charge{c.User, c.Action, c.Cost, c.Terms}); err != nil {
		*d = Decision{}
	} else if r != nil {
		l.keep(r, nil, d)
	}
	return err
}

// keep sets the receipt of d to r, the record of a charge. If the charge has several subjects, the
// receipt is a list with one record for each subject. If the charge is about one subject, the
// argument subjects is nil.
func (l *Limiter) keep(r *Record, subjects []Subject, d *Decision) {
	switch {
	case !d.Allowed || !r.admitted: // nothing was charged, also if a decorator allows the refused action
		return
	case len(r.More) == 0:
		d.receipt = r
		r.takeSlots(l.slotWaiters)
		return
	}
	c, readings, more := r.Charge, r.Readings, make([]Record, len(r.More))
	for i := range 1 + len(more) {
		o, p := r, c.Part(i)
		if i > 0 {
			o = &more[i-1]
		}
		if i < len(subjects) {
			l = subjects[i].limiter
		}
		t := l.terms[machine.ModeCharge]
		if t.Ask != c.Ask || !SameLimits(t.Limits, p.Limits) {
			t = &Terms{Limits: p.Limits, Ask: c.Ask, Receipt: true}
		}
		o.Charge, o.At, o.By, o.next = Charge{p.User, p.Action, p.Cost, t}, r.At, r.By, d.receipt
		o.Readings, readings = readings[:len(p.Limits)], readings[len(p.Limits):]
		o.takeSlots(l.slotWaiters)
		d.receipt = o
	}
}

// outlives returns the context for the call of the store. If the charge may take slots, this
// context does not end with ctx. If it did, the store could take slots for a caller that has left,
// and the slots would stay taken until their leases end.
func (c *Charge) outlives(ctx context.Context) context.Context {
	if c.Mode.NeedsRoom() && c.Writes() {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Peek reports whether an action of one unit would pass, and the present numbers. It charges and
// writes nothing. The errors are those of [Limiter.Allow].
func (l *Limiter) Peek(ctx context.Context, user, action string) (d Decision, err error) {
	if err = l.check(ctx, user, action, 1); err == nil {
		err = l.take(ctx, &Charge{user, action, 1, l.terms[machine.ModePeek]}, &d)
	}
	return d, err
}

// Status returns what is left of every limit for user and action, and the user's ban if the limiter
// has a [BanPolicy]. It charges and writes nothing. The errors are those of [Limiter.Allow].
func (l *Limiter) Status(ctx context.Context, user, action string) (Status, error) {
	if err := l.check(ctx, user, action, 1); err != nil {
		return Status{}, err
	}
	d, r, err := l.look(ctx, user, action)
	if err != nil {
		return Status{}, err
	}
	return l.statusOf(&d, r), nil
}

// look asks the store whether an action of one unit would pass. It also returns the store's record,
// which is nil if the store makes none.
func (l *Limiter) look(ctx context.Context, user, action string) (d Decision, r *Record, err error) {
	if d, r, err = l.store.Take(ctx, Charge{user, action, 1, l.status}); err != nil {
		return Decision{}, nil, err
	}
	d.receipt = nil
	return d, r, nil
}

// allowNothing decides about an action with a cost of 0, which only a ban refuses.
func (l *Limiter) allowNothing(ctx context.Context, user, action string) (Decision, error) {
	d, r, err := l.look(ctx, user, action)
	switch {
	case err != nil || d.Allowed:
	case d.Reason == ReasonBanned:
		if ban := l.statusOf(&d, r).Ban; ban.Banned {
			d.RetryAfter = ban.RetryAfter
		}
	default:
		d.Allowed, d.RetryAfter, d.Reason = true, 0, ""
	}
	return d, err
}

// Surcharge charges up to n units for an action that has already happened, such as a login attempt
// with a wrong password. No limit and no [BanPolicy] refuses it. It takes no slot of [InFlight].
// The Decision has the numbers after the charge.
//
// If a limit has room for less than n units, Surcharge fills the limit up, to the last fraction of
// a unit. It does not extend a full ElasticWindow, and records nothing in a full SlidingWindow with
// CountRefused. If n is less than 1, the error matches [ErrCost].
func (l *Limiter) Surcharge(ctx context.Context, user, action string, n int) (d Decision, err error) {
	if n < 1 {
		return d, errLowCost
	}
	if err = l.check(ctx, user, action, 1); err != nil {
		return d, err
	}
	for left := int64(n); err == nil && left > 0; {
		units := portion(left, int64(n)-left, l.portioned)
		err = l.take(ctx, &Charge{user, action, units, l.terms[machine.ModeForce]}, &d)
		left -= units
	}
	return d, err
}

// portion returns how many units the next call of the store charges. n units of a charge are left,
// and earlier calls have charged the number charged. While charged is less than portioned, the next
// call charges at most mostUnits. Otherwise it charges all n.
func portion(n, charged, portioned int64) int64 {
	if charged < portioned {
		return min(n, mostUnits)
	}
	return n
}

// Reset deletes the states of this limiter's limits for user and action. Each limit then begins as
// for a new user, also for other limiters that share the state. If the store wraps several stores,
// as [Fallback] does, Reset deletes the states in all of them. A ban stays: see [Limiter.Unban].
func (l *Limiter) Reset(ctx context.Context, user, action string) error {
	if err := l.check(ctx, user, action, 1); err != nil {
		return err
	}
	return l.store.Reset(ctx, user, action, l.unbanned())
}

// The errors of a call with invalid arguments.
var (
	ErrNoUser   = errors.New("core: the user is empty")
	ErrNoAction = errors.New("core: the action is empty")
	ErrCost     = errors.New("core: the cost is negative")
)

var (
	errNoContext       = configError("core: the context is nil; pass the request's, or context.Background()")
	errLowCost   error = textError{"core: Surcharge: the cost is less than 1", ErrCost}
	errLargeCost error = textError{"core: a cost above 1,000,000 of a MovingWindow would delay all users; split it, or use FixedWindow, TokenBucket or Funnel", ErrCost}
)
