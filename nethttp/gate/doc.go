// Package gate is for authors of framework adapters. It turns a request into a decision and a
// decision into a response. Packages nethttp, ginlimit and echolimit are such adapters. To limit
// handlers, use one of those. From this package a program then needs the constants of [Headers], and [Failure] if it
// has a Fail function.
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
// Gate leaves a mark for Allow, Decision and Settle, and the slot for Hold, in the context of the request, and nowhere
// else. So
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
