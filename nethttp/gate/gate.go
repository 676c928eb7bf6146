package gate

// This file has a Gate, and what an adapter makes it of. Its method Serve is in serve.go.

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
)

// A Framework is what a gate needs to know of a framework. C is the type of the framework's
// requests, such as *gin.Context. A C gives access to the response too.
type Framework[C any] interface {
	// Name returns the name of the adapter's package. Messages start with it.
	Name() string

	// Request returns the request as an *http.Request.
	Request(C) *http.Request

	// WithRequest returns a C for the handlers behind the limit. Its request is r. WithRequest may
	// change c and return it.
	WithRequest(c C, r *http.Request) C

	// Header returns the header of the response.
	Header(C) http.Header

	// Watch begins to watch the response, and returns the C to use from then on. The watch calls
	// answers.Now before the response gets its status. If the status can change afterwards, it
	// calls Now before each change. answers may be nil.
	Watch(c C, answers *Answering) (C, Watched)

	// Answer answers a request that does not pass, with the problem p. If Deny or Fail has returned
	// an error and has not answered, err is that error. If the framework has a central error
	// handler, Answer returns an error for it. Answer calls [ClearBody] before it writes the
	// problem.
	Answer(c C, p Problem, err error) error

	// Finish ends the response after Allow has answered, and before Allow returns. err is nil, or
	// the error of Answer, Deny or Fail. If the framework has a central error handler, Finish gives
	// err to it. If a handler got the error instead and dropped it, the client would not learn of
	// the refusal.
	//
	// From then on the response should send nothing more. If a handler writes, the framework calls
	// the argument wrote, and returns the error of wrote to the handler: see [Discarding]. If the
	// framework cannot replace the handler's ResponseWriter, as in net/http and Gin, Finish does
	// nothing about writes.
	Finish(c C, err error, wrote func() error)
}

// A Watched is a response that is watched while Deny, Fail or the handlers run.
type Watched interface {
	// Answered is called after Deny, Fail or the handlers. It reports whether they have answered
	// the request: with a status, with a body, or by taking over the connection. Early hints are
	// not an answer.
	Answered() bool

	// Result is called after the handlers. err is the error that they returned. Result returns the
	// status of the response, and whether the response has begun:
	//
	//   - If the framework answers err later, the status is that of this answer.
	//   - If nothing was written, the status is that with which the framework then answers.
	//   - If the connection was taken over, the status is 0.
	Result(err error) (status int, begun bool)

	// Restore ends the watch.
	Restore()
}

// Config has the settings of a middleware. The fields are those of nethttp.Config. If Deny or Fail
// returns an error and has not answered the request, the Framework's Answer gets the error.
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

// A Gate decides the requests of one middleware.
type Gate[C any] struct {
	framework  Framework[C]
	name       string // Framework.Name
	subjects   []mounted[C]
	config     Config[C]
	marks      bool    // see Config.marks
	policy     *policy // of the limiters of all subjects
	formats    set
	waiting    waiting
	picks      knowns
	failures   failureLog
	uncharged  rarely       // logs that a final cost could not be charged
	unreleased rarely       // logs that a slot could not be renewed or released
	twice      notice.Never // see noteTwice
	right      notice.Never // see noteRight
	entered    notice.Once  // warnEntered has logged
}

const defaultMaxWaiting = 1000

// New makes the gate of a middleware. Each request is decided by all subjects together, as by
// core.All. A subject that is Optional does not decide a request without its user. New panics in
// these cases:
//
//   - There are no subjects.
//   - A limiter is nil, or was not made by core.New.
//   - The limiters have different stores.
//   - A key function is nil.
//   - A field of cfg is out of bounds, or two fields exclude each other.
//   - The store cannot do what cfg needs, such as OnlyFailures.
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
	g.policy, g.formats = newPolicy(limiters), sets[cfg.Headers]
	return g
}

// marks reports whether cfg has a setting that needs the mark of a decided request. Such a setting
// changes the cost, or is read later by a handler's Allow or Decision.
func (cfg *Config[C]) marks() bool {
	return cfg.Deny != nil || cfg.Fail != nil || cfg.Headers != XRateLimit || cfg.SpreadRetryAfter || cfg.Forbid || cfg.Keep || cfg.changes()
}

// changes reports whether the cost that was charged on entry may change.
func (cfg *Config[C]) changes() bool {
	return cfg.FinalCost != nil || cfg.OnlyFailures != nil || cfg.Settle
}

// derived returns l, or a limiter made of l that can do what cfg needs to change the cost later.
func (cfg *Config[C]) derived(l *core.Limiter) (*core.Limiter, error) {
	switch {
	case cfg.OnlyFailures != nil && !isNothing(l): // core.Nothing lets no action pass that could fail
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

// A known is a limiter that Config.Limiter has picked or that Allow was given, and what the gate
// has made of it, to use again.
type known struct {
	of, limiter *core.Limiter // the limiter as given, and as it decides
	policy      *policy       // of all subjects
	twice       notice.Never  // see noteTwice
}

// knowns is a cache. Most programs have one limiter for each plan, so nearly all of them fit.
type knowns [64]atomic.Pointer[known]

var limiterSeed = maphash.MakeSeed()

// get returns the known of a limiter. If the cache does not have it, complete fills in a new one.
func (ks *knowns) get(l *core.Limiter, complete func(*known) error) (*known, error) {
	at := &ks[maphash.Comparable(limiterSeed, l)%uint64(len(ks))]
	if k := at.Load(); k != nil && k.of == l {
		return k, nil
	}
	k := &known{of: l, limiter: l}
	if err := complete(k); err != nil {
		return nil, err
	}
	at.Store(k)
	return k, nil
}

// complete fills in the known of a limiter that Config.Limiter has picked for the first subject.
func (g *Gate[C]) complete(k *known) (err error) {
	if k.limiter, err = g.config.derived(k.of); err == nil {
		limiters := []*core.Limiter{k.limiter}
		for i := range g.subjects[1:] {
			limiters = append(limiters, g.subjects[1+i].Limiter)
		}
		k.policy = newPolicy(limiters)
	}
	return err
}

// waiting counts the requests of a middleware with MaxWait that wait or are decided.
type waiting struct {
	mu  sync.Mutex
	of  map[[2]string]int // the requests of a user and an action
	all int
}

// enter reports whether a request may wait, and counts it if so. places is the greatest number of
// requests that are counted at a time. If n of them have this user and action, the request may wait
// if more than n places are free. So one user and action get at most half of the places, rounded
// up.
func (w *waiting) enter(user, action string, places int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]string{user, action}
	if w.of[key] >= places-w.all {
		return false
	}
	w.of[key]++
	w.all++
	return true
}

func (w *waiting) leave(user, action string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]string{user, action}
	w.all--
	if w.of[key]--; w.of[key] == 0 {
		delete(w.of, key)
	}
}
