package gate

// The gate of a middleware, and its settings. Serve is in serve.go.

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Config are the settings of a middleware. The fields are those of nethttp.Config. If Deny and
// Fail return an error, the Framework's Answer gets it if they have not answered the request.
type Config[C any] struct {
	Cost             func(C) (int, error)
	Limiter          func(C) (*core.Limiter, error)
	Skip             func(C) bool
	CountPreflights  bool
	MaxWait          time.Duration
	MaxWaiting       int
	FinalCost        func(c C, status int) int
	OnlyFailures     func(c C, status int) bool
	Settle           bool
	Deny             func(C, core.Decision) error
	Fail             func(C, error) error // the error is a *Failure
	Keep             bool
	Headers          Headers
	SpreadRetryAfter bool
	Forbid           bool
}

// A Subject is a limiter, and the functions of whom and what it limits. The adapters' function By makes it.
type Subject[C any] struct {
	Limiter *core.Limiter
	User    keyfuncs.UserOf[C]
	Action  keyfuncs.ActionOf[C]
	Guests  bool // set by Optional; an adapter that makes a Subject of another C copies it
}

// Optional returns the subject for requests that may have no user: of these the other subjects decide. If
// no subject has a user, the request is answered 400.
func (s Subject[C]) Optional() Subject[C] {
	s.Guests = true
	return s
}

// A Gate decides the requests of one middleware.
type Gate[C any] struct {
	framework  Framework[C]
	name       string // of the framework
	subjects   []mounted[C]
	config     Config[C]
	marks      bool // see Config.marks
	headers    headers
	waiting    waiting
	picks      [64]atomic.Pointer[pick]
	failures   failureLog
	uncharged  rarely // logs that a final cost could not be charged
	unreleased rarely // logs that a slot could not be renewed or released
	twice      suspicion
	right      suspicion   // see noteRight
	entered    notice.Once // warnEntered has logged
}

// A mounted is a Subject of a gate, and what its first requests may show.
type mounted[C any] struct {
	Subject[C]
	userless, actionless, ported suspicion
	actions                      actions
}

const defaultMaxWaiting = 1000

// New makes the gate of a middleware. All subjects are decided together: see core.All. It panics if
// there are none, if a limiter is nil or was not made by core.New, if the limiters have different
// stores, if a key function is nil, or if a field of cfg is out of bounds.
func New[C any](f Framework[C], cfg Config[C], subjects ...Subject[C]) *Gate[C] {
	name := "Limit"
	if len(subjects) != 1 {
		name = "LimitAll"
	}
	fails := func(why string) { panic(f.Name() + ": " + name + ": " + why) }
	if len(subjects) == 0 {
		fails("no subjects; give at least one, such as By(limiter, user, action)")
	}
	for i := range subjects {
		switch s := &subjects[i]; {
		case s.Limiter == nil:
			fails("the limiter is nil; make one with core.New")
		case len(s.Limiter.Limits()) == 0:
			fails("the limiter is empty; make one with core.New")
		case s.User == nil:
			fails("the user's key function is nil; say whom to limit, such as keyfuncs.RemoteIP, or keyfuncs.Everyone for all together")
		case s.Action == nil:
			fails("the action's key function is nil; say what to limit, such as Action(\"reply\") or Route")
		case !subjects[0].Limiter.SharesStore(s.Limiter):
			fails(fmt.Sprintf("the limiters of subjects 0 and %d have different stores; make them with one", i))
		}
	}
	switch {
	case cfg.MaxWait < 0:
		fails(fmt.Sprintf("MaxWait %s is negative; 0 refuses at once", cfg.MaxWait))
	case cfg.Headers.check() != nil:
		fails(cfg.Headers.check().Error())
	case cfg.FinalCost != nil && cfg.Settle:
		fails("FinalCost and Settle are both set; keep Settle if the handler knows the cost, and FinalCost if the status tells it")
	case cfg.OnlyFailures != nil && (cfg.FinalCost != nil || cfg.Settle):
		fails("OnlyFailures is set beside FinalCost or Settle; keep OnlyFailures if what is right costs nothing, as a login does")
	case cfg.MaxWaiting < 0:
		fails(fmt.Sprintf("MaxWaiting %d is negative; 0 is %d", cfg.MaxWaiting, defaultMaxWaiting))
	case cfg.MaxWaiting == 0:
		cfg.MaxWaiting = defaultMaxWaiting
	}
	g := &Gate[C]{framework: f, name: f.Name(), config: cfg, marks: cfg.marks(), waiting: waiting{of: map[[2]string]int{}}}
	var limiters []*core.Limiter
	for _, s := range subjects {
		s.Limiter = core.Must(cfg.derived(s.Limiter))
		g.subjects = append(g.subjects, mounted[C]{Subject: s})
		limiters = append(limiters, s.Limiter)
	}
	g.headers = headers{cfg.Headers.set(), newPolicy(limiters)}
	return g
}

// marks reports whether Allow, Decision, Settle, FinalCost or OnlyFailures needs the mark of a request that was
// decided.
func (cfg *Config[C]) marks() bool {
	return cfg.Deny != nil || cfg.Fail != nil || cfg.Headers != XRateLimit || cfg.SpreadRetryAfter || cfg.Forbid || cfg.Keep || cfg.changes()
}

// changes reports whether the cost charged on entry may change.
func (cfg *Config[C]) changes() bool {
	return cfg.FinalCost != nil || cfg.OnlyFailures != nil || cfg.Settle
}

// derived returns the limiter with what it needs if the cost may change.
func (cfg *Config[C]) derived(l *core.Limiter) (*core.Limiter, error) {
	switch {
	case cfg.OnlyFailures != nil && !isNothing(l): // nothing passes that could fail
		return l.With(core.OnlyFailures{})
	case cfg.changes():
		return l.With(core.Refundable{})
	}
	return l, nil
}

// isNothing reports whether the limiter's limit is core.Nothing.
func isNothing(l *core.Limiter) bool {
	limits := l.Limits()
	return len(limits) == 1 && limits[0].Quota() == 0
}
