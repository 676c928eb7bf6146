package gate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What is mounted, in words that belong to no framework. An adapter's mount says
// the same in its own.
type (
	app struct {
		routes   []route
		recovers bool // the framework's recovery is outermost
	}

	route struct {
		method, path string   // path as net/http has it; "" is POST /replies/{id}
		outside      []string // name, value: headers that a middleware further out sets
		limits       []limit  // outermost first
		inside       []inside // what the handler itself charges before all else
		handler      handler  // nil writes "done"
	}

	limit struct {
		limiter *core.Limiter
		user    keyfuncs.Func   // nil is the header X-User-ID
		action  keyfuncs.Func   // nil is "reply"
		routed  bool            // the action is the framework's own Route
		config  *nethttp.Config // nil is the short form
	}

	inside struct {
		limiter      *core.Limiter
		user, action string
		cost         int
		config       *nethttp.Config // whose method is called; nil is the function
	}

	handler func(w http.ResponseWriter, r *http.Request, kept func() (core.Decision, bool))

	adapter struct {
		name  string
		mount func(app) http.Handler
	}
)

var adapters = []adapter{{"nethttp", mountNetHTTP}, {"ginlimit", mountGin}, {"echolimit", mountEcho}, {"echolimit/echov5", mountEchoV5}}

// pkg is the name of the adapter's package, which starts its messages.
func (ad adapter) pkg() string {
	pkg, _, _ := strings.Cut(ad.name, "/")
	return pkg
}

var xUserID = keyfuncs.Header("X-User-ID")

// filled puts the defaults in.
func (a app) filled() app {
	a.routes = slices.Clone(a.routes)
	for i := range a.routes {
		rt := &a.routes[i]
		if rt.method == "" {
			rt.method = "POST"
		}
		if rt.path == "" {
			rt.path = "/replies/{id}"
		}
		if rt.handler == nil {
			rt.handler = done
		}
		rt.limits = slices.Clone(rt.limits)
		for j := range rt.limits {
			l := &rt.limits[j]
			if l.user == nil {
				l.user = xUserID
			}
			if l.action == nil {
				l.action = keyfuncs.Action("reply")
			}
		}
	}
	return a
}

func done(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) {
	_, _ = io.WriteString(w, "done")
}

func mountNetHTTP(a app) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range a.routes {
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, in := range rt.inside {
				allow := nethttp.Allow
				if in.config != nil {
					allow = in.config.Allow
				}
				if !allow(w, r, in.limiter, in.user, in.action, in.cost) {
					return
				}
			}
			rt.handler(w, r, func() (core.Decision, bool) { return nethttp.Decision(r) })
		})
		for _, l := range slices.Backward(rt.limits) {
			action := l.action
			if l.routed {
				action = keyfuncs.Route
			}
			if l.config == nil {
				h = nethttp.Limit(l.limiter, l.user, action)(h)
			} else {
				h = l.config.Limit(l.limiter, l.user, action)(h)
			}
		}
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			if a.recovers {
				defer func() {
					if v := recover(); v != nil {
						w.WriteHeader(http.StatusInternalServerError)
					}
				}()
			}
			set(w.Header(), rt.outside)
			h.ServeHTTP(w, r)
		})
	}
	return mux
}

func mountGin(a app) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	if a.recovers {
		e.Use(gin.RecoveryWithWriter(io.Discard))
	}
	for _, rt := range a.routes {
		chain := []gin.HandlerFunc{func(c *gin.Context) { set(c.Writer.Header(), rt.outside) }}
		for _, l := range rt.limits {
			action := ginlimit.From(l.action)
			if l.routed {
				action = ginlimit.Route
			}
			if l.config == nil {
				chain = append(chain, ginlimit.Limit(l.limiter, ginlimit.From(l.user), action))
			} else {
				chain = append(chain, ginConfig(*l.config).Limit(l.limiter, ginlimit.From(l.user), action))
			}
		}
		chain = append(chain, func(c *gin.Context) {
			for _, in := range rt.inside {
				allow := ginlimit.Allow
				if in.config != nil {
					allow = ginConfig(*in.config).Allow
				}
				if !allow(c, in.limiter, in.user, in.action, in.cost) {
					return
				}
			}
			rt.handler(c.Writer, c.Request, func() (core.Decision, bool) { return ginlimit.Decision(c) })
		})
		path := strings.NewReplacer("{", ":", "}", "").Replace(rt.path)
		e.Handle(rt.method, path, chain...)
		if rt.method == "GET" { // the mux does it by itself
			e.HEAD(path, chain...)
		}
	}
	return e
}

func ginConfig(cfg nethttp.Config) ginlimit.Config {
	g := ginlimit.Config{MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, CountPreflights: cfg.CountPreflights, Keep: cfg.Keep, ResetDelta: cfg.ResetDelta, IETF: cfg.IETF}
	if cfg.Cost != nil {
		g.Cost = func(c *gin.Context) (int, error) { return cfg.Cost(c.Request) }
	}
	if cfg.Limiter != nil {
		g.Limiter = func(c *gin.Context) (*core.Limiter, error) { return cfg.Limiter(c.Request) }
	}
	if cfg.Skip != nil {
		g.Skip = func(c *gin.Context) bool { return cfg.Skip(c.Request) }
	}
	if cfg.FinalCost != nil {
		g.FinalCost = func(c *gin.Context, status int) int { return cfg.FinalCost(c.Request, status) }
	}
	if cfg.Deny != nil {
		g.Deny = func(c *gin.Context, d core.Decision) { cfg.Deny(c.Writer, c.Request, d) }
	}
	if cfg.Fail != nil {
		g.Fail = func(c *gin.Context, err error) { cfg.Fail(c.Writer, c.Request, err) }
	}
	return g
}

