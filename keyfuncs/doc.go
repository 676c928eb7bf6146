// Package keyfuncs reads the user and the action from a request.
//
// A limit counts per user and per action. A [Func] reads one of them. You name both for every
// route, the user first. There is no default:
//
//	user := keyfuncs.ContextValue(userKey{}) // set by your login
//
//	mux.Handle("POST /posts/{id}/replies", nethttp.Limit(replies, user, keyfuncs.Action("reply"))(http.HandlerFunc(reply)))
//	mux.Handle("POST /posts/{id}/likes", nethttp.Limit(likes, user, keyfuncs.Route)(http.HandlerFunc(like)))
//
// Gin and Echo take these functions too: ginlimit.From(user), echolimit.From(user).
//
// # I want to
//
//   - limit users who are logged in: [ContextValue]
//   - limit visitors by address: [RemoteIP], and [ForwardedIP] behind a proxy; see "Which function
//     for which setup"
//   - limit users by id, and visitors by address: [First]
//   - limit all clients together: [Everyone]
//   - name an action: [Action]
//   - make each route an action: [Route]; for Gin ginlimit.Route, for Echo echolimit.Route
//   - lock a login after failures: "Logins"
//   - limit by something else, such as a tenant: "Your own function"
//   - limit a month, a stream or a fleet: "I want to" of package core
//
// A program that swaps user and action usually does not compile, or panics at start-up. But if both
// functions are your own, or come from an adapter's From, from [First] or from [Join], nothing
// detects the mistake.
//
// # Which function for which setup
//
//	Users are known                                  Use
//	your login middleware stores the user's id       ContextValue(key)
//	a gateway authenticates and sets a header        Header(name)
//	an API key, checked before the limit             ContextValue(key) of its owner
//	basic authentication, checked before the limit   BasicAuthUser()
//	users, and visitors who are not logged in        First(ContextValue(key), RemoteIP)
//	per user, and per address too                    two limits: see "By user and by address"
//
//	Users are not known                              Use
//	clients connect to your server directly          RemoteIP
//	your proxies append to X-Forwarded-For,          ForwardedIP(the proxies' prefixes...)
//	  or to Forwarded
//	a CDN in front of your own nginx                 ForwardedIP(the CDN's prefixes, nginx's):
//	                                                 see "Behind a proxy"
//	an edge proxy sets its own header                TrustedHeaderIP(name, the proxy's prefixes...)
//	your nginx connects by a unix socket             ForwardedIP(UnixSocket)
//	a cloud's load balancer                          ForwardedIP(its prefixes...):
//	                                                 see "Behind a proxy"
//	proxies whose prefixes change                    the ForwardedAddr of a Proxies
//	Docker, or a published port of a container       RemoteIP, and the port in host mode:
//	                                                 see "Containers"
//	Kubernetes without an ingress                    RemoteIP, and externalTrafficPolicy: Local:
//	                                                 see "Containers"
//	Kubernetes with an ingress                       ForwardedIP(the pods' prefixes...):
//	                                                 see "Containers"
//	sites that own an IPv6 /56 or /48                three limits: see "Networks of IPv6"
//	a login form                                     two limits: see "Logins"
//	one limit for all clients together               Everyone
//	anything else, such as a tenant                  your own Func
//
// Only use a key that the client cannot choose. If a client can choose its key, each new key gives
// the client a fresh quota, and the client can use up the quota of another user. An API key that
// has not been checked yet is a key that the client can choose.
//
// # By user and by address
//
// Five a minute per user and 100 an hour per address are two limits. Give each its own action.
// Mount the limit per address inside, so that one user's refused requests do not use it up:
//
//	h = nethttp.Limit(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("reply-address"))(h)
//	h = nethttp.Limit(perUser, user, keyfuncs.Action("reply"))(h)
//
// If both had one action, a user who registers as 203.0.113.77 would have the same key as the
// clients at that address. The two limits would share bans. If their kind and period are the same,
// they would also share counts. So any user could get any address banned. A limit or BanPolicy with
// PerUser ignores the action: give each such limiter its own store, and in Redis its own Prefix.
//
// # Behind a proxy
//
// Behind a proxy [RemoteIP] is the proxy's address, so all clients share one limit. The client's
// address is then in a header. Every client can send that header too, so trust it only from your
// proxies. [ForwardedIP] and [TrustedHeaderIP] take the proxies' addresses, and ignore the header
// of any other peer. Use one of them in place of RemoteIP, also inside [First] and [Join].
//
// ForwardedIP reads X-Forwarded-For, and Forwarded ([RFC 7239]). A proxy that writes one of the two
// headers usually passes on the other one as the client has sent it. So have your proxies remove
// the header that they do not write:
//
//	proxy_set_header Forwarded "";
//
// Otherwise a client that sends that header may get 400, until ForwardedIP has learned which header
// your proxies write.
//
// A CDN adds edges. If your list of prefixes is old, all clients of a new edge are limited as one
// client. A [Proxies] has prefixes that the program replaces while it runs. Its example loads the
// list that a CDN publishes.
//
// If a CDN is in front of your own nginx, both append to X-Forwarded-For, and your server's peer is
// the nginx. Trust both: the nginx's address, and the prefixes that the CDN publishes. The example
// "Cdn" of ForwardedIP shows what each request then counts as. In nginx:
//
//	proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
//
// Do not read the CDN's own header, such as CF-Connecting-IP, behind such an nginx. If a client
// connects past the CDN, the nginx passes on what the client wrote there.
//
// Load balancers differ in what they append to X-Forwarded-For, and so in what to trust:
//
//	AWS (ALB)               It appends the client. Trust the subnets of the load balancer.
//	Azure (gateway)         It appends the client and its port. Trust the gateway's subnet.
//	Google (application)    It appends the client, and then its own public address. Trust
//	                        130.211.0.0/22, 35.191.0.0/16 and the address of the forwarding rule.
//	                        Otherwise all clients are limited as one.
//	NetScaler               It appends the client, IPv6 in brackets. Trust its own addresses.
//	nginx on a unix socket  It sends what proxy_set_header says, as above. Trust UnixSocket.
//
// An nginx on the same host that connects by a unix socket has no address. [UnixSocket] trusts it,
// and every other program that may open the socket.
//
// Do not use middleware that copies a header with the client's address into RemoteAddr without a
// check, as chi's RealIP and gorilla's ProxyHeaders do. Each address that a client invents would
// then have its own quota.
//
// [RemoteAddr], [ForwardedAddr] and [TrustedHeaderAddr] return the whole address instead of a key.
// Use them for a list of addresses to let through or to deny: see the example of ForwardedAddr.
//
// # Containers
//
// If clients' packets go through address translation, all clients have the address of the host or
// node that translates. No header has the client's address, so neither RemoteIP nor ForwardedIP can
// know it. Change what is in front of the server:
//
//	docker run -p, with the     Use the host's network (--network host), or disable userland-proxy.
//	  userland proxy            For rootless Docker and Podman, run a proxy on the host, and use
//	                            ForwardedIP.
//	Docker Swarm, published     Publish the port with mode: host instead of the ingress network.
//	  ports
//	Kubernetes, NodePort and    Set externalTrafficPolicy: Local in the Service.
//	  LoadBalancer
//	Kubernetes, an ingress      Set the same in the controller's Service, and use ForwardedIP with
//	  controller                the network of the pods in which the controller runs.
//	a TCP load balancer         Let it keep the source address, or put an HTTP proxy behind it that
//	                            reads the PROXY protocol.
//
// # Addresses
//
// An IPv4 address is one key. For IPv6 the key is the first 64 bits, because one host can use every
// address of a /64. [Subnet] groups larger networks.
//
// Behind NAT64 all IPv4 clients are in one /64. So the key of an address in 64:ff9b::/96 is its
// IPv4 address. If your network uses a different prefix for NAT64, say so as in the example
// "Nat64". Trusted prefixes are compared with the IPv6 address, and not with the IPv4 address in
// it.
//
// # Networks of IPv6
//
// Many sites own more than a /64, so a client can use many networks, each with its own quota. A
// home often has a /56, which is 256 networks of /64, and a company a /48, which is 65,536. A limit
// per /48 alone would make all homes of a /48 one user. So add a higher limit per /56 and per /48.
// nethttp.LimitAll decides all limits together, and charges none if one refuses:
//
//	address := keyfuncs.ForwardedAddr(proxies...)
//	h = nethttp.LimitAll(
//		nethttp.By(perHost, keyfuncs.Subnet{}.Of(address), keyfuncs.Action("search")),
//		nethttp.By(perHome, keyfuncs.Subnet{IPv6: 56}.Of(address), keyfuncs.Action("search-56")),
//		nethttp.By(perSite, keyfuncs.Subnet{IPv6: 48}.Of(address), keyfuncs.Action("search-48")))(h)
//
// For IPv4 all three keys are the address, so the lowest limit binds. Neighbors in a /48 share the
// highest limit. The package's example "NetworksOfIPv6" runs this.
//
// The price is a state for each network, and three decisions for each request. In process that
// takes about three times the time of one decision. On a single Redis server it is still one round
// trip. In a Cluster the three keys are in different slots: see core.All.
//
// # Logins
//
// After five failures from one address, the next attempt locks the account for this address, first
// for 15 minutes and later for longer. An address may have 20 failures in 15 minutes:
//
//	perAccount, err := core.New(store, core.SlidingWindow(5, 15*time.Minute))
//	perAccount, err = perAccount.With(core.BanPolicy{
//		Refusals: 1, Within: time.Minute,
//		Bans: []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour},
//	})
//	perAddress, err := core.New(store, core.SlidingWindow(20, 15*time.Minute))
//	account := func(r *http.Request) (string, error) {
//		if a := accounts.Find(r.PostFormValue("name")); a != nil { // the login's own look-up
//			return a.ID, nil
//		}
//		return "", keyfuncs.ErrNoKey
//	}
//	wrong := func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }
//	limit := nethttp.Config{OnlyFailures: wrong, MaxWait: 10 * time.Second}.LimitAll(
//		nethttp.By(perAccount, keyfuncs.Join(account, keyfuncs.RemoteIP), keyfuncs.Action("login")).Optional(),
//		nethttp.By(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("login-address")))
//
//	h = http.MaxBytesHandler(limit(http.HandlerFunc(login)), 4<<10)
//
// At a login no user is authenticated yet, and anybody can send any name. A limit on the name alone
// lets any client lock the name's owner out. So there are two limits that count only failures: one
// per account and address, and one per address. The program examples/login does this, for net/http
// and Gin, with a form and with JSON.
//
// Right passwords count nothing. After the fifth failure the next attempt is refused and starts the
// lock, even with the right password.
//
// At most five attempts of an account and address are checked at the same time, and 20 of an
// address. With MaxWait, further attempts wait for their turn. In the morning, for example, many
// users of one office log in at the same time. If an attempt has waited for MaxWait, it is answered
// 429 with Retry-After: 1, which starts no lock.
//
// Mount MaxBytesHandler outside of the limit, because the key function reads the body, even if the
// account is locked. Without MaxBytesHandler, a form may have 10 MB, and a multipart form writes
// any number of bytes to the disk. Mount http.TimeoutHandler outside too. If TimeoutHandler is
// inside, more guesses are checked at the same time: see "Only failures" of package nethttp.
//
// The key has the account's ID, so all spellings of a name that the look-up accepts are one
// account. A name that is no account has no key, and only the limit per address decides. If such
// names had keys, one client with a /48 of IPv6 addresses could invent names, lock them, and so
// fill the store, with two keys for each name. A full store refuses new users.
// (memorystore.Options.MaxKeys bounds a store, by default at 1,048,576 keys.)
//
// Because only accounts are locked after five failures, a client may find out which names are
// accounts. The headers show this at the first attempt, unless Config.Headers is gate.NoHeaders.
//
// A third limit, on the failures of everyone together, must not refuse. Otherwise one client with a
// /48 could make thousands of failures and lock everybody out. Give the third limiter the store
// core.Shadow(store). With core/metrics you can set an alert on what it would refuse.
//
// Against guesses from many addresses, limit the failures per account over all addresses. Apply
// this limit only to clients without a signed cookie that the account's last success has set. Then
// the owner is not locked out.
//
// To end a lock, call Limiter.Reset and then Limiter.Unban. In the other order, an attempt between
// the two calls is refused, because the failures still count, and starts the lock again. Pass the
// key of Join as the user, such as alice:203.0.113.9. The package's example "FailedLogins" runs
// this.
//
// A JSON body is read by middleware outside of the limit, as in examples/login, or in the handler.
// If the handler reads it, the key function of the middleware does not know the account. If
// failures are answered with 200, as GraphQL does, the middleware's OnlyFailures counts no failure.
// In both cases give the limiter core.OnlyFailures, and call Allow and Surcharge in the handler or
// resolver: see the example "Login" of nethttp.Allow.
//
// With basic authentication, a Limit outside of the check reads the name, for example with
// Join(BasicAuthUser(), RemoteIP). A browser first sends a request without a name, which the Limit
// answers 400. So mount a handler outside of the Limit that answers a request without a name 401
// with WWW-Authenticate.
//
// # Actions
//
// An action is a name that you give, [Action], or the route's template, [Route]. Do not use the
// path: a client could make up paths and get a new quota with each.
//
// # Your own function
//
// A Func is an ordinary function:
//
//	func tenant(r *http.Request) (string, error) {
//		if s := session(r); s != nil {
//			return s.Tenant, nil
//		}
//		return "", keyfuncs.ErrNoKey
//	}
//
// [Join] makes one key of several. [First] takes the first key that a request has.
//
// # Errors
//
// If a request has no key, the error is [ErrNoKey]. If its key is ambiguous or does not parse, the
// error is [ErrBadKey]. The middleware answers both with 400. Any other error counts as a mistake
// in the program, such as [ErrNoRoute] or a context value of a wrong type, and is answered 500. The
// errors of this package's functions do not contain what the client sent. Arguments that cannot
// work, such as an invalid prefix, panic at start-up.
//
// # Warnings
//
// A setup that looks wrong is logged once to slog.Default() with a code, in words that say what to
// do:
//
//	forwarded-untrusted    A request has a header with the client's address, and nothing checks it:
//	                       X-Forwarded-For, Forwarded, X-Real-IP or True-Client-IP where RemoteIP or
//	                       PerIP limits, or the header of ForwardedIP or TrustedHeaderIP from a peer
//	                       that is not trusted. If one of your proxies sets it, pass the proxy's
//	                       prefixes to ForwardedIP or PerIP. If none does, a client made it up. The
//	                       code is also logged if Header reads one of these headers, because any
//	                       client can then choose its address.
//	trusted-never-matches  1,000 requests had the header, and no peer was ever trusted. Give the
//	                       prefixes from which your proxies connect.
//	one-client             The requests of one client name many addresses to the left of its own in
//	                       the header, about 50 or more. The client may be a proxy or load balancer
//	                       of yours, as with Google's, or an edge of your CDN. If so, trust its
//	                       address too: see "Behind a proxy". The log names the client.
//	one-private-address    The first 500 requests came from one private address, or from up to three
//	                       with many ports, and no header says more. If they are of several clients,
//	                       see "Containers". If one program calls yours, ignore the line.
//	two-clients            A request through trusted proxies was answered 400: X-Forwarded-For and
//	                       Forwarded name different clients, and it is not known which header your
//	                       proxies write. Have them remove the other one: see "Behind a proxy".
//	never-a-user           The first function of a First has found no key in 1,000 requests. The
//	                       error says why. Mount the limit inside the login.
//
// [RFC 7239]: https://www.rfc-editor.org/rfc/rfc7239
package keyfuncs
