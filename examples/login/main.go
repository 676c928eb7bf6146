// Command login limits logins, with a form or JSON, over net/http or, with -gin, over Gin:
//
//	login &
//	curl -i -d 'name=alice&password=secret' 127.0.0.1:8080/login
//	for i in $(seq 6); do curl -i -d 'name=alice&password=guess' 127.0.0.1:8080/login; done
//
// The README says what each part is for.
package main

import (
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

const (
	maxBody = 4 << 10          // bytes
	maxWait = 10 * time.Second // for attempts in progress from the same address; less than the server's WriteTimeout
)

// limits are those of a login. Each counts failures only.
type limits struct{ perAccount, perAddress, all *core.Limiter }

func newLimits(store core.Store) limits {
	perAccount := core.Must(core.New(store, core.SlidingWindow(5, 15*time.Minute)))
	return limits{
		perAccount: core.Must(perAccount.With(core.BanPolicy{
			Refusals: 1, Within: time.Minute,
			Bans: []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour},
		})),
		perAddress: core.Must(core.New(store, core.SlidingWindow(20, 15*time.Minute))),
		// It only alerts: if it refused, one attacker could lock everybody out. core/metrics counts what it would refuse.
		all: core.Must(core.New(core.Shadow(store), core.FixedWindow(1000, time.Minute))),
	}
}

// who is the account that a request names. A name that is no account has no key, and only the limit per address
// decides: with keys, made-up names could fill the store.
func who(r *http.Request) (string, error) {
	if a := attemptOf(r).account; a != nil {
		return a.id, nil
	}
	return "", keyfuncs.ErrNoKey
}

// client is the address of the client. Behind a proxy it is keyfuncs.ForwardedIP.
var client = keyfuncs.RemoteIP

// failed says which answers are failures. A client that leaves before it has an answer has failed too.
func failed(status int) bool { return status == http.StatusUnauthorized }

// routes serves logins with net/http.
func (s *service) routes() http.Handler {
	cfg := nethttp.Config{
		OnlyFailures: func(_ *http.Request, status int) bool { return failed(status) },
		MaxWait:      maxWait,
		Headers:      gate.NoHeaders, // they would show which names are accounts
	}
	limit := cfg.LimitAll(
		nethttp.By(s.limits.perAccount, keyfuncs.Join(who, client), keyfuncs.Action("login")).Optional(),
		nethttp.By(s.limits.perAddress, client, keyfuncs.Action("login-address")))
	alert := cfg.Limit(s.limits.all, keyfuncs.Everyone, keyfuncs.Action("login-all"))
	login := limit(alert(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(s.status(r)) })))

	mux := http.NewServeMux() // a pattern with a method: a CORS preflight is not counted
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r, status := s.read(r); status != 0 {
			w.WriteHeader(status)
		} else {
			login.ServeHTTP(w, r)
		}
	})
	return http.MaxBytesHandler(mux, maxBody)
}

// ginRoutes serves logins with Gin.
func (s *service) ginRoutes() http.Handler {
	cfg := ginlimit.Config{
		OnlyFailures: func(_ *gin.Context, status int) bool { return failed(status) },
		MaxWait:      maxWait,
		Headers:      gate.NoHeaders,
	}
	limit := cfg.LimitAll(
		ginlimit.By(s.limits.perAccount, ginlimit.From(keyfuncs.Join(who, client)), ginlimit.Action("login")).Optional(),
		ginlimit.By(s.limits.perAddress, ginlimit.From(client), ginlimit.Action("login-address")))
	alert := cfg.Limit(s.limits.all, ginlimit.From(keyfuncs.Everyone), ginlimit.Action("login-all"))
	read := func(c *gin.Context) {
		status := 0
		if c.Request, status = s.read(c.Request); status != 0 {
			c.AbortWithStatus(status)
		}
	}

	e := gin.New()
	e.Use(gin.Recovery())
	e.POST("/login", read, limit, alert, func(c *gin.Context) { c.Status(s.status(c.Request)) })
	return http.MaxBytesHandler(e, maxBody)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "the host:port to serve")
	useGin := flag.Bool("gin", false, "serve with Gin")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("login: unknown argument %q; see -h", flag.Arg(0))
	}

	s := &service{
		accounts: accounts{"alice": newAccount("alice", "secret")},
		limits:   newLimits(memorystore.New(nil)), // with room for 1,048,576 keys: see memorystore.Options.MaxKeys
		right:    right,
	}
	h := s.routes()
	if *useGin {
		h = s.ginRoutes()
	}
	server := &http.Server{Addr: *addr, Handler: h, ReadTimeout: 5 * time.Second, WriteTimeout: maxWait + 10*time.Second}
	log.Fatal(server.ListenAndServe())
}
