// Command tenant is an API whose tenants may make 10,000 requests a second each, over all of its
// processes together. It does not ask Redis for each request, because Redis decides all requests of one
// tenant in one thread: each process takes some of the tenant's requests in advance, for 50 ms.
//
//	tenant -redis 127.0.0.1:6379 -addr 127.0.0.1:8080 &
//	tenant -redis 127.0.0.1:6379 -addr 127.0.0.1:8081 &
//	curl -i -H 'Authorization: Bearer key-of-acme' 127.0.0.1:8080
//
// Without -redis the tenants' requests are counted in the process.
package main

import (
	"flag"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// tenants are the keys that tenants send. Yours are in a database, as digests.
var tenants = map[string]string{"key-of-acme": "acme", "key-of-globex": "globex"}

// tenant is the key function of the user. A request without a known key is answered 400.
func tenant(r *http.Request) (string, error) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name := tenants[key]; name != "" {
		return name, nil
	}
	return "", keyfuncs.ErrNoKey
}

// limited lets each tenant make 9,500 requests at once and then 10,000 a second. The other 500 that the
// funnel has room for are what it drains in 50 ms, so no lease can exceed what is declared.
func limited(store core.Store, next http.Handler) http.Handler {
	requests := core.Funnel(10_000, core.Per(10_000, time.Second)).Leased(50 * time.Millisecond)
	return nethttp.Limit(core.Must(core.New(store, requests)), tenant, keyfuncs.Action("request"))(next)
}

func api(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) }

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "the host:port to listen on")
	server := flag.String("redis", "", "the host:port of a Redis that all processes share (default: in this process)")
	flag.Parse()

	store := core.Store(memorystore.New(nil))
	if *server != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *server, ContextTimeoutEnabled: true})
		store = core.Fallback(redisstore.New(rdb, nil), store)
	}
	srv := &http.Server{Addr: *addr, Handler: limited(store, http.HandlerFunc(api)), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(srv.ListenAndServe())
}
