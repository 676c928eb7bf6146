package core

// The errors of a configuration and of the arguments of a call.

import (
	"errors"
	"fmt"
)

// ErrConfig matches every error of [New] and [Limiter.With].
var ErrConfig = errors.New("core: bad configuration")

type configError string

func (e configError) Error() string { return string(e) }

func (e configError) Is(target error) bool { return target == ErrConfig }

// badValue makes the error of a value that is out of bounds. The error begins with what has the value.
type badValue func(format string, args ...any) error

// badIn returns the badValue of a limit, or of the call of that name.
func badIn(what any) badValue {
	return func(format string, args ...any) error {
		return configError(fmt.Sprintf("core: %s: %s", what, fmt.Sprintf(format, args...)))
	}
}

// The errors of a call with invalid arguments.
var (
	ErrNoUser   = errors.New("core: the user is empty")
	ErrNoAction = errors.New("core: the action is empty")
	ErrCost     = errors.New("core: the cost is negative")
)

var (
	errZeroLimiter = configError("core: a zero Limiter; make limiters with core.New")
	errNoContext   = configError("core: the context is nil; pass the request's, or context.Background()")
)

var errLargeCost error = costError("core: a cost above 1,000,000 of a MovingWindow would delay all users; split it, or use FixedWindow, TokenBucket or Funnel")

// A costError matches [ErrCost].
type costError string

func (e costError) Error() string { return string(e) }

func (costError) Is(target error) bool { return target == ErrCost }
