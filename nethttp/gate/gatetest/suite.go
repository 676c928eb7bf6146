package gatetest

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

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// An App is what is mounted, in terms of no particular framework.
type App struct {
	Routes   []Route
	Recovers bool // the framework's recovery is outermost
}

// A Route is a route of an App.
type Route struct {
	Method, Path string   // Path as net/http has it; "" is POST /replies/{id}
	Outside      []string // name, value: headers that a middleware further out sets
	Limits       []Limit  // outermost first
	Inside       []Inside // what the handler itself charges before all else, by Allow
	Handler      Handler  // nil writes "done"
	Settles      Settles  // if not nil, it is the handler
	Holds        Holds    // if not nil, it is the handler
}

// A Limit is a Limit around a handler.
type Limit struct {
	Limiter *core.Limiter
	User    keyfuncs.Func   // nil is the header X-User-ID
	Action  keyfuncs.Func   // nil is "reply"
	Routed  bool            // the action is the framework's own Route
	Config  *nethttp.Config // nil is the short form
	Guests  bool            // the subject is Optional
	And     []Limit         // not nil: LimitAll of this and these, of which the Config and Routed are not used
}

// An Inside is a call of Allow in a handler. The handler returns if Allow does not pass, unless it is Ignored.
type Inside struct {
	Limiter      *core.Limiter
	User, Action string
	Cost         int
	Config       *nethttp.Config     // whose method is called; nil is the function
	Decided      func(core.Decision) // is called with what Allow returns
	Ignored      bool                // the handler goes on if Allow does not pass
}

// A Handler answers. kept is the adapter's Decision for the request.
type Handler func(w http.ResponseWriter, r *http.Request, kept func() (core.Decision, bool))

// Settles answers, and settles the request with the adapter's Settle.
type Settles func(w http.ResponseWriter, r *http.Request, settle func(actual int) error)

// Holds answers, and keeps the request's slots with the adapter's Hold.
type Holds func(w http.ResponseWriter, r *http.Request, hold func() (release func()))

// An Adapter is what [Run] tests.
type Adapter struct {
	// Name is the path of the package. Its first part is the Name of the gate.Framework.
	Name string

	// Mount makes a server of an App, whose fields are all set. Templates of routes have a
	// parameter {id}, or :id.
	Mount func(App) http.Handler

	// What the framework cannot do: send a part of the response before the handler returns,
	// hand over the connection, or be asked to by HTTP/2 without a panic.
	NoStreams, NoHijack, HijackPanics bool

	// KeepsWriter says that a handler has a ResponseWriter that Framework.Finish cannot replace.
	KeepsWriter bool

	// Forget lets gate.Allow log again at once. If it is nil, what Allow logs is not tested.
	Forget func()
}

// Run tests adapters by one table: what each answers, by HTTP/1.1 and HTTP/2, what it asks the store,
// and what it logs. An adapter of a framework that has no *http.Request gives the Handler one.
func Run(t *testing.T, adapters ...Adapter) {
	adapters = slices.Clone(adapters)
	for i, ad := range adapters {
		mount := ad.Mount
		adapters[i].Mount = func(a App) http.Handler { return mount(a.Filled()) }
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, []Adapter)
	}{
		{"responses", testResponses},
		{"Allow answers as the limit around it", testAllowAnswersAsTheLimitAroundIt},
		{"what a function of the limit has shown", testShownByAFunction},
		{"a handler ignores that Allow has answered", testIgnoredRefusal},
		{"CORS preflights", testPreflights},
		{"several subjects", testAll},
		{"streaming", testStreaming},
		{"hijack", testHijack},
		{"response controller", testResponseController},
		{"Deny drops the connection", testDenyDropsTheConnection},
		{"Deny with early hints", testDenyWithEarlyHints},
		{"concurrent requests", testConcurrentRequests},
		{"uploads are removed", testUploadsAreRemoved},
		{"a silent body", testASilentBody},
		{"settled costs", testSettle},
		{"settled after the client has left", testSettleAfterTheClientHasLeft},
		{"only failures count", testOnlyFailures},
		{"a proxy on a unix socket", testUnixSocket},
		{"Retry-After is honest", testRetryAfterIsHonest},
		{"the second of Reset", testResetSecond},
		{"a thousand clients come back one by one", testSpread},
		{"MaxWait", testHold},
		{"a held client disconnects", testAHeldClientLeaves},
		{"a slot is free when the handler has returned", testSlotIsReleased},
		{"a slot is taken until a stream or a hijacked connection's handler ends", testSlotOfAStream},
		{"a slot is renewed while the handler runs", testSlotIsRenewed},
		{"a slot is released after an outage", testSlotAfterAnOutage},
		{"a slot is not freed or kept by other requests", testSlotOfAnother},
		{"clients that disconnect around http.TimeoutHandler", testSlotsAroundTimeoutHandler},
		{"a request that enters twice has one slot", testEnteredTwice},
		{"a slot is held after the handler has returned", testHeldSlot},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, adapters) })
	}
}

