// Command websocket limits sockets: at most two are open for each user at a time, and each user sends at most five
// messages a second over both. The handler upgrades the connection and returns, and the socket keeps its slot until it
// is closed. Whatever a socket sends is charged by its bytes too, so pings and empty fragments are not free.
package main

import (
	"bufio"
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const (
	longest     = 4 << 10          // bytes of a message
	quota       = 16 << 10         // bytes at once, and then as many a second
	pingEvery   = 30 * time.Second // a client that is gone without a word does not keep its slot
	pingTimeout = 10 * time.Second
)

type userKey struct{} // of the user in the context

var user = keyfuncs.ContextValue(userKey{})

// login stands for your own check of a token or a session. It believes everybody.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer of-")
		if !ok || name == "" {
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

// A server has the sockets that are open.
type server struct {
	stop            context.Context // when it is done, they are closed
	open            sync.WaitGroup
	messages, bytes *core.Limiter
}

func (s *server) routes(store core.Store) http.Handler {
	sockets := core.Must(core.New(store, core.InFlight(2)))
	s.messages = core.Must(core.New(store, core.TokenBucket(5, core.Per(5, time.Second))))
	// Bytes are the work of this process, so it counts them itself.
	s.bytes = core.Must(core.New(memorystore.New(nil), core.TokenBucket(quota, core.Per(quota, time.Second))))
	mux := http.NewServeMux()
	mux.Handle("GET /echo", login(nethttp.Limit(sockets, user, keyfuncs.Action("socket"))(http.HandlerFunc(s.upgrade))))
	return mux
}

// upgrade opens a socket and returns. Hold keeps the request's slot until the socket is closed.
func (s *server) upgrade(w http.ResponseWriter, r *http.Request) {
	s.open.Add(1) // before the connection is taken over: then Shutdown does not wait for it any more
	name, _ := user(r)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // the request's ends with the handler
	charge := func(bytes int) error {
		_, err := s.bytes.WaitN(ctx, name, "bytes", bytes)
		return err
	}
	conn, err := websocket.Accept(charged{w, charge}, r, nil)
	if err != nil {
		cancel()
		s.open.Done()
		return // Accept has answered
	}
	conn.SetReadLimit(longest)
	release := nethttp.Hold(r)
	stopped := context.AfterFunc(s.stop, func() { _ = conn.Close(websocket.StatusGoingAway, "the server stops") })
	go func() {
		defer s.open.Done()
		defer release()
		defer cancel()
		defer stopped()
		defer conn.CloseNow()
		s.echo(ctx, conn, name)
	}()
	go ping(ctx, conn)
}

// echo sends back what it reads. It reads no faster than the limits allow: TCP makes a client that sends more wait.
func (s *server) echo(ctx context.Context, conn *websocket.Conn, user string) {
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return // the client has closed the socket, or is gone
		}
		if _, err := s.messages.Wait(ctx, user, "message"); err != nil {
			complain(err)
			_ = conn.Close(websocket.StatusTryAgainLater, "the limit cannot be checked at present")
			return
		}
		if conn.Write(ctx, kind, message) != nil {
			return
		}
	}
}

// A client can repeat what fails, so the log has a limit too.
var lines = core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Minute)))

func complain(err error) {
	if d, _ := lines.Allow(context.Background(), "log", "no decision"); d.Allowed {
		log.Print(err)
	}
}

// A charged response charges what is read of its connection after the upgrade.
type charged struct {
	http.ResponseWriter
	charge func(bytes int) error
}

func (c charged) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(c.ResponseWriter).Hijack()
	return chargedConn{conn, c.charge}, buffers, err
}

type chargedConn struct {
	net.Conn
	charge func(bytes int) error
}

func (c chargedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), quota)])
	if n > 0 && c.charge(n) != nil {
		return 0, net.ErrClosed
	}
	return n, err
}

// ping closes the socket of a client that does not answer.
func ping(ctx context.Context, conn *websocket.Conn) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pingEvery):
		}
		answered, cancel := context.WithTimeout(ctx, pingTimeout)
		err := conn.Ping(answered)
		cancel()
		if err != nil {
			_ = conn.CloseNow()
			return
		}
	}
}

func main() {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	s := &server{stop: stop}
	srv := &http.Server{Addr: "127.0.0.1:8080", Handler: s.routes(memorystore.New(nil)), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := srv.ListenAndServe(); err != http.ErrServerClosed {
			log.Fatal(err)
		}
	}()
	<-stop.Done()
	_ = srv.Shutdown(context.Background())
	s.open.Wait() // or the slots on a shared Redis would stay taken for their lease, a minute
}
