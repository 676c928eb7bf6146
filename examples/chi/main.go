// Command chi limits routes of a chi router: five replies a minute, fifteen likes at once
// and thirty a minute after that.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func routes() http.Handler {
	store := memorystore.New(nil)
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	likes := core.Must(core.New(store, core.Funnel(15, core.Per(30, time.Minute))))

	r := chi.NewRouter()
	r.With(nethttp.Limit(replies, keyfuncs.RemoteIP, keyfuncs.Action("reply"))).
		Post("/posts/{id}/replies", created)
	// Route needs With or a Group: the middleware of a whole router runs before chi has
	// matched the route.
	r.Group(func(r chi.Router) {
		r.Use(nethttp.Limit(likes, keyfuncs.RemoteIP, keyfuncs.Route))
		r.Post("/posts/{id}/likes", created)
		r.Delete("/posts/{id}/likes", created)
	})
	return r
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", routes())) }
