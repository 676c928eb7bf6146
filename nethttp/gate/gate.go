package gate

// The gate of a middleware, and what an adapter makes it of. Serve is in serve.go.

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

// A Framework is what a gate needs of a framework. C is the framework's request, such as
// *gin.Context. It stands for the response too.
type Framework[C any] interface {
	// Name is the name of the adapter's package, which starts messages.
	Name() string

	// Request returns the request in the form of net/http.
	Request(C) *http.Request

	// WithRequest returns the C of the handlers further in, whose Request is r. It may change
	// and return the given one.
	WithRequest(c C, r *http.Request) C

	// Header returns the header of the response.
	Header(C) http.Header

	// Watch begins to watch the response. It returns the C to use from then on. Before the response gets its
	// status, answers.Now is called, each time if the status can still change. answers may be nil.
	Watch(c C, answers *Answering) (C, Watched)

	// Answer answers a request that does not pass, with the problem. If Deny or Fail has
	// returned an error without answering, err is that error. A framework that has a central
	// error handler returns an error for it. Answer calls ClearBody first.
	Answer(c C, p Problem, err error) error

	// Finish ends the response before Allow returns, if Allow has answered. err is nil, or an error of
	// Answer, Deny or Fail: Finish gives it to the central error handler, if there is one. If a handler got
	// the error and dropped it, the client would not learn of the refusal.
	//
	// Then Finish has the response send nothing more. If a handler writes nevertheless, the framework
	// calls wrote and returns its error to the handler. [Discarding] does that. If the framework's
	// ResponseWriter cannot be replaced, as in Gin, Finish leaves this out.
	Finish(c C, err error, wrote func() error)
}

// Watched is a response that is watched while a hook or the handlers run.
type Watched interface {
	// Answered reports, after Deny, Fail or the handlers, whether they have answered the request: with a
	// status, with a body, or by taking over the connection. Early hints are not an answer.
	Answered() bool

	// Result returns, after the handlers, the status of the response, and whether the response
	// has begun. err is what they returned: if it is answered later, the status is that of the
	// answer. If nothing was written, the status is that with which the framework answers then.
	// It is 0 if the connection was taken over.
	Result(err error) (status int, begun bool)

	// Restore ends the watch.
	Restore()
}

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

// A Gate decides the requests of one middleware.
type Gate[C any] struct {
	framework  Framework[C]
	name       string // of the framework
	subjects   []mounted[C]
	config     Config[C]
	marks      bool    // see Config.marks
	policy     *policy // of the subjects
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
	g.policy, g.formats = newPolicy(limiters), cfg.Headers.set()
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

// A known is a limiter that Config.Limiter has picked or Allow was given, and what is made of it once.
type known struct {
	of, limiter *core.Limiter // as given, and as it decides
	policy      *policy       // of all subjects
	twice       notice.Never  // see noteTwice
}

// knowns keeps what is made of limiters. There is one limiter for each plan, say, so most are kept.
type knowns [64]atomic.Pointer[known]

var limiterSeed = maphash.MakeSeed()

// get returns what is made of a limiter. If it is new, complete completes it.
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

// complete derives a limiter that Config.Limiter has picked for the first subject.
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

// waiting counts the requests that wait or are decided in a middleware with MaxWait.
type waiting struct {
	mu  sync.Mutex
	of  map[[2]string]int // a user and an action
	all int
}

// enter counts a request if its user and action have fewer requests here than places are free. So one user and
// action get at most half of the places, rounded up.
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
