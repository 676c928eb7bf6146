// Package nethttp limits net/http handlers, and every framework that takes a func(http.Handler) http.Handler,
// such as chi, alice and gorilla.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//	user := keyfuncs.ContextValue(userKey{}) // set by your login, which is mounted outside of the limit
//
//	mux := http.NewServeMux()
//	mux.Handle("POST /posts/{id}/replies",
//		nethttp.Limit(replies, user, keyfuncs.Action("reply"))(http.HandlerFunc(reply)))
//
// Every route says who acts and what they do; there is no default. [Limit] is the short form, [Config] the long
// form. [Allow] limits an action that only the handler knows. Package nethttp/roundtripper limits the calls
// that a program makes to other servers.
//
// # I want to
//
//   - limit by address in one line: [PerIP], also behind proxies
//   - limit users by name, and guests by address: [Limit] with keyfuncs.First
//   - limit a user and their organization: [LimitAll]
//   - lock a login after failures: Config.OnlyFailures; see "Only failures", program examples/login
//   - limit requests in progress, streams and sockets: core.InFlight and [Hold]; see "Requests at the same time"
//   - give each plan its limits: Config.Limiter, or package core/plans; program examples/quota
//   - charge what the handler finds out: [Allow] before the work, [Settle] after it
//   - let requests wait instead of refusing them: Config.MaxWait
//   - answer in another form, or with other headers: Config.Deny, Config.Fail, Config.Headers
//   - mount it right: "Where to mount it"; understand a line of the log: "Warnings"
//
// # Responses
//
// If a limit has decided a request, the response has these headers, whatever its status. Two responses lack
// them: the 503 of an http.TimeoutHandler outside the limit, and what a handler writes to a hijacked
// connection. The headers describe the tightest limit:
//
//	X-RateLimit-Limit        its max or capacity
//	X-RateLimit-Remaining    how many units would still pass
//	X-RateLimit-Reset        when its full quota is available again, in seconds since 1970,
//	                         rounded up; for core.InFlight one second from now, and for a
//	                         core.CalendarWindow the true date
//
// In these cases the handler does not run:
//
//	status  when                                             further headers
//	429     the limit refuses, or the user is banned         Retry-After in whole seconds, rounded up, at most
//	                                                         20 days; absent if the cost is above the quota; during
//	                                                         an outage the quota can be a share, see core.Divide
//	429     the limit is core.Nothing; with                  neither Retry-After nor X-RateLimit-Reset
//	        Config.Forbid the status is 403
//	503     the store has no answer: see core.Fallback       Retry-After: 1; Remaining is 0
//	400     the request does not say who, what or how much   none from this limit
//	500     a key, Cost, Limiter or Skip function failed     none from this limit
//
// The body is problem+json ([RFC 9457]), or what Config.Deny and Config.Fail write. A problem's type
// distinguishes a ban (see core.BanPolicy), too many requests at the same time (see core.InFlight) and an action that
// a plan does not include (see core.Nothing) from others. Its detail has the limit's name and a window's period, and
// of [LimitAll] the action: so give no action a user's data.
//
// Retry-After is at most 20 days, because a timer of JavaScript ends at once if it is longer than 24.8 days, and some
// clients add to the wait. A client that comes back then is told the rest. X-RateLimit-Reset and the problem's detail
// are exact. Without Retry-After a client would take its own short wait.
//
// Cache-Control is no-store. Config.Headers chooses other headers: RateLimit and RateLimit-Policy of an
// [IETF draft], or none.
//
// If a shared cache, such as a CDN, may store what the handler answers (Cache-Control: public or s-maxage), it would
// show the numbers of one user to all others. Limit such a handler with Config{Headers: gate.NoHeaders}. Refusals are
// not stored.
//
// If [core.Shadow] lets a request pass, the headers show what the shadow limits say, for example that nothing
// remains. With [core.Limit.Shadow] they show the enforced limits.
//
// CORS preflights pass uncounted: OPTIONS with Origin and Access-Control-Request-Method, and without
// Authorization, Cookie or a body. Every client can send one. So mount a limit on patterns with a method, or set
// Config.CountPreflights, if the handler does for OPTIONS what is to be limited.
//
// If several Limits surround one handler, the headers show the tightest decision. One limiter with several
// limits is better, because it charges all of them or none. Limits on different kinds of users, such as ids and
// addresses, need different actions: see "By user and by address" in package keyfuncs.
//
// The log has a 503, a 500, a FinalCost that cannot be charged and a slot that cannot be renewed or released,
// each at most once a minute, and keyfuncs.ErrNoRoute once. Of the 400s it has a limit's first one, unless a request
// before it had a user. It has no 503 of a client that has
// disconnected.
//
// # A user and their organization
//
// [LimitAll] decides about both at once, and if one refuses, charges neither:
//
//	perUser := core.Must(core.New(store, core.SlidingWindow(100, time.Minute)))
//	perOrg := core.Must(core.New(store, core.SlidingWindow(1000, time.Minute)))
//	limit := nethttp.LimitAll(
//		nethttp.By(perUser, user, keyfuncs.Action("post")),
//		nethttp.By(perOrg, org, keyfuncs.Action("org-post")))
//
// Use one store for all limiters, and a different action for each. A request without an organization is
// answered 400; with nethttp.By(...).Optional() only the other subjects limit it.
//
// # Costs known at the end
//
// If only the handler knows what its request has cost, such as the tokens of a language model or the rows of an
// export, it calls [Settle], behind a Limit with Config.Settle. What exceeds the quota is then debt: the user
// is refused until it is paid off. The program examples/llmproxy settles streams. Config.FinalCost is for a
// cost that the status tells, such as nothing for a request that the server could not serve. The headers show
// the decision on entry. The slots of [core.InFlight] are released in any case.
//
// Nothing is refunded to a client that has left. A client has left if it has disconnected, if reading the
// request's body failed or was given up, if a deadline has passed that a middleware outside of the limit has set,
// or if the handler panics with http.ErrAbortHandler. If the client has left before the handler had answered with
// success, a status below 400, FinalCost gets the status 499: what the handler answers then, such as the 502 of a
// proxy, is the client's doing. Only a status of 4xx stays.
//
// If the handler panics otherwise, the status is 500 unless the response had begun. If the handler took over the
// connection (http.Hijacker), if FinalCost panics or returns a negative cost, or if the store fails, the cost
// charged on entry stays.
//
// Some final costs let a client send requests without limit. If 304 costs nothing, it sends If-None-Match. If
// 4xx costs nothing, it sends invalid requests. If 5xx costs nothing, it sends requests that make the handler
// fail.
//
// With a FinalCost or OnlyFailures the handler's ResponseWriter and the request's Body are wrapped. The wrapper
// has the method Hijack over HTTP/2 too, where it fails. Mount http.MaxBytesHandler and http.TimeoutHandler
// outside of the limit. Then the body is bounded for key functions too, and the limit knows when the handler
// has returned. With the wrapper, ParseForm refuses forms of more than 10 MB even if http.MaxBytesHandler
// allows more.
//
// A client that repeats a request with the same Idempotency-Key pays once: see the example of Config
// "IdempotencyKey". Do not use Config.Skip for that. Repeats would be free for ever.
//
// # Only failures
//
// With Config.OnlyFailures a request passes if the limits have room for it, and is charged only if it has
// failed. So n failures lock, one after the other or at the same time, and a right attempt does not count. With a
// FinalCost right ones at the same time would use up the limit until they have been checked.
//
// The headers show the decision on entry, which cannot know whether this attempt fails. X-RateLimit-Remaining is the
// least of two numbers: n less the failures before this attempt, and n less the attempts in progress, this one
// included. So of 5 it is 4 with the first failure and with the second one, and 3 with the third.
//
// At most n attempts of a user and action are in progress at a time: of wrong ones that come together fewer
// than 2n reach the handler. Any other is answered 429 with Retry-After: 1, and counts towards no ban. With
// MaxWait it waits for its turn. An attempt is in progress until its handler returns. If an http.TimeoutHandler
// inside the limit returns earlier, more than 2n reach the handler: see "Requests at the same time".
//
// A request whose client has left, as said above, has failed, unless the handler had answered it with success
// before: with a status below 400 that OnlyFailures does not call a failure. So nobody gains by disconnecting
// while a password is checked. A user who disconnects then has one failure, even with the right password. If the
// handler takes over the connection, or OnlyFailures panics, the request has not failed.
//
// OnlyFailures sees the status. A handler that answers failures with 200, as GraphQL does, stores the result in
// the request's context for it, or calls [Allow] with a limiter that has [core.OnlyFailures]: see the example of
// Allow "Login".
//
// # Requests at the same time
//
// With [core.InFlight] a limiter counts requests in progress, alone or beside rate limits:
//
//	streams := core.Must(core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute)))
//	mux.Handle("POST /v1/chat/completions",
//		nethttp.Limit(streams, user, keyfuncs.Action("completion"))(proxy))
//
// A request has its slot until the handler returns or panics, even if the client has disconnected by then. A
// handler that takes over the connection (http.Hijacker) and returns calls [Hold], or its slot is free while
// the connection is still open: see the program examples/websocket.
//
// An http.TimeoutHandler inside the limit returns at its timeout, and when the client disconnects, while the
// handler in it still runs. The limit does not know of that handler: by disconnecting, one client can have any
// number of them run. So mount it outside:
//
//	h = http.TimeoutHandler(nethttp.Limit(streams, user, action)(h), 10*time.Second, "timeout")
//
// If it must be inside, the handler in it keeps the slot, also one of OnlyFailures:
//
//	defer nethttp.Hold(r)()
//
// The slot is renewed while the handler runs, and released before the server ends the response. So a client that
// sends one request after the other needs one slot. The response waits for the release, at most for the store's
// timeout. If the store fails, renewal and release are tried again until the lease ends. If the process dies, the
// slot is free when its lease ends.
//
// A request may enter a limit again: the middleware is mounted twice, or a handler has the mux or the framework
// serve its request again (HandleContext of Gin, the router of Echo). Such a request keeps its one slot, and
// neither waits for it nor is refused by it. Rate limits charge each pass, and the log says charged-twice. A
// handler that makes a new request without the request's context takes another slot.
//
// A cost of n takes n slots. So if Config.Cost counts tokens or bytes, mount two Limits: InFlight without a
// Cost outside, and the rate limit inside. FinalCost and Settle change the charges of rate limits only. With
// Config.MaxWait a request waits for a slot to be released.
//
// Retry-After is 1, because nobody knows when a slot will be released. If a rate limit refuses too, it is that
// limit's. An IETF policy of InFlight has qu="concurrent-requests" in place of w.
//
// # Where to mount it
//
// Mount these outside of Limit:
//
//   - recovery
//   - logging, so that it sees refusals
//   - CORS, so that a browser's script can read a refusal
//   - compression
//   - authentication, if the user comes from it
//   - the mux, if the action is keyfuncs.Route
//   - what answers the probes of the platform, such as /healthz: they have no user, or all the same address, and a
//     server that refuses a liveness probe is restarted
//
// http.TimeoutHandler gives its handler a separate header map, as other middleware that buffers headers does.
// So mount all limits of a route on the same side of it, and if they are outside, do not call [Allow] in its
// handler. Otherwise the inner decision's headers replace the outer's, even if those are tighter.
//
// Before a problem is sent, the headers that describe another body are removed: Content-Type, Content-Length,
// ETag, Last-Modified and Expires. So is Content-Encoding, unless a middleware outside the limit wraps the
// ResponseWriter: that may be compression, which compresses the problem too. Limit itself wraps the
// ResponseWriter only with a FinalCost or OnlyFailures.
//
// If an upload is refused with HTTP/1.1, the server answers and closes the connection, so a client that is
// still sending may see a reset in place of the 429. A client that sends Expect: 100-continue, or uses HTTP/2,
// reads the answer first.
//
// If a backend behind a httputil.ReverseProxy sends rate limit headers too, the client gets both. Delete the
// backend's headers in ModifyResponse:
//
//	for _, name := range nethttp.ExposedHeaders() {
//		if name != "Retry-After" {
//			response.Header.Del(name)
//		}
//	}
//
// # Warnings
//
// Some mistakes make a limit ineffective, or make all users share it, without an error. Each is logged once to
// slog.Default() with a code, in words that say what to do. Those of this package, ginlimit and echolimit:
//
//	never-a-user     The first 100 requests had no user that could be read (1,000 for an optional subject).
//	                 The error says why. Mount the limit inside the login.
//	keyless-request  The first request of a limit had no user or no action and was answered 400. The level is Info,
//	                 since it may be a visitor. If each request is answered so, mount the limit inside the login.
//	never-an-action  The first 100 requests with a user had no action. Use one that every request has.
//	many-actions     A limit has met more than 1,000 actions, each of which has a quota of its own. An
//	                 action must not have a path or an id in it: use Action("reply") or Route.
//	user-with-port   The first five users were addresses with a port, as http.Request.RemoteAddr is.
//	                 Then each connection has its own quota: use keyfuncs.RemoteIP.
//	never-a-failure  The first 1,000 requests that OnlyFailures was asked about were successes by their status. If
//	                 the handler answers failures with 200, see "Only failures". Requests with Authorization are
//	                 left out: a client that sends the right one each time never fails.
//	before-routing   echolimit.Route was asked before Echo had found the route. Do not use e.Pre.
//	charged-twice    The first five requests were charged twice: the inner limit's count was always the
//	                 outer one's, plus the cost. Remove one of two middlewares, or give one of two limiters
//	                 that share a state another action. Not noticed if a third limit outside is tighter, or
//	                 without the headers X-RateLimit. So it is if a Limit and an Allow in its handler charge
//	                 one action. Or a request that had a slot of InFlight entered the
//	                 limit again, which is always noticed.
//	not-included     An action was refused by core.Nothing. The line has the first such action of a middleware, or of
//	                 all calls of Allow. It has the level Info: remove the limit if the action should pass.
//	after-handler    A response was written before the limit of ginlimit decided, so it limits nothing. Give the
//	                 limit before the handler: r.POST(path, limit, handler).
//	refusal-ignored  A handler of Echo has written a response after Allow had answered the request. It is
//	                 not sent, but the handler's action was done: return if the decision is not Allowed.
//	                 For net/http and Gin only go vet can tell: see Allow.
//	hold-too-late    Hold was called after the handler had returned, and the slot is free already.
//	hold-dropped     A handler has dropped what Hold returned without calling it. The slot is released.
//
// These are errors, and each has at most one line a minute:
//
//	not-limited      A request is answered 500, because a function of its limit failed. The error says which.
//	no-answer        The store fails, and requests are answered 503: see core.Fallback.
//	final-cost-lost  The store has not taken a final cost. The request stays charged as on entry.
//	slot-not-freed   A slot could not be renewed or released. It is tried again until the lease has ended.
//
// A log line begins with the name of its package, whose documentation lists its codes: keyfuncs, core,
// redisstore, memorystore, plans, roundtripper.
//
// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
// [IETF draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
package nethttp
