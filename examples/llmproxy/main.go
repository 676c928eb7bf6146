// Command llmproxy is a proxy in front of an LLM API. A customer may have three streams at the same
// time, make 60 requests a minute, and use 100,000 tokens a minute. It knows the APIs /v1/chat/completions,
// /v1/responses and /v1/messages:
//
//	llmproxy -upstream https://llm.example.com -redis 127.0.0.1:6379
//
// Without -upstream, a stand-in streams a word every 200 ms. The fourth of these is refused:
//
//	for i in 1 2 3 4; do
//		curl -N -H 'Authorization: Bearer key-of-alice' -d '{}' http://127.0.0.1:8080/v1/chat/completions &
//	done
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// customers are the keys that customers send. Yours are in a database, as digests.
var customers = map[string]string{"key-of-alice": "alice", "key-of-bob": "bob"}

// customer is the key of the customer's name in the context.
type customer struct{}

func routes(store core.Store, upstream *url.URL, secret string) http.Handler {
	// A stream that takes longer than the lease, a minute, is renewed. If this process dies, its
	// streams are free after a minute.
	streams := core.Must(core.New(store, core.InFlight(3), core.SlidingWindow(60, time.Minute)))
	limit := nethttp.Limit(streams, keyfuncs.ContextValue(customer{}), keyfuncs.Action("completion"))
	mux := http.NewServeMux()
	for path := range caps {
		mux.Handle("POST "+path, login(limit(metered(store, proxy(upstream, secret)))))
	}
	return mux
}

// login finds the customer of a key. It is outside of the limit, or a client could choose who it is.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		name, ok := customers[key]
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "unknown key", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), customer{}, name)))
	})
}

// The headers that pass. Others could bill another organization, or tell the customer of our account.
var (
	toUpstream = []string{"Accept", "Anthropic-Version", "Content-Type"}
	toCustomer = []string{"Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Retry-After", "X-Request-Id"}
)

func only(names []string, of http.Header) http.Header {
	h := http.Header{}
	for _, name := range names {
		if values := of[name]; values != nil {
			h[name] = values
		}
	}
	return h
}

// proxy sends requests on, with our own key in place of the customer's. It flushes each part of a
// stream. If the customer disconnects, the request to the upstream ends, and the slot is free.
func proxy(upstream *url.URL, secret string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = ""
			r.SetURL(upstream)
			r.Out.Header, r.Out.Trailer = only(toUpstream, r.In.Header), nil
			r.Out.Header.Set("Authorization", "Bearer "+secret)
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header = only(toCustomer, resp.Header)
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      rarely,
	}
}

// rarely logs a line a minute. A customer can repeat what fails, such as to hang up.
var rarely = log.New(limited{core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Minute)))}, "", 0)

type limited struct{ lines *core.Limiter }

func (l limited) Write(line []byte) (int, error) {
	if d, _ := l.lines.Allow(context.Background(), "log", "line"); d.Allowed {
		log.Print(string(line))
	}
	return len(line), nil
}

// standIn streams some words, as the API of a model does.
func standIn(pause time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-RateLimit-Remaining", "0") // of our key
		words := strings.Fields(strings.Repeat("the tail is cut and the lizard lives ", 10))
		for _, word := range words {
			_, _ = io.WriteString(w, "data: "+word+"\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
		}
		_, _ = fmt.Fprintf(w, "data: {\"usage\":{\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", len(words))
	})
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "the host:port to listen on")
	api := flag.String("upstream", "", "the URL of the API, whose key is in UPSTREAM_KEY (default: a stand-in)")
	server := flag.String("redis", "", "the host:port of a Redis that several proxies share (default: in this process)")
	flag.Parse()

	store := core.Store(memorystore.New(nil))
	if *server != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *server, ContextTimeoutEnabled: true})
		store = core.Fallback(redisstore.New(rdb, nil), store)
	}
	if *api == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			log.Fatal((&http.Server{Handler: standIn(200 * time.Millisecond), ReadHeaderTimeout: time.Second}).Serve(l))
		}()
		*api = "http://" + l.Addr().String()
	}
	upstream, err := url.Parse(*api)
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Addr: *addr, Handler: routes(store, upstream, os.Getenv("UPSTREAM_KEY")), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(srv.ListenAndServe())
}
