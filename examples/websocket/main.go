// Command websocket limits sockets: at most two are open for each user at a time, and each user sends at most five
// messages a second over both. The handler upgrades the connection and returns, and the socket keeps its slot until it
// is closed.
package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const (
	pingEvery   = 30 * time.Second // a client that is gone without a word does not keep its slot
	pingTimeout = 10 * time.Second
)

var user = keyfuncs.Header("X-User-ID") // better: keyfuncs.ContextValue, set by your login

func routes(store core.Store) http.Handler {
	sockets := core.Must(core.New(store, core.InFlight(2)))
	messages := core.Must(core.New(store, core.TokenBucket(5, core.Per(5, time.Second))))
	mux := http.NewServeMux()
	mux.Handle("GET /echo", nethttp.Limit(sockets, user, keyfuncs.Action("socket"))(upgrade(messages)))
	return mux
}

// upgrade opens a socket and returns. Hold keeps the request's slot until the socket is closed.
func upgrade(messages *core.Limiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, _ := user(r) // the limit has read it already
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered
		}
		release := nethttp.Hold(r)
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // the request's ends with the handler
		go func() {
			defer release()
			defer cancel()
			defer conn.CloseNow()
			echo(ctx, conn, messages, name)
		}()
		go ping(ctx, conn)
	}
}

// echo sends back what it reads. It reads no faster than the limit allows: TCP makes a client that sends more wait.
func echo(ctx context.Context, conn *websocket.Conn, messages *core.Limiter, user string) {
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return // the client has closed the socket, or is gone
		}
		if _, err := messages.Wait(ctx, user, "message"); err != nil {
			log.Print(err)
			_ = conn.Close(websocket.StatusTryAgainLater, "the limit cannot be checked at present")
			return
		}
		if conn.Write(ctx, kind, message) != nil {
			return
		}
	}
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

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", routes(memorystore.New(nil)))) }