// pkg is the name of the adapter's package, which starts its messages.
func (ad Adapter) pkg() string {
	pkg, _, _ := strings.Cut(ad.Name, "/")
	return pkg
}

var xUserID = keyfuncs.Header("X-User-ID")

// Filled returns the App with its defaults in place of what is not set.
func (a App) Filled() App {
	a.Routes = slices.Clone(a.Routes)
	for i := range a.Routes {
		rt := &a.Routes[i]
		if rt.Method == "" {
			rt.Method = "POST"
		}
		if rt.Path == "" {
			rt.Path = "/replies/{id}"
		}
		if rt.Handler == nil {
			rt.Handler = done
		}
		rt.Inside = slices.Clone(rt.Inside)
		for j := range rt.Inside {
			if rt.Inside[j].Decided == nil {
				rt.Inside[j].Decided = func(core.Decision) {}
			}
		}
		rt.Limits = slices.Clone(rt.Limits)
		for j := range rt.Limits {
			rt.Limits[j].And = slices.Clone(rt.Limits[j].And)
			rt.Limits[j].fill()
			for k := range rt.Limits[j].And {
				rt.Limits[j].And[k].fill()
			}
		}
	}
	return a
}

func (l *Limit) fill() {
	if l.User == nil {
		l.User = xUserID
	}
	if l.Action == nil {
		l.Action = keyfuncs.Action("reply")
	}
}

func done(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) {
	_, _ = io.WriteString(w, "done")
}

// left waits until the client of r has left, for at most 10 s. If the framework does not cancel the context of r,
// the test does not hang, and fails because of what the handler does.
func left(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(10 * time.Second):
	}
}

// Answers is a store that answers as it is told.
type Answers func(core.Charge) (core.Decision, error)

func (f Answers) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, err := f(c)
	return d, nil, err
}

func (Answers) Reset(context.Context, string, string, []core.Limit) error { return nil }

// Decides is a store with one answer, but for the Limit, which is the binding
// limit's.
func Decides(d core.Decision) func() core.Store {
	return func() core.Store {
		return Answers(func(c core.Charge) (core.Decision, error) {
			d := d
			d.Limit = c.Limits[d.Binding].Quota()
			return d, nil
		})
	}
}

// Fails is a store without an answer.
func Fails(text string) func() core.Store {
	return func() core.Store {
		return Answers(func(core.Charge) (core.Decision, error) { return core.Decision{}, fmt.Errorf("%s", text) })
	}
}

func memory() core.Store { return memorystore.New(nil) }

// charges is what the store was asked, which is what was charged.
func charges(s *Store) (charges []string) {
	for _, c := range s.Charges() {
		peek := ""
		if !c.Writes() {
			peek = " peek"
		}
		// Gin and Echo write their templates in another way.
		action := strings.ReplaceAll(c.Action, ":id", "{id}")
		charges = append(charges, fmt.Sprintf("%s %s %d%s", c.User, action, c.Cost, peek))
	}
	return charges
}

// A Server runs one handler after another on a real connection.
type Server struct {
	*httptest.Server
	Proto   string
	handler atomic.Pointer[http.Handler]
	errors  lockedBuffer // what net/http complains of
}

func (s *Server) Mount(h http.Handler) { s.handler.Store(&h) }

// Serve starts a server for each protocol. When the test ends net/http must have
// had nothing to complain of, such as a second WriteHeader.
func Serve(t *testing.T) []*Server {
	var servers []*Server
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		s := &Server{Proto: proto}
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
