package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// slowCredentials are a StreamingCredentialsProvider.
type slowCredentials func()

func (wait slowCredentials) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	wait()
	return auth.NewBasicCredentials("default", ""), func() error { return nil }, nil
}

// What a client does before it sends, and its own code in between, count too, also if a caller
// could send its own call. A hook must then heed the deadline.
func TestTimeoutHoldsWhateverTheClientRuns(t *testing.T) {
	server := redistest.Start(t)
	var hangs atomic.Bool
	slow := make(chan struct{})
	t.Cleanup(func() { close(slow) })
	wait := func() {
		if hangs.Load() {
			hang(slow)
		}
	}
	for name, o := range map[string]redis.Options{
		"OnConnect":           {OnConnect: func(context.Context, *redis.Conn) error { wait(); return nil }},
		"CredentialsProvider": {CredentialsProvider: func() (string, string) { wait(); return "", "" }},
		"CredentialsProviderContext": {CredentialsProviderContext: func(context.Context) (string, string, error) {
			wait()
			return "", "", nil
		}},
		"StreamingCredentialsProvider": {StreamingCredentialsProvider: slowCredentials(wait)},
		"Dialer": {Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
			wait()
			return net.Dial(network, addr)
		}},
		"hook": {},
	} {
		for _, heeds := range []bool{false, true} {
			if name == "hook" && heeds {
				continue
			}
			t.Run(fmt.Sprintf("%s, ContextTimeoutEnabled %t", name, heeds), func(t *testing.T) {
				hangs.Store(false)
				o.Addr, o.ContextTimeoutEnabled = server.Addr, heeds
				rdb := redis.NewClient(&o)
				if name == "hook" {
					rdb.AddHook(before(func(redis.Cmder) error { wait(); return nil }))
				}
				if _, err := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: patient, NoFunctions: true}), plenty)).Allow(t.Context(), user, action); err != nil {
					t.Fatal(err)
				}
				lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{NoFunctions: true}), plenty)) // so that nothing opens another connection
				within(t, "it answers", func() bool { _, err := lim.Allow(t.Context(), user, action); return err == nil })
				if err := rdb.Conn().Ping(t.Context()).Err(); err != nil { // holds the only connection
					t.Fatal(err)
				}
				hangs.Store(true)
				start := time.Now()
				if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) {
					t.Errorf("%v, not ErrTimeout", err)
				}
				if took := time.Since(start); took > 50*time.Millisecond+slack {
					t.Errorf("it took %s", took)
				}
			})
		}
	}
}

// Everybody has the whole timeout and no more, sent or not, whoever came before.
func TestEachCallHasItsOwnTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rdb, hangUp := mute()
		store := redisstore.New(rdb, &redisstore.Options{Timeout: time.Second})
		lim := core.Must(core.New(store, plenty))
		r := rand.New(rand.NewPCG(5, 6))
		var callers sync.WaitGroup
		for range 500 {
			time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
			if r.IntN(50) == 0 {
				time.Sleep(3 * time.Second) // nobody is there
			}
			stays, want := 2*time.Second, redisstore.ErrTimeout
			if r.IntN(4) == 0 {
				stays, want = time.Duration(1+r.IntN(999))*time.Millisecond, context.DeadlineExceeded
			}
			ask := func(ctx context.Context) error { return lim.Reset(ctx, user, action) } // goes alone
			if r.IntN(3) > 0 {
				ask = func(ctx context.Context) error { _, err := lim.Peek(ctx, user, action); return err }
			}
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), stays)
				defer cancel()
				start := time.Now()
				err := ask(ctx)
				if took := time.Since(start); took != min(stays, time.Second) || !errors.Is(err, want) {
					t.Errorf("after %s: %v; %v was to be after %s", took, err, want, min(stays, time.Second))
				}
			})
		}
		callers.Wait()
		time.Sleep(10 * time.Second)
		if n, _ := store.Calls(); n != 0 {
			t.Errorf("%d calls wait", n)
		}
		hangUp()
	})
}

type limiter func()

func (l limiter) Allow() error     { l(); return nil }
func (limiter) ReportResult(error) {}

// The user's own circuit breaker is held to the timeout too, also if a caller could send its
// own call.
func TestTimeoutHoldsForClientsLimiter(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	for _, heeds := range []bool{false, true} {
		var hangs atomic.Bool
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		wait := func() {
			if hangs.Load() {
				hang(release)
			}
		}
		rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: heeds, Limiter: limiter(wait)})
		store := redisstore.New(rdb, nil)
		lim := core.Must(core.New(store, kinds[0]))
		works := func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil }
		within(t, "it works", works)
		idle(t, store)
		hangs.Store(true)
		together(10, func(int) {
			start := time.Now()
			d, err := lim.Allow(t.Context(), user, action)
			if took := time.Since(start); took > 50*time.Millisecond+slack {
				t.Errorf("it took %s", took)
			}
			if !errors.Is(err, redisstore.ErrTimeout) || d != (core.Decision{}) {
				t.Errorf("%+v, %v; not ErrTimeout", d, err)
			}
		})
		free()
		within(t, "it works again", works)
	}
}

