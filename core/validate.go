package core

// The bounds of a limit's numbers, and the errors that name them.

import (
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

const (
	maxSliding  = 10_000
	maxMoving   = 50_000_000 // redisstore keeps 7 bytes an action in a string, of at most 512 MB
	maxCount    = 1_000_000_000
	minPeriod   = time.Millisecond
	maxPeriod   = 365 * 24 * time.Hour
	maxDrain    = 100 * maxPeriod
	maxForget   = 101 * maxPeriod
	forgetGrace = 24 * time.Hour
)

// validate says what is wrong with the limit, in a sentence that names the value
// and the bound.
func (l *Limit) validate() error {
	bad := func(format string, args ...any) error {
		return configError(fmt.Sprintf("core: %s: %s", l, fmt.Sprintf(format, args...)))
	}
	if l.kind == 0 {
		return configError("core: a zero Limit: make limits with SlidingWindow, Funnel or another constructor")
	}
	if err := l.validateQuota(bad); err != nil {
		return err
	}
	if l.windowed() {
		if err := validatePeriod("period", l.period, bad); err != nil {
			return err
		}
	} else {
		if l.rate.n < 1 || l.rate.n > maxCount {
			return bad("the rate's count %d is not within 1 to %d", l.rate.n, maxCount)
		}
		if err := validatePeriod("the rate's period", l.rate.d, bad); err != nil {
			return err
		}
		if l.tooSlow() {
			return bad("the whole capacity takes %d years to drain or fill, and 100 years is the most; raise the rate or lower the capacity", l.rule.Burst.Whole/int64(maxPeriod/time.Microsecond))
		}
	}
	return l.validateModifiers(bad)
}

func (l *Limit) validateQuota(bad func(string, ...any) error) error {
	sliding := l.kind == machine.KindSlidingWindow || l.kind == machine.KindSlidingRefused
	switch {
	case l.burst && (l.max < 1 || l.max > maxCount):
		return bad("maxBurst %d is not within 0 to %d", l.max-1, maxCount-1)
	case l.kind == machine.KindMovingWindow && (l.max < 1 || l.max > maxMoving):
		return bad("max %d is not within 1 to %d", l.max, maxMoving)
	case sliding && l.max > maxSliding:
		return bad("max %d is not within 1 to %d; MovingWindow decides the same and takes up to %d", l.max, maxSliding, maxMoving)
	case sliding && l.max < 1:
		return bad("max %d is not within 1 to %d", l.max, maxSliding)
	case l.windowed() && (l.max < 1 || l.max > maxCount):
		return bad("max %d is not within 1 to %d", l.max, maxCount)
	case l.max < 1 || l.max > maxCount:
		return bad("capacity %d is not within 1 to %d", l.max, maxCount)
	}
	return nil
}

func validatePeriod(what string, d time.Duration, bad func(string, ...any) error) error {
	switch {
	case d < minPeriod || d > maxPeriod:
		return bad("%s %s is not within %s to 365 days", what, d, minPeriod)
	case d%time.Microsecond != 0:
		return bad("%s %s is not in whole microseconds", what, d)
	}
	return nil
}

func (l *Limit) validateModifiers(bad func(string, ...any) error) error {
	empty := micros(l.rule.Burst.Ceil())
	switch {
	case l.mods&modRefused != 0 && l.kind != machine.KindSlidingRefused:
		return bad("CountRefused applies to SlidingWindow only")
	case l.mods&modInitial != 0 && l.kind != machine.KindTokenBucket:
		return bad("Initial applies to TokenBucket only")
	case l.mods&modForget != 0 && l.kind != machine.KindTokenBucket:
		return bad("ForgetAfter applies to TokenBucket only")
	case l.mods&modForget != 0 && l.mods&modInitial == 0:
		return bad("ForgetAfter needs Initial: a bucket that starts full is forgotten when it is full")
	case l.mods&modInitial != 0 && (l.initial < 1 || l.initial > l.max):
		return bad("initial tokens %d are not within 1 to the capacity %d", l.initial, l.max)
	case l.mods&modForget != 0 && (l.forget < empty || l.forget > maxForget):
		return bad("ForgetAfter %s is not within %s, the time from empty to full, to 101 years", l.forget, empty)
	case l.mods&modForget != 0 && l.forget%time.Microsecond != 0:
		return bad("ForgetAfter %s is not in whole microseconds", l.forget)
	case l.mods&modName != 0 && !validName(l.name):
		return bad("a name is 1 to 64 letters, digits, dots, underscores or dashes")
	}
	return nil
}

func validName(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
