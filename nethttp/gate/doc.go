// Package gate is for authors of framework adapters. It turns a request into a decision and a
// decision into a response. Packages nethttp, ginlimit and echolimit are such adapters.
//
// To limit handlers, use one of those packages. From this package a program then needs little, such
// as the constants of [Headers], or [Failure] if it has a Fail function.
//
// An adapter implements [Framework] and makes one [Gate] for each middleware with [New]. For each
// request it calls [Gate.Serve]. Its functions Allow, Decision, Settle and Hold call [Allow],
// [Decision], [Settle] and [Hold]. Package gatetest tests an adapter.
//
// # What an adapter must ensure
//
// Header returns the header that is sent, not a copy. Gate reads the headers that a limit further
// out, or a function of the limit itself, has set. The handler adds its own headers. If the
// framework keeps its header in another form, the adapter copies it back before the handler runs
// and before the adapter answers.
//
// Request returns what WithRequest was given last, until the request ends. Gate keeps what Allow,
// Decision, Settle and Hold need in the context of that request. If the framework has no
// *http.Request, the adapter makes one and keeps it in the framework's own values of the request.
//
// The user and the action must not be strings over a buffer that the framework uses again for the
// next request, because a store may keep them. Clone such strings.
//
// A response has begun if the client may have got a part of it, or if the connection was taken
// over. Nothing that is written later replaces it. If the framework keeps the response in memory
// until its chain has returned, the response has begun when the handler or a hook has set a status
// or written a body. See [Watched].
//
// With [core.InFlight], Serve releases the request's slot when next returns or panics, unless
// [Hold] keeps it. So next must not return before the handlers have returned. If the framework
// streams after that, or runs its handlers in another goroutine, next waits for them. If the work
// of a handler goes on after the handler has returned, the handler calls [Hold] before it returns.
// If a handler takes a slot by [Allow], it must release the slot itself.
package gate