func mountEcho(a app) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	if a.recovers {
		// As middleware.Recover does, whose package needs more modules than we do.
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("%v", v)
					}
				}()
				return next(c)
			}
		})
	}
	for _, rt := range a.routes {
		chain := []echo.MiddlewareFunc{func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				set(c.Response().Header(), rt.outside)
				return next(c)
			}
		}}
		for _, l := range rt.limits {
			action := echolimit.From(l.action)
			if l.routed {
				action = echolimit.Route
			}
			if l.config == nil {
				chain = append(chain, echolimit.Limit(l.limiter, echolimit.From(l.user), action))
			} else {
				chain = append(chain, echoConfig(*l.config).Limit(l.limiter, echolimit.From(l.user), action))
			}
		}
		h := func(c echo.Context) error {
			for _, in := range rt.inside {
				allow := echolimit.Allow
				if in.config != nil {
					allow = echoConfig(*in.config).Allow
				}
				if err := allow(c, in.limiter, in.user, in.action, in.cost); err != nil {
					return err
				}
			}
			rt.handler(c.Response(), c.Request(), func() (core.Decision, bool) { return echolimit.Decision(c) })
			return nil
		}
		path := strings.NewReplacer("{", ":", "}", "").Replace(rt.path)
		e.Add(rt.method, path, h, chain...)
		if rt.method == "GET" {
			e.HEAD(path, h, chain...)
		}
	}
	return e
}

func echoConfig(cfg nethttp.Config) echolimit.Config {
	e := echolimit.Config{MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, CountPreflights: cfg.CountPreflights, Keep: cfg.Keep, ResetDelta: cfg.ResetDelta, IETF: cfg.IETF}
	if cfg.Cost != nil {
		e.Cost = func(c echo.Context) (int, error) { return cfg.Cost(c.Request()) }
	}
	if cfg.Limiter != nil {
		e.Limiter = func(c echo.Context) (*core.Limiter, error) { return cfg.Limiter(c.Request()) }
	}
	if cfg.Skip != nil {
		e.Skip = func(c echo.Context) bool { return cfg.Skip(c.Request()) }
	}
	if cfg.FinalCost != nil {
		e.FinalCost = func(c echo.Context, status int) int { return cfg.FinalCost(c.Request(), status) }
	}
	if cfg.Deny != nil {
		e.Deny = func(c echo.Context, d core.Decision) error { cfg.Deny(c.Response(), c.Request(), d); return nil }
	}
	if cfg.Fail != nil {
		e.Fail = func(c echo.Context, err error) error { cfg.Fail(c.Response(), c.Request(), err); return nil }
	}
	return e
}

func set(h http.Header, pairs []string) {
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
}

// answers is a store that answers as it is told.
type answers func(core.Charge) (core.Decision, error)

func (f answers) Take(_ context.Context, c core.Charge) (core.Decision, error) { return f(c) }

func (answers) Reset(context.Context, string, string, []core.Limit) error { return nil }

// decides is a store with one answer, but for the Limit, which is the binding
// limit's.
func decides(d core.Decision) func() core.Store {
	return func() core.Store {
		return answers(func(c core.Charge) (core.Decision, error) {
			d := d
			d.Limit = c.Limits[d.Binding].Quota()
			return d, nil
		})
	}
}

// fails is a store without an answer.
func fails(text string) func() core.Store {
	return func() core.Store {
		return answers(func(core.Charge) (core.Decision, error) { return core.Decision{}, fmt.Errorf("%s", text) })
	}
}

func memory() core.Store { return memorystore.New(nil) }

// charges is what the store was asked, which is what was charged.
func charges(s *gatetest.Store) (charges []string) {
	for _, c := range s.Charges() {
		peek := ""
		if c.Mode == machine.Peek {
			peek = " peek"
		}
		// Gin and Echo write their templates in another way.
		action := strings.ReplaceAll(c.Action, ":id", "{id}")
		charges = append(charges, fmt.Sprintf("%s %s %d%s", c.User, action, c.Cost, peek))
	}
	return charges
}

// A server runs one handler after another on a real connection.
type server struct {
	*httptest.Server
	proto   string
	handler atomic.Pointer[http.Handler]
	errors  lockedBuffer // what net/http complains of
}

func (s *server) mount(h http.Handler) { s.handler.Store(&h) }

// serve starts a server for each protocol. When the test ends net/http must have
// had nothing to complain of, such as a second WriteHeader.
func serve(t *testing.T) []*server {
	var servers []*server
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		s := &server{proto: proto}
		s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Proto != proto {
				t.Errorf("the request came by %s, not %s", r.Proto, proto)
			}
			(*s.handler.Load()).ServeHTTP(w, r)
		}))
		s.Config.ErrorLog = log.New(&s.errors, "", 0)
		if proto == "HTTP/2.0" {
			s.EnableHTTP2 = true
			s.StartTLS()
		} else {
			s.Start()
		}
		client := s.Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client.Transport.(*http.Transport).DisableCompression = true
		t.Cleanup(func() {
			s.Close()
			for said := range strings.Lines(s.errors.String()) {
				// The client may have begun more connections than it then needed.
				if !strings.Contains(said, "TLS handshake error") {
					t.Errorf("%s: net/http complains: %s", proto, said)
				}
			}
		})
		servers = append(servers, s)
	}
	return servers
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// ceil is the first whole second of the Unix clock that is not before t.
func ceil(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}