// Options.Timeout bounds every call, whatever the client's own options are, and whatever it is that does not answer.
func TestTimeoutHolds(t *testing.T) {
	noLeak(t)
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // connects, by its backlog, and no more
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	release := make(chan struct{})
	defer close(release)
	lost := func(context.Context, string, string) (net.Conn, error) { // as a SYN in the void
		<-release
		return nil, errors.New("lost")
	}
	for _, tc := range []struct {
		name string
		opts redis.Options
	}{
		{"deaf, default options", redis.Options{Addr: deaf.Addr().String()}},
		{"deaf, no timeouts of its own", redis.Options{Addr: deaf.Addr().String(), ReadTimeout: -1, WriteTimeout: -1, DialTimeout: time.Hour, PoolTimeout: time.Hour}},
		{"deaf, many retries", redis.Options{Addr: deaf.Addr().String(), MaxRetries: 100, ReadTimeout: time.Millisecond, MinRetryBackoff: -1, MaxRetryBackoff: -1}},
		{"deaf, ContextTimeoutEnabled", redis.Options{Addr: deaf.Addr().String(), ContextTimeoutEnabled: true}},
		{"deaf, one connection", redis.Options{Addr: deaf.Addr().String(), PoolSize: 1}},
		{"closed, default options", redis.Options{Addr: closed}},
		{"closed, many retries", redis.Options{Addr: closed, MaxRetries: 100, DialerRetries: 10}},
		{"lost, default options", redis.Options{Dialer: lost}},
		{"lost, ContextTimeoutEnabled", redis.Options{Dialer: lost, ContextTimeoutEnabled: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, timeout := range []time.Duration{0, 5 * time.Millisecond} {
				rdb := redis.NewClient(&tc.opts)
				defer func() { _ = rdb.Close() }()
				store := redisstore.New(rdb, &redisstore.Options{Timeout: timeout})
				lim := core.Must(core.New(store, kinds[0]))
				if timeout == 0 {
					timeout = 50 * time.Millisecond
				}
				together(40, func(int) {
					start := time.Now()
					d, err := lim.Allow(t.Context(), user, action)
					took := time.Since(start)
					discreet(t, err)
					if d != (core.Decision{}) {
						t.Errorf("a verdict: %+v", d)
					}
					if took > timeout+slack {
						t.Errorf("it took %s, not %s", took, timeout)
					}
					// Only a client with its own say may fail otherwise, and earlier.
					if !errors.Is(err, redisstore.ErrTimeout) && tc.opts.MaxRetries == 0 && !strings.HasPrefix(tc.name, "closed") {
						t.Errorf("%v, not ErrTimeout", err)
					}
				})
			}
		})
	}
	_ = deaf.Close() // resets what is in its backlog
}

// To the instant, on a clock that moves only when all wait.
func TestTimeoutIsExact(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 50 * time.Millisecond, 7 * time.Millisecond: 7 * time.Millisecond, time.Minute: time.Minute} {
		bubble(t, func(t *testing.T) {
			var ends []net.Conn
			defer func() {
				for _, c := range ends {
					_ = c.Close()
				}
			}()
			rdb := redis.NewClient(&redis.Options{
				Addr: closed, ReadTimeout: time.Hour,
				Dialer: func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go func() { _, _ = io.Copy(io.Discard, server) }() // hears, and says nothing
					ends = append(ends, client, server)
					return client, nil
				},
			})
			defer rdb.Close()
			store := redisstore.New(rdb, &redisstore.Options{Timeout: timeout})
			for range 3 {
				start := time.Now()
				_, err := core.Must(core.New(store, kinds[0])).Allow(t.Context(), user, action)
				if took := time.Since(start); !errors.Is(err, redisstore.ErrTimeout) || took != want {
					t.Errorf("%v after %s, not %s", err, took, want)
				}
			}
		})
	}
}

// A client without deadlines at its socket cannot keep the timeout.
func TestTimeoutHoldsWithoutDeadlines(t *testing.T) {
	for _, o := range []redis.Options{{ReadTimeout: -2}, {ReadTimeout: -2, WriteTimeout: -1}, {ReadTimeout: -1}} {
		server := redistest.Start(t)
		o.Addr, o.ContextTimeoutEnabled = server.Addr, true
		lim := core.Must(core.New(redisstore.New(connect(t, &o), nil), kinds[0]))
		within(t, "it answers", func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil })
		server.Pause()
		answered := make(chan error, 1)
		go func() {
			_, err := lim.Allow(t.Context(), user, action)
			answered <- err
		}()
		select {
		case err := <-answered:
			if !errors.Is(err, redisstore.ErrTimeout) {
				t.Errorf("%v, not ErrTimeout", err)
			}
		case <-time.After(slack):
			t.Errorf("ReadTimeout %d: no answer", o.ReadTimeout)
		}
		server.Resume()
	}
}

// ErrTimeout says how long the store has waited, unless the client gave up before.
func TestWhoseTimeoutItWas(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		for timeout, text := range map[time.Duration]string{
			100 * time.Millisecond: "redisstore: no answer within the timeout of 100ms",
			patient:                "redisstore: no answer within the timeout",
		} {
			server := redistest.Start(t)
			rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: heeds, ReadTimeout: 200 * time.Millisecond})
			lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: timeout}), kinds[0]))
			within(t, "it answers", func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil })
			server.Pause()
			if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) || err.Error() != text {
				t.Errorf("%v, not %s", err, text)
			}
			server.Resume()
		}
	}
}

// The timeout is the store's failure, also where the client keeps it for the store.
func TestTimeoutIsOneError(t *testing.T) {
	noLeak(t)
	_, proxy := proxied(t)
	for _, c := range clients[:3] {
		t.Run(c.name, func(t *testing.T) {
			rdb := c.open(proxy.Addr)
			defer rdb.Close()
			warm := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
			charged(t, warm, user, kinds[0])
			defer proxy.HangUp()
			defer proxy.Spoil(nil)
			proxy.Spoil(lose)
			lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: 15 * time.Millisecond}), kinds[0]))
			for range 3 {
				together(10, func(int) {
					if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) {
						t.Errorf("%v, not ErrTimeout", err)
					}
				})
			}
		})
	}
}
