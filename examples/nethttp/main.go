// Command nethttp limits one route of net/http: five replies a minute.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func routes() http.Handler {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	limit := nethttp.Limit(replies, keyfuncs.RemoteIP, keyfuncs.Action("reply"))
	mux := http.NewServeMux()
	mux.Handle("POST /posts/{id}/replies", limit(http.HandlerFunc(reply)))
	return mux
}

func reply(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", routes())) }
