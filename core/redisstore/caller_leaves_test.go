package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// never is a store that must not be asked.
type never struct{ t testing.TB }

func (s never) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	s.t.Error("the fallback was asked")
	return core.Decision{}, nil, errors.New("never")
}

func (s never) Reset(context.Context, string, string, []core.Limit) error { return nil }

func TestContextDoneOnEntry(t *testing.T) {
	noLeak(t)
	_, proxy := proxied(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			rdb := c.open(proxy.Addr)
			defer rdb.Close()
			store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}))
			lim := core.Must(core.New(core.Fallback(store, never{t}), kinds[0]))
			if _, err := lim.Peek(t.Context(), "nobody", action); err != nil {
				t.Fatal(err)
			}
			proxy.Commands()
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			defer cancel()
			for ctx, want := range map[context.Context]error{cancelled: context.Canceled, past: context.DeadlineExceeded} {
				for i := range 20 {
					if d, err := lim.Allow(ctx, user, action); err != want || d != (core.Decision{}) {
						t.Fatalf("Allow: %+v, %v", d, err)
					}
					// The store itself, without the limiter's own look.
					d, _, err := store.Take(ctx, core.Charge{User: user, Action: action, Cost: 1, Terms: &core.Terms{Limits: kinds[:1]}})
					if err != want || d != (core.Decision{}) {
						t.Fatalf("Take %d: %+v, %v", i, d, err)
					}
					if err := store.Reset(ctx, user, action, kinds[:1]); err != want {
						t.Fatalf("Reset: %v", err)
					}
					if _, err := store.History(ctx, user, action, kinds[0]); err != want {
						t.Fatalf("History: %v", err)
					}
				}
			}
			idle(t, store)
			if n := charged(t, store, user, kinds[0]); n != 0 {
				t.Errorf("%d are charged", n)
			}
			if got := names(proxy.Commands()); got != "fcall" {
				t.Errorf("sent: %s", got)
			}
		})
	}
}

func TestCallerLeavesBeforeSending(t *testing.T) {
	noLeak(t)
	_, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, PoolSize: 1})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	bare := core.Must(core.New(store, kinds[0]))
	behind := core.Must(core.New(core.Fallback(store, never{t}), kinds[0]))
	conn := rdb.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		want, lim := context.Canceled, behind
		if i%2 == 0 {
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			want, lim = context.DeadlineExceeded, bare
		} else {
			time.AfterFunc(20*time.Millisecond, cancel)
		}
		start := time.Now()
		if _, err := lim.Allow(ctx, user, action); err != want {
			t.Errorf("%v, not %v", err, want)
		}
		if took := time.Since(start); took > slack {
			t.Errorf("it took %s", took)
		}
		cancel()
	}
	_ = conn.Close()
	idle(t, store)
	if n := charged(t, store, user, kinds[0]); n != 0 {
		t.Errorf("%d are charged", n)
	}
}

func TestCallerLeavesAfterSending(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	direct := reliable(t, server.Addr)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			rdb := c.open(proxy.Addr)
			defer rdb.Close()
			timeout, late := patient, time.Duration(0)
			if c.name == "ContextTimeoutEnabled" { // a caller that has sent the call itself stays so long
				timeout, late = slack, slack
			}
			store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: timeout}))
			lim := core.Must(core.New(core.Fallback(store, never{t}), kinds[0]))
			if _, err := lim.Peek(t.Context(), "nobody", action); err != nil {
				t.Fatal(err)
			}
			defer proxy.HangUp()
			defer proxy.Spoil(nil)
			who := user + c.name
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			proxy.Spoil(func([]string, []byte) ([]byte, bool) { cancel(); return nil, false })
			start := time.Now()
			if d, err := lim.Allow(ctx, who, action); err != context.Canceled || d != (core.Decision{}) {
				t.Errorf("%+v, %v", d, err)
			}
			if took := time.Since(start); took > late+slack {
				t.Errorf("it took %s", took)
			}
			if n := charged(t, direct, who, kinds[0]); n != 1 {
				t.Errorf("%d are charged, which the server has taken", n)
			}
		})
	}
}

// A caller's deadline that ends while Redis has not answered is the store's failure: a bare
// store reports it, and behind a fallback the fallback decides.
func TestCallersDeadline(t *testing.T) {
	noLeak(t)
	_, proxy := proxied(t)
	for _, c := range clients[:3] {
		t.Run(c.name, func(t *testing.T) {
			rdb := c.open(proxy.Addr)
			defer rdb.Close()
			store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
			bare := core.Must(core.New(store, kinds[0]))
			behind := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), kinds[0]))
			if _, err := bare.Peek(t.Context(), user, action); err != nil {
				t.Fatal(err)
			}
			defer proxy.HangUp()
			defer proxy.Spoil(nil)
			proxy.Spoil(lose)
			for range 3 {
				together(10, func(i int) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+i)*time.Millisecond)
					defer cancel()
					d, err := bare.Allow(ctx, user, fmt.Sprint(action, i))
					if err != context.DeadlineExceeded || d != (core.Decision{}) {
						t.Errorf("bare: %+v, %v", d, err)
					}
				})
				together(10, func(i int) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+i)*time.Millisecond)
					defer cancel()
					if d, err := behind.Allow(ctx, user, fmt.Sprint(action, i)); err != nil || d.Source != core.SourceFallback {
						t.Errorf("behind a fallback: %+v, %v", d, err)
					}
				})
			}
		})
	}
}

// detached is a context that outlives the one it is of, but for saying when that ends.
type detached struct{ context.Context }

func (detached) Done() <-chan struct{} { return nil }
func (detached) Err() error            { return nil }

// Nothing waits for a context to be done.
func TestDeadlineOfAContextThatIsNeverDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: closed})
		_ = rdb.Close()
		past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		lim := core.Must(core.New(redisstore.New(rdb, nil), kinds[0]))
		if _, err := lim.Allow(detached{past}, user, action); !errors.Is(err, redis.ErrClosed) {
			t.Errorf("%v, not ErrClosed", err)
		}
	})
}

// If the caller's deadline and the timeout end at once, the caller is told of its own.
func TestCallersDeadlineAtTheTimeout(t *testing.T) {
	for range 100 {
		bubble(t, func(t *testing.T) {
			rdb, hangUp := mute()
			lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := lim.Allow(ctx, user, action); err != context.DeadlineExceeded {
				t.Errorf("%v", err)
			}
			time.Sleep(10 * time.Second)
			hangUp()
		})
	}
}
