package gate

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// An attempt is an action that a request asks for, and what was decided.
type attempt struct {
	adapter      string
	asking       string // what is asked at present, for a failure
	limiter      *core.Limiter
	user, action string
	cost         int

	decision core.Decision
	failure  *Failure // why there is no decision
}

// fail records why there is no decision. It returns false, for a caller that stops then.
func (a *attempt) fail(status int, err error) bool {
	a.failure = &Failure{Status: status, Err: err, adapter: a.adapter, asking: a.asking}
	return false
}

// key reports whether a key can be used.
func (a *attempt) key(key string, err error) bool {
	if err == nil && key == "" {
		err = keyfuncs.ErrNoKey
	}
	return err == nil || a.fail(statusOf(err), err)
}

// charge charges the cost, and waits for the turn for at most that long.
func (a *attempt) charge(ctx context.Context, most time.Duration) {
	a.asking = "cost"
	if a.cost < 0 {
		a.fail(http.StatusInternalServerError, core.ErrCost)
		return
	}
	a.asking = "store"
	var err error
	if most == 0 {
		a.decision, err = a.limiter.AllowN(ctx, a.user, a.action, a.cost)
	} else {
		a.decision, err = a.limiter.WaitFor(ctx, most, a.user, a.action, a.cost)
	}
	switch {
	case err == nil || errors.Is(err, core.ErrRefused):
	case errors.Is(err, core.ErrConfig): // core.New has not made the limiter
		a.asking = "limiter"
		a.fail(http.StatusInternalServerError, err)
	default:
		a.fail(http.StatusServiceUnavailable, err)
	}
}

// statusOf is 400 if the request is at fault, and 500 if the server is.
func statusOf(err error) int {
	if errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// caught is deferred, and makes a panic a failure.
func (a *attempt) caught() {
	if v := recover(); v == http.ErrAbortHandler {
		panic(v)
	} else if v != nil {
		a.fail(http.StatusInternalServerError, panicked(v))
	}
}

// problem is the answer to an attempt that does not pass.
func (a *attempt) problem() Problem {
	if a.failure != nil {
		return a.failure.Problem()
	}
	return refusal(&a.decision)
}
