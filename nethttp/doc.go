// Package nethttp limits net/http handlers, and every framework that takes a
// func(http.Handler) http.Handler, such as chi, alice and gorilla.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//	user := keyfuncs.Header("X-User-ID") // better: keyfuncs.ContextValue, set by your login
//
//	mux := http.NewServeMux()
//	mux.Handle("POST /posts/{id}/replies",
//		nethttp.Limit(replies, user, keyfuncs.Action("reply"))(http.HandlerFunc(reply)))
//
// Every route says who acts and what they do; there is no default. [Limit] is the
// short form, [Config] the long form. [Allow] limits an action that only the handler knows.
//
// # Responses
//
// If a limit has decided a request, the response has these headers, whatever its status. Two
// responses lack them: the 503 of an http.TimeoutHandler outside the limit, and what a handler
// writes to a hijacked connection. The headers describe the tightest limit:
//
//	X-RateLimit-Limit        its max or capacity
//	X-RateLimit-Remaining    how many units would still pass
//	X-RateLimit-Reset        when its full quota is available again, in seconds since 1970,
//	                         rounded up; for core.InFlight one second from now
//
// In these cases the handler does not run:
//
//	status  when                                             further headers
//	429     the limit refuses, or the user is banned         Retry-After in whole seconds, rounded up;
//	                                                         absent if the cost is above the quota; during
//	                                                         an outage the quota can be a share, see core.Divide
//	503     the store has no answer: see core.Fallback       Retry-After: 1; Remaining is 0
//	400     the request does not say who, what or how much   none from this limit
//	500     a key, Cost, Limiter or Skip function failed     none from this limit
//
// The body is problem+json ([RFC 9457]). Its type distinguishes a ban (see core.BanPolicy) and
// too many requests at the same time (see core.InFlight) from other limits. Cache-Control is
// no-store. Config.Headers chooses other headers: RateLimit and RateLimit-Policy of an [IETF draft],
// 11 at present, or none. Config.SpreadRetryAfter keeps clients that were refused together from
// coming back together.
//
// The middleware logs a 503, a 500, a FinalCost that cannot be charged and a slot that cannot be
// renewed or released, each at most once a minute, and keyfuncs.ErrNoRoute once. It does not log a
// 400, or a 503 for a client that has disconnected.
//
// If [core.Shadow] lets a request pass, the headers show what the shadow limits say, for example
// that nothing remains. With [core.Limit.Shadow] the headers show the enforced limits.
//
// Middleware outside the limit may have set headers for another body. Before the problem is sent,
// Content-Type, Content-Length, ETag, Last-Modified and Expires are removed. So is
// Content-Encoding, unless a middleware outside the limit wraps the ResponseWriter: that may be
// compression, which compresses the problem too.
//
// A refused upload: with HTTP/1.1 the server answers and closes the connection, so a client that is still
// sending a large body may see a reset in place of the 429. A client that sends Expect: 100-continue, or uses
// HTTP/2, reads the answer before it has sent the body.
//
// CORS preflights pass uncounted, and every client can send one. So mount a limit on
// patterns with a method, or set Config.CountPreflights.
//
// If several Limits surround one handler, the headers show the tightest decision. One limiter
// with several limits is better, because it charges all of them or none. Limits on different
// kinds of users, such as ids and addresses, need different actions: see "By user and by address"
// in package keyfuncs.
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
// Use one store for all limiters, and a different action for each, because a user and an organization
// may have the same id. If the limiters have different stores, it panics when it is mounted. A request
// without an organization is answered 400. With nethttp.By(...).Optional() for the organization, its limit is
// left out then. ginlimit and echolimit have the same functions.
//
// # Costs known at the end
//
// If only the handler knows what its request has cost, such as the tokens of a language model or the rows
// of an export, it calls [Settle], behind a Limit with Config.Settle. What exceeds the quota is then debt:
// the user is refused until it is paid off. Config.FinalCost is for a cost that the status tells, such as
// nothing for a request that the server could not serve. It is charged as far as there is room. For logins
// there is Config.OnlyFailures. The program examples/llmproxy settles streams.
//
// # Calls to other servers
//
// Package nethttp/roundtripper limits the calls that a program makes itself, and heeds Retry-After.
//
// # Requests at the same time
//
// With [core.InFlight] a limiter counts requests in progress, alone or beside rate limits:
//
//	streams := core.Must(core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute)))
//	mux.Handle("POST /v1/chat/completions",
//		nethttp.Limit(streams, user, keyfuncs.Action("completion"))(proxy))
//
// A request has its slot until the handler returns or panics, even if the client has disconnected by
// then. A handler that takes over the connection (http.Hijacker) and returns calls [Hold], or its slot is
// free while the connection is still open: see the program examples/websocket. So does the handler inside an
// http.TimeoutHandler, which returns at its timeout while that handler is still running.
//
// A request may enter a limit again: the middleware is mounted twice, or a handler has the mux or the
// framework serve its request again (HandleContext of Gin, the router of Echo). Such a request keeps its one
// slot, and neither waits for it nor is refused by it. Rate limits charge each pass, and the log says
// charged-twice. This needs the request's context: a handler that makes a new request without it takes
// another slot.
//
// If a response takes longer than a third of the lease, a timer renews the slot. If the store has no
// answer, the middleware tries again each second until the lease ends.
//
// The slot is released before the server ends the response, so a client that sends one request after
// the other needs one slot. The release waits for the store, at most for the store's own timeout. If
// it fails, it is tried again in the background at least once a second until the lease ends: a slot taken in
// Redis before an outage is released in Redis after it. At most 10,000 releases of a process are
// tried again at a time. A slot beyond them, and one of a process that dies, is free when its lease
// ends.
//
// A cost of n takes n slots. So if Config.Cost counts tokens or bytes, mount two Limits: InFlight
// without a Cost outside, and the rate limit inside. FinalCost and Settle change the charges of rate
// limits only. With Config.MaxWait a request waits for a slot to be released.
//
// Retry-After is 1, because nobody knows when a slot will be released. If a rate limit refuses too, it is
// that limit's. An IETF policy of InFlight has qu="concurrent-requests" in place of w.
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
//
// http.TimeoutHandler gives its handler a separate header map. So mount all limits of a route on the
// same side of it, and if they are outside, do not call Allow in its handler. Otherwise the inner
// decision's headers replace the outer's, even if those are tighter. With a Config.FinalCost the
// limits must be outside of it. The same is true of other middleware that buffers headers.
//
// Limit wraps the handler's ResponseWriter only with a FinalCost.
//
// If a backend behind a httputil.ReverseProxy sends rate limit headers too, the client
// gets both. Delete the backend's headers in ModifyResponse:
//
//	for _, name := range nethttp.ExposedHeaders() {
//		if name != "Retry-After" {
//			response.Header.Del(name)
//		}
//	}
//
// # Warnings
//
// Some mistakes make a limit ineffective, or make all users share it, without an error.
// Each is logged once to slog.Default() with a code:
//
//	code                   what was seen, and what to do
//	forwarded-untrusted    X-Forwarded-For, Forwarded, X-Real-IP or True-Client-IP on a request that
//	                       keyfuncs.RemoteIP limits, or the header of ForwardedIP or TrustedHeaderIP from
//	                       a peer that is not trusted. If one of your proxies sets it, pass the proxy's
//	                       prefixes to ForwardedIP. If none does, a client made it up. Or keyfuncs.Header
//	                       reads one of these headers, so that any client can choose its address.
//	trusted-never-matches  1,000 requests with the header, and no peer was ever trusted. Give the prefixes
//	                       from which your proxies connect.
//	one-client             1,000 requests through trusted proxies had one client, with other addresses to its
//	                       left in X-Forwarded-For. If the client is a proxy or load balancer of yours, as
//	                       with Google's, trust its address too: see keyfuncs, "Behind a proxy".
//	never-a-user           The first 100 requests had no user, or one that could not be read, or the first
//	                       function of a keyfuncs.First found none in 1,000. The error says why. Mount the
//	                       limit inside the login.
//	never-an-action        The first 100 requests with a user had no action. Use one that every request has,
//	                       such as Action("reply") or Route.
//	many-actions           A limit has met more than 1,000 actions, each of which has a quota of its own. An
//	                       action must not have a path or an id in it: use Action("reply") or Route.
//	user-with-port         The first five users were addresses with a port, as http.Request.RemoteAddr is.
//	                       Then each connection has its own quota: use keyfuncs.RemoteIP.
//	before-routing         echolimit.Route was asked before Echo had found the route. Do not use e.Pre.
//	charged-twice          The first five requests were charged twice: the inner limit's count was always the
//	                       outer one's, plus the cost. The middleware is mounted twice, maybe on a group
//	                       and on a route of it: remove one. Or two limiters share a state: give one of them
//	                       another action. Not noticed if a third limit outside is tighter, or without the
//	                       headers X-RateLimit. Or a request entered a limit of InFlight while it had a slot
//	                       of the same user and action, which is always noticed: see "Requests at the same
//	                       time".
//	refusal-ignored        A handler of Echo has written a response after Allow had answered the
//	                       request. It is not sent, but the handler's action was done: return if the decision
//	                       is not Allowed. The attribute action says which. For net/http and Gin only go vet can
//	                       tell: see Allow.
//	fallback-unused        The first store of a core.Fallback always has an answer, so the second is never
//	                       asked. Give the shared store first.
//	slot-outlived          The lease of a slot of core.InFlight ended, and the slot was neither released nor
//	                       renewed. Call Release when the action has ended. If it takes longer than a lease,
//	                       call Renew, or give the limit a longer Lease.
//	long-wait              A caller of core.Limiter.Wait waits for more than an hour, because its context has
//	                       no deadline. Give it one, or call WaitAll.
//	prefix-colon           redisstore.Options.Prefix ends in a colon, and the store adds one. Leave it out,
//	                       unless there are keys of that name already.
//	store-dropped          A hundred memorystores were made and dropped within an hour. A store that is made
//	                       for each request limits no user: make it and its limiters once, at start-up.
//	redis-evicts           Redis has a bound on its memory and evicts keys. Set maxmemory-policy noeviction.
//	                       The store reads this with INFO, which an ACL must allow (+info).
//	redis-shared-prefix    Two applications have one redisstore.Options.Prefix, and count users and actions of the
//	                       same name together. Give each a prefix, or the same Options.App if that is wanted.
//	redis-no-library       The library of functions cannot be loaded, so scripts run: see package redisstore.
//	redis-foreign-library  Somebody has replaced the library of functions, so scripts run. Find out who may
//	                       use FUNCTION LOAD, and delete the library.
//
// The log also has codes for what happens to a store or a document of plans at run time:
//
//	store-fails            Three calls in a row have failed. The message says what happens until the store
//	                       answers: core.Fallback, core.FailOpen and core.Shadow differ.
//	store-answers          The store answers again, and no call has failed for 5 seconds.
//	store-falters          Some calls fail, but not several in a row. Logged at most once a minute.
//	plans-rejected         A document of plans has an error, which says where. The one before stays in
//	                       force. Correct it. Logged once for each document.
//	plans-not-loaded       The source of a document of plans does not answer, or its file is missing. The
//	                       document in force stays. Logged once until the source answers again.
//	plan-unknown           The program gave a user a plan that the document does not have, and the default
//	                       plan decides. Add the plan to the document. Logged once for each document.
//	redis-panic            The Redis client panicked. Fix the cause and create a new client: the pool of
//	                       the old one may have lost slots. Logged at most once a minute.
//
// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
// [IETF draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
package nethttp
