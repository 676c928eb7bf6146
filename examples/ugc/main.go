// Command ugc is a small forum with limits on posts, replies and likes. It does the same in
// net/http, Gin and Echo.
//
//	go run ./examples/ugc
//	go run ./examples/ugc -framework gin -addr 127.0.0.1:9090
//	go run ./examples/ugc -redis 127.0.0.1:6379
//
// At / it serves a page that shows the limits at work. It prints commands to try from a
// shell.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// frameworks are the values of -framework.
var frameworks = map[string]framework{
	"nethttp": {"net/http", nethttpRoutes},
	"gin":     {"Gin", ginRoutes},
	"echo":    {"Echo", echoRoutes},
	"echo5":   {"Echo v5", echo5Routes},
}

// A framework serves a site.
type framework struct {
	title  string
	routes func(*site) http.Handler
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2) // the flag package has said why
	case err != nil:
		fmt.Fprintln(os.Stderr, "ugc:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("bad usage")

// run serves until ctx is done, and then until the requests under way are answered.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	opts, err := parse(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	slog.SetDefault(logger)

	redis.SetLogger(quiet{})
	store, end := newStore(ctx, opts.redis)
	defer end()
	kept := "in this process"
	if opts.redis != "" {
		kept = "on Redis"
	}
	fw := frameworks[opts.framework]
	routes := fw.routes(newSite(fw.title, kept, newLimits(observed(store, logger))))
	srv := &http.Server{
		Handler:           served(logger, routes),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelError),
	}
	listener, err := net.Listen("tcp", opts.addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, hints, "http://"+listener.Addr().String(), opts.framework, userHeader)

	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	logger.Info("shutting down")
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.Shutdown(ending); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	return nil
}

// quiet keeps the Redis client from logging each failed connection; core.Fallback
// says once that the store fails.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

type options struct{ framework, addr, redis string }

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("ugc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	opts := options{framework: "nethttp"}
	flags.Func("framework", "the framework's `name`: nethttp, gin, echo or echo5 (default nethttp)", func(s string) error {
		if _, ok := frameworks[s]; !ok {
			return errors.New("it is one of nethttp, gin, echo and echo5")
		}
		opts.framework = s
		return nil
	})
	flags.StringVar(&opts.addr, "addr", "127.0.0.1:8080", "the `host:port` to listen on")
	flags.StringVar(&opts.redis, "redis", "", "the `host:port` of a Redis that several servers share their limits on (default: in this process)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return opts, err
	case err != nil:
		return opts, errUsage
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "ugc takes no arguments, only flags; it was given %q\n", flags.Args())
		flags.Usage()
		return opts, errUsage
	}
	return opts, nil
}

// hints are printed when the server listens: its address, framework, and header.
const hints = `The forum is at %[1]s (%[2]s). Open it in a browser.

Programs get JSON, and users are told apart by %[3]s. Try:

  curl -i %[1]s/posts/1

  # five replies in 60 s: the sixth is refused, and after five refusals there is a ban
  for i in $(seq 11); do curl -i -H '%[3]s: alice' -d '{"text":"reply '$i'"}' %[1]s/posts/1/replies; done

  # fifteen likes at once, then one every 2 s: the sixteenth is refused; what must wait
  # for less than a second waits
  curl -s -o /dev/null -w '%%{http_code}\n' -X POST -H '%[3]s: alice' '%[1]s/posts/1/likes?[1-16]'; sleep 1.2
  curl -s -o /dev/null -w '%%{http_code} after %%{time_total} s\n' -X POST -H '%[3]s: alice' %[1]s/posts/1/likes

  # a new user has three posts, then one every 6 s, and 100 a day: the fourth is
  # refused; one that failed does not count
  for i in 1 2 3 4; do curl -i -H '%[3]s: alice' -d '{"text":"post '$i'"}' %[1]s/posts; done

`

// served bounds and logs the requests, and refuses those that a page of another site sends.
func served(logger *slog.Logger, routes http.Handler) http.Handler {
	return http.MaxBytesHandler(logged(logger, local(http.NewCrossOriginProtection().Handler(routes))), maxBody)
}

// local refuses a request that comes over loopback under another name. By DNS rebinding, a
// page of another site can give its own name a loopback address, and then counts as of the same site.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		host := (&url.URL{Host: r.Host}).Hostname()
		if at != nil && at.IP.IsLoopback() && host != "localhost" && !net.ParseIP(host).IsLoopback() {
			http.Error(w, "the host is not localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// logged logs every answered request, except the polls of open pages.
func logged(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(rec, r)
		if r.URL.Path == "/status" {
			return
		}
		logger.LogAttrs(r.Context(), slog.LevelInfo, "request",
			slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Int("status", rec.status), slog.Duration("took", time.Since(start)))
	})
}

// A recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
