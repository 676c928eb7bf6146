package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// limitOf is a ban policy as a store is given it.
func limitOf(t testing.TB, l core.BanPolicy) core.Limit {
	t.Helper()
	var seen asked
	if _, err := core.Must(core.Must(core.New(&seen, plenty)).With(l)).Status(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	return seen.charge.Limits[1]
}

type asked struct {
	core.Store
	charge core.Charge
}

func (s *asked) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.charge = c
	return core.Decision{}, nil, nil
}

// Equal charges in a row are written at once, so what befalls the write befalls all.
func TestFailedWriteFailsAllThatItIsFor(t *testing.T) {
	server := redistest.Start(t)
	s := reliable(t, server.Addr)
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory", "1")
	for _, rate := range []core.Rate{hourly, core.Per(7, time.Hour)} { // the second with parts
		c := core.Charge{User: user, Action: action, Cost: 1, Terms: &core.Terms{Limits: []core.Limit{core.Funnel(5, rate)}}}
		peek := c
		peek.Terms = &core.Terms{Limits: c.Limits, Ask: machine.Ask{Mode: machine.ModePeek}}
		values, err := s.Run(c, c, c, peek)
		if err != nil || len(values) < 4 {
			t.Fatal(values, err)
		}
		for _, v := range values[:3] {
			if text, _ := v.(string); !strings.HasPrefix(text, "!OOM") {
				t.Errorf("%v", v)
			}
		}
		whole, err := s.Run(peek)
		if err != nil || !slices.Equal(values[3:], whole) {
			t.Errorf("a peek after them: %v, and alone %v, %v", values[3:], whole, err)
		}
	}
}

// Who queues behind others does not wait for their answers from far away.
func TestManyCallsOverASlowNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const away = 30 * time.Millisecond
		answer := errors.New("an answer")
		rdb, hangUp := mute()
		defer hangUp()
		rdb.AddHook(before(func(redis.Cmder) error { time.Sleep(away); return answer }))
		for _, n := range []int{1, 3, 8, 2000} {
			lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
			begun := time.Now()
			together(n, func(i int) {
				if _, err := lim.Allow(t.Context(), fmt.Sprint(user, i), action); !errors.Is(err, answer) {
					t.Errorf("%d of %d: %v", i, n, err)
				}
			})
			if took := time.Since(begun); took > away*3/2 {
				t.Errorf("%d at once took %s", n, took)
			}
		}
	})
}

// So many calls wait that there is no room for another. Those who leave make room at once.
func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rdb, hangUp := mute()
		store := redisstore.New(rdb, &redisstore.Options{Timeout: time.Second})
		lim := core.Must(core.New(store, plenty))
		ctx, leave := context.WithCancel(t.Context())
		for range 8192 {
			go func() {
				if _, err := lim.Allow(ctx, user, action); err != context.Canceled {
					t.Errorf("%v, not the caller's own", err)
				}
			}()
		}
		synctest.Wait()
		if n, _ := store.Calls(); n != 8192 {
			t.Errorf("%d wait", n)
		}
		for range 100 {
			d, err := lim.Allow(t.Context(), user, action)
			if !errors.Is(err, redisstore.ErrBusy) || d != (core.Decision{}) {
				t.Fatalf("%+v, %v; not ErrBusy", d, err)
			}
			discreet(t, err)
		}
		leave()
		synctest.Wait()
		if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) {
			t.Errorf("%v", err)
		}
		time.Sleep(10 * time.Second)
		hangUp()
	})
}

// A run of the script is bounded by its work: dear charges do not pile up in one, as
// cheap ones do.
func TestCostlyChargesDoNotPileUp(t *testing.T) {
	server, proxy := proxied(t)
	store := reliable(t, proxy.Addr)
	lim := core.Must(core.New(store, core.SlidingWindow(10_000, time.Hour)))
	fullest := func(cost int) (most int) {
		proxy.Commands()
		together(60, func(i int) {
			if _, err := lim.AllowN(t.Context(), fmt.Sprint("user", i), fmt.Sprint(cost), cost); err != nil {
				t.Error(err)
			}
		})
		for _, c := range proxy.Commands() {
			if c[0] == "fcall" {
				n, _ := strconv.Atoi(c[2])
				most = max(most, n)
			}
		}
		server.Do("FLUSHALL")
		return most
	}
	within(t, "cheap charges go together", func() bool { return fullest(1) > 10 })
	if n := fullest(5000); n != 1 {
		t.Errorf("%d charges of 5,000 units each were in one run", n)
	}
}
