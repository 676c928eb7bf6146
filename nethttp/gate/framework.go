package gate

// What a gate needs of a framework.

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
