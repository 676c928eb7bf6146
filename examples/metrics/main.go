// Command metrics serves the routes of a small forum, limited, and /metrics for Prometheus.
//
//	go run . [-addr host:port] [-redis host:port]
//
// See README.md.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/metrics/tailcutprom"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "the `host:port` to listen on")
	redisAddr := flag.String("redis", "", "the `host:port` of a Redis that keeps the limits (default: in this process)")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("metrics: unknown argument %q; see -h", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv := &http.Server{Addr: *addr, Handler: routes(newStore(*redisAddr)), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	log.Printf("the forum is at http://%s, its metrics at http://%[1]s/metrics", *addr)
	if err := srv.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}

// newStore counts in process, or on Redis, and in process while Redis is down.
func newStore(redisAddr string) core.Store {
	memory := memorystore.New(&memorystore.Options{MaxKeys: 1000})
	if redisAddr == "" {
		return memory
	}
	redis.SetLogger(quiet{}) // core.Fallback says once that Redis is down
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	return core.Fallback(redisstore.New(rdb, nil), memory)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

type userKey struct{} // of the user in the context

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

func routes(store core.Store) http.Handler {
	watch := &metrics.Options{RefusedWindow: time.Hour, ExportRefused: 20} // as hashes
	if key := os.Getenv("HASH_KEY"); key != "" {
		watch.HashKey = []byte(key) // the same in all processes
	}
	m := metrics.New(watch)
	registry := prometheus.NewRegistry()
	registry.MustRegister(tailcutprom.Collector(m))
	store = m.Watch(store)

	posts := core.Must(core.New(store, core.TokenBucket(10, core.Every(6*time.Second)), core.FixedWindow(100, 24*time.Hour)))
	replies := core.Must(core.New(store,
		core.SlidingWindow(5, time.Minute),
		core.SlidingWindow(3, time.Minute).Named("three").Shadow())) // would three do?
	replies = core.Must(replies.With(core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{20 * time.Second, time.Minute}}))
	likes := core.Must(core.New(store, core.Funnel(15, core.Per(30, time.Minute))))

	user := keyfuncs.ContextValue(userKey{})
	created := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	held := nethttp.Config{MaxWait: time.Second}
	mux := http.NewServeMux()
	mux.Handle("POST /posts", login(nethttp.Limit(posts, user, keyfuncs.Action("post"))(created)))
	mux.Handle("POST /posts/{id}/replies", login(nethttp.Limit(replies, user, keyfuncs.Action("reply"))(created)))
	mux.Handle("POST /posts/{id}/likes", login(held.Limit(likes, user, keyfuncs.Action("like"))(created)))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}
