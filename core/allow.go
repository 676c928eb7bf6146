package core

// The calls of a limiter about one user and action: from the arguments to the store and back.

import (
	"context"
	"errors"

	"github.com/tailcut/tailcut/core/machine"
)

// Allow reports whether user may do action now. If the action is allowed, Allow charges one unit.
//
// An error means that there is no decision. The error is [ErrNoUser], [ErrNoAction], the error of
// ctx if ctx was done, or the store's error. If a limit is an [InFlight], the call does not end
// with ctx, because it could take a slot that no caller knows of. The store's own timeout ends it.
func (l *Limiter) Allow(ctx context.Context, user, action string) (d Decision, err error) {
	err = l.allow(ctx, user, action, 1, &d)
	return d, err
}

// AllowN is [Limiter.Allow] for an action that costs n units. It charges all of the units or none.
// These costs are special:
//   - Above the quota of a limit: the action is refused with [Never], and nothing is written.
//   - 0: the action is allowed unless the user is banned. The numbers are those of [Limiter.Peek].
//     If Peek would refuse, they come without its RetryAfter and Reason.
//   - Negative: the error is [ErrCost].
//   - Above 1,000,000 and within the quota of a [MovingWindow]: the error is [ErrCost], because
//     writing so many units would delay all users.
func (l *Limiter) AllowN(ctx context.Context, user, action string, n int) (d Decision, err error) {
	err = l.allow(ctx, user, action, n, &d)
	return d, err
}

// allow is AllowN. It fills in d, which a caller returns without a further copy.
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

// check is for the arguments of a call.
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

// take asks the store, and fills in d. If the store returns an error, its decision is ignored.
func (l *Limiter) take(ctx context.Context, c *Charge, d *Decision) (err error) {
	if l.slotWaiters != nil {
		ctx = c.outlives(ctx)
	}
	var r *Record
	// What has just been written is read as it was written: a copy in larger parts would wait for that.
	if *d, r, err = l.store.Take(ctx, Charge{c.User, c.Action, c.Cost, c.Terms}); err != nil {
		*d = Decision{}
	} else if r != nil {
		l.keep(r, nil, d)
	}
	return err
}

// keep makes the record of a charge the receipt of its decision, with a receipt for each subject.
// subjects is nil if the limiter asked about one.
func (l *Limiter) keep(r *Record, subjects []Subject, d *Decision) {
	switch {
	case !d.Allowed || !r.admitted: // a decorator may allow what was refused
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

// outlives returns the context of a charge that takes slots. It does not end with the caller.
// Otherwise slots could be taken that no caller knows of, and they would stay taken until their
// leases end.
func (c *Charge) outlives(ctx context.Context) context.Context {
	if c.Mode.NeedsRoom() && c.Writes() {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Peek reports whether one action would pass, and the present numbers. It charges nothing
// and writes nothing.
func (l *Limiter) Peek(ctx context.Context, user, action string) (d Decision, err error) {
	if err = l.check(ctx, user, action, 1); err == nil {
		err = l.take(ctx, &Charge{user, action, 1, l.terms[machine.ModePeek]}, &d)
	}
	return d, err
}

// Status returns what is left of every limit for user and action, and the ban if there
// is one. It charges and writes nothing. The errors are those of [Limiter.Peek].
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

// look asks the store whether one action would pass, and for the record of that. It may be nil.
func (l *Limiter) look(ctx context.Context, user, action string) (d Decision, r *Record, err error) {
	if d, r, err = l.store.Take(ctx, Charge{user, action, 1, l.status}); err != nil {
		return Decision{}, nil, err
	}
	d.receipt = nil
	return d, r, nil
}

// allowNothing decides a cost of 0, which only a ban refuses.
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

// Surcharge charges up to n units for an action that has already happened, such as a wrong
// password. It is always allowed, ignores a [BanPolicy], and returns the numbers after the charge.
// If a limit has room for less than n units, Surcharge charges what there is room for, down to the
// last fraction of a unit. It does not extend a full ElasticWindow, and records nothing in a full
// SlidingWindow with CountRefused. If n is less than 1, the error matches [ErrCost].
func (l *Limiter) Surcharge(ctx context.Context, user, action string, n int) (d Decision, err error) {
	if n < 1 {
		return d, costError("core: Surcharge: the cost is less than 1")
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

// portion is how many of n units one call charges, if calls before it have charged so many.
func portion(n, charged, portioned int64) int64 {
	if charged < portioned {
		return min(n, mostUnits)
	}
	return n
}

// Reset deletes the state of this limiter's limits for user and action, in every store that may
// keep it. Other limiters that share the state start anew too. A ban stays: see [Limiter.Unban].
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

var errNoContext = configError("core: the context is nil; pass the request's, or context.Background()")

const errLargeCost costError = "core: a cost above 1,000,000 of a MovingWindow would delay all users; split it, or use FixedWindow, TokenBucket or Funnel"

// A costError matches [ErrCost].
type costError string

func (e costError) Error() string { return string(e) }

func (costError) Is(target error) bool { return target == ErrCost }
