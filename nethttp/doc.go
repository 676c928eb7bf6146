// Package nethttp limits net/http handlers, and every framework that takes a func(http.Handler)
// http.Handler, such as chi, alice and gorilla.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//	user := keyfuncs.ContextValue(userKey{}) // the login stores the id there, and is mounted outside
//
//	mux := http.NewServeMux()
//	mux.Handle("POST /posts/{id}/replies",
//		nethttp.Limit(replies, user, keyfuncs.Action("reply"))(http.HandlerFunc(reply)))
//
// You name the user and the action for every route. There is no default.
//
// # I want to
//
//   - limit by address in one line, also behind proxies: [PerIP]
//   - limit users by id, and guests by address: [Limit] with keyfuncs.First
//   - limit a user and their organization: [LimitAll]
//   - lock a login after failures: Config.OnlyFailures, as in examples/login; see "Only failures",
//     and "Logins" of package keyfuncs
//   - limit requests in progress, streams and sockets: core.InFlight, and [Hold]; see "Requests at
//     the same time"
//   - allow 10,000 requests a month, to all routes together: core.CalendarWindow(10_000,
//     core.Month, nil).PerUser()
//   - share limits in a fleet: core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil)); see
//     "When the store fails" of package core
//   - give each plan its limits: Config.Limiter, or package core/plans, as in examples/quota
//   - limit what only the handler knows, such as the size of a batch: [Allow]
//   - charge what a request has cost in the end: [Settle]; see "Costs known at the end"
//   - let requests wait instead of refusing them: Config.MaxWait
//   - answer in another form, or with other headers: Config.Deny, Config.Fail, Config.Headers
//   - know what to mount inside and outside of a limit: "Where to mount it"
//   - understand a line of the log: "Warnings"
//   - limit the calls that a program makes to other servers: package nethttp/roundtripper
//
// # Responses
//
// If a limit has decided a request, the response has these headers, whatever the status of the
// response. The headers describe the tightest limit:
//
//	X-RateLimit-Limit        its max or capacity
//	X-RateLimit-Remaining    how many units would still pass
//	X-RateLimit-Reset        when its full quota is available again, in seconds since 1970,
//	                         rounded up; for core.InFlight and a 503 one second from now, and for
//	                         a core.CalendarWindow the true date
//
// The 503 of an http.TimeoutHandler outside the limit lacks the headers, and so does what a handler
// writes to a hijacked connection. Config.Headers chooses other headers, such as RateLimit and
// RateLimit-Policy of an [IETF draft], or no headers.
//
// In these cases the handler does not run:
//
//	status  when                                             further headers
//	429     the limit refuses, the user is banned, or a      Retry-After, unless the cost is above
//	        memorystore is full                              the quota
//	429     the limit is core.Nothing; with                  neither Retry-After nor
//	        Config.Forbid the status is 403                  X-RateLimit-Reset
//	503     the store has no answer: see core.Fallback       Retry-After: 1; Remaining is 0
//	400     the request does not say who, what or how much   none from this limit
//	500     a key, Cost, Limiter or Skip function failed,    none from this limit
//	        or the program made another mistake
//
// Retry-After is in whole seconds, rounded up, and at most 20 days. The reason for 20 days is that
// a timer of JavaScript ends at once if it is longer than 24.8 days, and that some clients add to
// the wait. If a client comes back after 20 days and must still wait, it is told the remaining
// wait. X-RateLimit-Reset and the problem's detail have no such bound. The detail names the wait in
// its two largest units, such as 3 days 13 hours. Config.SpreadRetryAfter can make the wait longer.
//
// With core.Divide, for example during an outage, the quota is a share of the limit. A cost above
// the share is answered without Retry-After.
//
// The body is problem+json ([RFC 9457]), or what Config.Deny and Config.Fail write. A problem's
// type is different for a ban (core.BanPolicy), for too many requests at the same time
// (core.InFlight) and for an action that a plan does not include (core.Nothing). A problem's detail
// can have the limit's name and a window's period, and with [LimitAll] the action. So do not put a
// user's data into the name of a limit or into an action.
//
// Caches do not store the answers in the table above, because they have Cache-Control: no-store. If
// a CDN may store an allowed response (Cache-Control: public or s-maxage), other users would see
// the numbers of one user. For such a handler set Config.Headers to gate.NoHeaders.
//
// If [core.Shadow] lets a request pass, the headers show what the shadow limits say, for example
// that nothing remains. With [core.Limit.Shadow] the headers show the enforced limits.
//
// If several Limits surround one handler, the headers show the tightest decision. One limiter with
// several limits is better, because it charges all of them or none. Limits on different kinds of
// users, such as ids and addresses, need different actions: see "By user and by address" in package
// keyfuncs.
//
// # CORS preflights
//
// CORS preflights pass uncounted, and any client can send one. A preflight is an OPTIONS request
// with Origin and Access-Control-Request-Method, and without Authorization, Cookie or a body. If a
// handler does the same work for an OPTIONS request, set Config.CountPreflights, or mount the limit
// only on patterns with another method, such as "POST /replies".
//
// # A user and their organization
//
// [LimitAll] decides about the user and the organization at once. If one refuses, neither is
// charged:
//
//	perUser := core.Must(core.New(store, core.SlidingWindow(100, time.Minute)))
//	perOrg := core.Must(core.New(store, core.SlidingWindow(1000, time.Minute)))
//	limit := nethttp.LimitAll(
//		nethttp.By(perUser, user, keyfuncs.Action("post")),
//		nethttp.By(perOrg, org, keyfuncs.Action("org-post")))
//
// Use one store for all limiters, and a different action for each. A request without an
// organization is answered 400. If nethttp.By(...).Optional() makes the subject of the
// organization, only the user's limits decide such a request.
//
// # Costs known at the end
//
// If a request's cost is known only at the end, there are two ways to charge it:
//
//   - If the handler knows the cost, such as the tokens of a language model or the rows of an
//     export, it calls [Settle], behind a Limit with Config.Settle. What exceeds the quota becomes
//     a debt of at most one quota. The user is refused until enough of the debt is paid off. The
//     program examples/llmproxy settles streams.
//   - If the status of the response tells the cost, set Config.FinalCost. For example, a request
//     that the server could not serve can cost nothing.
//
// The headers show the decision on entry. The final cost has no effect on the slots of
// [core.InFlight].
//
// FinalCost refunds nothing to a client that has left. Settle does. In these cases the client has
// left:
//
//   - The server has noticed that the client disconnected.
//   - A read of the request's body failed, or had not returned when the handler ended or closed the
//     body.
//   - A middleware outside of the limit has canceled the request's context, for example by a
//     deadline.
//   - The handler panics with http.ErrAbortHandler.
//
// If the client has left, FinalCost gets the status 499, because the client may have caused what
// the handler answers, such as the 502 of a proxy. In two cases FinalCost gets the handler's status
// instead:
//
//   - The handler had answered with a status below 400 before the client left.
//   - The handler answers 4xx.
//
// If the handler panics with another value than http.ErrAbortHandler, the status counts as 500,
// unless the response had begun. The cost charged on entry stays if the handler took over the
// connection (http.Hijacker), if FinalCost panics or returns a negative cost, or if the store
// fails.
//
// Some final costs let a client send requests without limit. If a 304 costs nothing, the client can
// send If-None-Match. If a 4xx costs nothing, the client can send invalid requests. If a 5xx costs
// nothing, the client can send requests that make the handler fail.
//
// A client that repeats a request with the same Idempotency-Key should pay once: see the example of
// Config "IdempotencyKey". Do not use Config.Skip for that, because all repeats would be free.
//
// # The wrapped ResponseWriter
//
// With Config.FinalCost or Config.OnlyFailures, the limit wraps the handler's ResponseWriter and,
// if the request has a body, its Body:
//
//   - The wrapper has the method Hijack over HTTP/2 too. There Hijack returns an error.
//   - Mount http.MaxBytesHandler and http.TimeoutHandler outside of the limit. Then the body that
//     key functions read is bounded too, and the limit knows when the handler has returned.
//   - ParseForm refuses forms of more than 10 MB, even if http.MaxBytesHandler allows more.
//
// # Only failures
//
// With Config.OnlyFailures a request passes if the limits have room for it. It is charged only if
// it has failed. If the limit is n, a user is refused after n failed attempts, whether these come
// one after the other or at the same time. A right attempt does not count. FinalCost cannot do
// that: several right attempts at the same time would use up the limit while they are being
// checked.
//
// The headers show the decision on entry, when nobody knows whether the attempt will fail.
// X-RateLimit-Remaining is the smaller of two numbers: n minus the failures that still count, and n
// minus the attempts in progress, this one included. With n = 5, five failures one after the other
// show 4, 4, 3, 2 and 1.
//
// At most n attempts of a user and action are in progress at a time. An attempt is in progress
// until its handler returns. A further attempt is answered 429 with Retry-After: 1, and does not
// count towards a ban. With MaxWait it waits for its turn. Of wrong attempts that come together,
// fewer than 2n reach the handler. If an http.TimeoutHandler inside the limit returns before its
// handler, more than 2n can reach the handler: see "Requests at the same time". If the limiter has
// a core.InFlight, the number of its slots, instead of n, bounds the attempts in progress.
//
// If the client has left (see "Costs known at the end"), the request has failed, unless the handler
// had answered with success before the client left. Success is a status below 400 that OnlyFailures
// does not call a failure. So a client gains nothing by disconnecting while a password is checked.
// If a user disconnects during the check, this counts as a failure, even with the right password.
// If the handler takes over the connection, or OnlyFailures panics, the request has not failed.
//
// OnlyFailures gets the status of the response. If a handler answers failures with 200, as GraphQL
// does, there are two ways:
//
//   - The handler stores the result where OnlyFailures reads it. In Gin and Echo the handler calls
//     c.Set. In net/http a middleware outside of the limit puts a pointer into the request's
//     context, and the handler writes to its target.
//   - The handler calls [Allow] with a limiter that has [core.OnlyFailures]: see the example of
//     Allow "Login".
//
// # Requests at the same time
//
// With [core.InFlight] a limiter counts requests in progress, alone or beside rate limits:
//
//	streams := core.Must(core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute)))
//	mux.Handle("POST /v1/chat/completions",
//		nethttp.Limit(streams, user, keyfuncs.Action("completion"))(proxy))
//
// A request keeps its slot until the handler returns or panics, even if the client has disconnected
// earlier. The slot is renewed while the handler runs, and released before the server ends the
// response. So a client that sends one request after the other needs one slot. (If the handler sets
// Content-Length, the client can have the whole body before the slot is released.) The end of the
// response waits for the release, at most for the store's timeout. If the store fails, renewal and
// release are tried again until the lease ends. If the process dies, the slot is free when its
// lease ends.
//
// If a handler takes over the connection (http.Hijacker) and returns while the connection is open,
// it must call [Hold] before it returns. Otherwise the slot is released while the connection is
// open: see examples/websocket.
//
// Mount an http.TimeoutHandler outside of the limit:
//
//	h = http.TimeoutHandler(nethttp.Limit(streams, user, action)(h), 10*time.Second, "timeout")
//
// An http.TimeoutHandler inside the limit returns at its timeout, or when the client disconnects,
// while its handler still runs. The limit then releases the slot, because it does not know that
// this handler still runs. So by disconnecting, one client can have any number of handlers run. If
// the TimeoutHandler must be inside, call Hold first in its handler. Then the slot, also a slot of
// OnlyFailures, stays taken until this handler returns:
//
//	defer nethttp.Hold(r)()
//
// A request may enter a limit twice, for example if the middleware is mounted twice, or if a
// handler has the mux or the framework serve its request again (HandleContext of Gin, the router of
// Echo). Such a request keeps its one slot. It needs further slots only if it costs more in the
// inner limit. Rate limits charge the request each time, and the log warns with the code
// charged-twice. If a handler makes a new request without the request's context, the new request
// takes another slot.
//
// A cost of n takes n slots. So if Config.Cost counts tokens or bytes, mount two Limits. The outer
// Limit has the InFlight and no Cost. The inner Limit has the rate limit and the Cost. FinalCost
// and Settle change the charges of rate limits only. With Config.MaxWait a request waits for a slot
// to be released.
//
// Retry-After is 1, because nobody knows when a slot will be released. If a rate limit refuses too,
// Retry-After is the wait of the rate limit. In RateLimit-Policy an InFlight has
// qu="concurrent-requests" instead of w.
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
//   - the handlers of health checks, such as /healthz: health checks have no user, or all have the
//     same address, and a platform restarts a server that refuses its liveness checks
//
// Some middleware gives its handler a separate header map, as http.TimeoutHandler does. Mount all
// limits of a route on the same side of such middleware. If the limits are outside, do not call
// [Allow] in the handler of such middleware. Otherwise the headers of the inner decision replace
// the headers of the outer decision, even if the outer decision is tighter.
//
// Before a problem is sent, the headers that describe another body are removed: Content-Type,
// Content-Length, ETag, Last-Modified and Expires. Content-Encoding is removed too, unless a
// middleware outside the limit wraps the ResponseWriter. Such a middleware may compress the problem
// too.
//
// If a large upload is refused with HTTP/1.1, the server answers and closes the connection, so a
// client that is still sending may see a reset instead of the 429. A client that sends Expect:
// 100-continue, or uses HTTP/2, can read the 429.
//
// If a backend behind a httputil.ReverseProxy sends rate limit headers too, the client gets both.
// Delete the backend's headers in ModifyResponse:
//
//	for _, name := range nethttp.ExposedHeaders() {
//		if name != "Retry-After" {
//			response.Header.Del(name)
//		}
//	}
//
// # Warnings
//
// A log line begins with the name of the package that logs it. The codes of the packages nethttp,
// ginlimit and echolimit are listed here. Other packages list their codes in their own
// documentation.
//
// Some mistakes make a limit ineffective, or make all users share it, without an error. Each
// mistake is logged to slog.Default() once, by each limit or by the whole process. The log line
// says what to do:
//
//	never-a-user     None of the first 100 requests had a user that could be read (1,000 for an
//	                 optional subject). The error says why. Mount the limit inside the login.
//	keyless-request  The first request of a limit had no user or no action and was answered 400. The
//	                 level is Info, because it may be a visitor. If each request is answered so,
//	                 mount the limit inside the login.
//	never-an-action  None of the first 100 requests with a user had an action. Use an action that
//	                 every request has.
//	many-actions     A limit has met more than 1,000 actions, each of which has a quota of its own.
//	                 An action must not have a path or an id in it: use Action("reply") or Route.
//	user-with-port   The first five users were addresses with a port, as http.Request.RemoteAddr
//	                 is. Then each connection has its own quota: use keyfuncs.RemoteIP.
//	never-a-failure  The first 1,000 requests that OnlyFailures was asked about were successes by
//	                 their status. If the handler answers failures with 200, see "Only failures".
//	                 Requests with Authorization are left out: a client that sends the right one
//	                 each time never fails.
//	before-routing   echolimit.Route was asked before Echo had found the route. Do not use e.Pre.
//	charged-twice    The first five requests were charged twice: by two middlewares, by two limiters
//	                 that share a state, or by a Limit and an Allow in its handler. Remove one of the
//	                 two, or give one another action. The limit sees it by the headers
//	                 X-RateLimit, so it is not noticed without them, or if a third limit outside is
//	                 tighter. If a request that has a slot of InFlight enters the limit again, it is
//	                 noticed without the headers.
//	not-included     An action was refused by core.Nothing. The line has the first such action of a
//	                 middleware, or of all calls of Allow. The level is Info: remove the limit if
//	                 the action should pass.
//	after-handler    A response was written before the limit of ginlimit decided, so it limits
//	                 nothing. Give the limit before the handler: r.POST(path, limit, handler).
//	refusal-ignored  A handler of Echo has written a response after Allow had answered the request.
//	                 What it wrote is not sent, but its action was done: return if the decision is
//	                 not Allowed. For net/http and Gin only go vet can tell: see Allow.
//
// These are errors. Each limit logs at most one line of each code a minute:
//
//	not-limited      A request is answered 500, because a function of its limit failed. The error
//	                 says which. The error keyfuncs.ErrNoRoute is logged once.
//	no-answer        The store fails, and requests are answered 503: see core.Fallback. It is not
//	                 logged for a client that has disconnected.
//	final-cost-lost  A final cost was not charged, because the store, FinalCost or OnlyFailures
//	                 failed, or the cost was negative. The request stays charged as on entry.
//	slot-not-freed   A slot could not be renewed or released. It is tried again until the lease has
//	                 ended.
//	hold-too-late    Hold was called after the handler had returned, and the slot is free already.
//	hold-dropped     A handler has dropped what Hold returned without calling it. The slot is
//	                 released.
//
// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
// [IETF draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
package nethttp
