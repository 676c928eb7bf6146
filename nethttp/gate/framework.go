// Package gate is for authors of framework adapters. It turns a request into a decision and a
// decision into a response. Packages nethttp, ginlimit and echolimit are such adapters. To limit
// handlers, use one of those; of this package they need only the constants of [Headers].
//
// An adapter implements [Framework] and makes one [Gate] for each middleware with [New]. For each
// request it calls [Gate.Serve]. Its functions Allow, Decision, Settle and Hold call [Allow], [Decision],
// [Settle] and [Hold]. Package gatetest tests an adapter.
//
// # What an adapter must ensure
//
// Header must return the header that is sent, not a copy: when gate has decided, it reads there what a
// limit further out, or a function of the limit itself, has set, and the handler adds to it. If the
// framework keeps its header in another form, the adapter copies it back before the handler runs and
// before it answers.
//
// Gate leaves a mark for Allow, Decision, Settle and Hold in the context of the request, and nowhere else. So
// Request must return what WithRequest was given last, until the request ends. A framework without
// an *http.Request keeps the one that the adapter makes in its own values of the request.
//
// A store may keep the user and the action. They must not be strings over a buffer that the
// framework uses again for the next request: clone them.
//
// A response has begun if the client may have got a part of it, or if the connection was taken
// over: nothing that is written later replaces it. If the framework keeps the response in memory
// until its chain has returned, it has begun when the handler or a hook has set a status or
// written a body. See [Watched].
//
// With [core.InFlight], Serve releases the request's slot when next returns or panics. So next must
// not return before the handlers have: if the framework streams after its handlers have returned, or
// runs them in another goroutine, next waits for that. A handler that goes on after it has returned calls
// [Hold]. Allow takes a slot that only its caller can release.
package gate

import "net/http"

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
	// calls wrote and returns its error to the handler. [Discarding] does that. If a handler has a
	// ResponseWriter that cannot be replaced, Finish does not do it.
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
