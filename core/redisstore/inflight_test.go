package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// free is how many slots of the user are free.
func free(t testing.TB, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), user, action)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// A release or a renewal whose reply is lost may be tried again, and meets no other action's slot.
func TestLostReplyOfARelease(t *testing.T) {
	server, proxy := proxied(t)
	slots := core.InFlight(2).Lease(time.Hour)
	lim := core.Must(core.New(ready(t, redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), nil)), slots))
	others := core.Must(core.New(reliable(t, server.Addr), slots))
	take := func(l *core.Limiter) core.Decision {
		t.Helper()
		for {
			d, err := l.Allow(t.Context(), user, action)
			if err == nil && d.Allowed {
				return d
			}
			if err == nil {
				t.Fatalf("%+v", d)
			}
		}
	}
	first := take(others)
	for range 3 {
		server.Do("FLUSHALL")
		d := take(lim)
		for _, do := range []func(context.Context, core.Decision) error{lim.Renew, lim.Release} {
			proxy.Spoil(nil)
			within(t, "it answers", func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil })
			proxy.Spoil(lose)
			if err := do(t.Context(), d); !errors.Is(err, redisstore.ErrTimeout) {
				t.Fatal(err)
			}
		}
		within(t, "the release is done", func() bool { return free(t, others) == 2 })
		proxy.Spoil(nil)
		proxy.HangUp()
		take(others)
		take(others)
		for range 3 {
			var err error
			for range 5 { // the proxy has hung up
				if err = lim.Release(t.Context(), d); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := free(t, others); n != 0 {
			t.Fatalf("the second try freed %d slots of others", n)
		}
		if err := lim.Renew(t.Context(), d); err != core.ErrLeaseEnded {
			t.Fatal(err)
		}
	}
	if err := others.Release(t.Context(), first); err != nil { // the server has forgotten it
		t.Fatal(err)
	}
}

// A slot that was taken before an outage is freed in Redis afterwards, and one that the fallback gave is
// freed there.
func TestSlotsOutliveAnOutage(t *testing.T) {
	server := redistest.Start(t)
	slots := core.InFlight(1).Lease(time.Hour)
	memory := memorystore.New(nil)
	lim := core.Must(core.New(core.Fallback(redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), nil), memory), slots))
	inRedis, inMemory := core.Must(core.New(reliable(t, server.Addr), slots)), core.Must(core.New(memory, slots))
	allow := func(want core.Source) core.Decision {
		t.Helper()
		d, err := lim.Allow(t.Context(), user, action)
		if err != nil || !d.Allowed || d.Source != want {
			t.Fatalf("%+v, %v", d, err)
		}
		return d
	}
	before := allow(core.SourceStore)
	server.Pause()
	during := allow(core.SourceFallback)
	if err := lim.Release(t.Context(), before); err == nil {
		t.Fatal("a slot is freed in a server that hangs")
	}
	if n := free(t, inMemory); n != 0 {
		t.Fatalf("%d slots of the fallback are free", n)
	}
	server.Resume()
	within(t, "the slot is freed in Redis", func() bool { return lim.Release(t.Context(), before) == nil })
	if r, m := free(t, inRedis), free(t, inMemory); r != 1 || m != 0 {
		t.Errorf("%d are free in Redis, %d in memory", r, m)
	}
	if err := lim.Release(t.Context(), during); err != nil || free(t, inMemory) != 1 {
		t.Errorf("the slot of the fallback is not freed: %v", err)
	}
}

// slotsEnv makes the test binary a process that takes slots, on the server that it names.
const slotsEnv = "TAILCUT_SLOTS"

const slotsLease = 2 * time.Second

var fewSlots = core.InFlight(4).Lease(slotsLease)

// A span is an action, in microseconds since 1970: its slot was taken between Called and Returned. Ended is
// 0 if the action has only begun.
type span struct{ ID, Called, Returned, Ended int64 }

// slotsProcess acts until its input ends or it is killed, and tells when each action begins and ends.
func slotsProcess(addr string) int {
	lim := core.Must(core.New(redisstore.New(redis.NewClient(&redis.Options{Addr: addr}), &redisstore.Options{Timeout: patient}), fewSlots))
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('x')
		stop()
	}()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(s span) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(s)
	}
	now := func() int64 { return time.Now().UnixMicro() }
	together(12, func(int) {
		for ctx.Err() == nil {
			s := span{ID: rand.Int64(), Called: now()}
			d, err := lim.Allow(context.Background(), user, action)
			if s.Returned = now(); err != nil || !d.Allowed {
				time.Sleep(time.Millisecond)
				continue
			}
			tell(s)
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			s.Ended = now()
			tell(s)
			_ = lim.Release(context.Background(), d)
		}
	})
	return 0
}

// Of two processes on one Redis, one is killed. Never are more slots taken than there are, and the
// slots of the dead process are free when their leases end.
func TestSlotsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lim := core.Must(core.New(reliable(t, server.Addr), fewSlots))
	var mu sync.Mutex
	spans := map[int64]span{}
	start := func() (cmd *exec.Cmd, end func() error) {
		cmd, in, out := startProcess(t, slotsEnv+"="+server.Addr)
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := json.NewDecoder(out); ; {
				var s span
				if lines.Decode(&s) != nil {
					return
				}
				mu.Lock()
				spans[s.ID] = s
				mu.Unlock()
			}
		}()
		return cmd, func() error {
			_ = in.Close()
			<-read
			return cmd.Wait()
		}
	}
	counted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(spans)
	}
	for range 3 {
		dies, endDead := start()
		_, endOther := start()
		enough := counted() + 100
		within(t, "both act", func() bool { return counted() > enough })
		if err := dies.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		_ = endDead()
		enough = counted() + 20
		within(t, "the other acts on", func() bool { return counted() > enough || time.Since(killed) > 2*slotsLease })
		if err := endOther(); err != nil {
			t.Error(err)
		}
		d, err := lim.WaitN(t.Context(), user, action, fewSlots.Quota())
		if since := time.Since(killed); err != nil || since > slotsLease+10*time.Second {
			t.Errorf("%s after the kill: %+v, %v", since, d, err)
		}
		if err := lim.Release(t.Context(), d); err != nil {
			t.Error(err)
		}
	}

	// Each action has had its slot from its answer to its end, or to the end of its lease.
	most, left := 0, 0
	for _, s := range spans {
		running := 0
		for _, o := range spans {
			ends := o.Called + slotsLease.Microseconds()
			if o.Ended > 0 {
				ends = min(ends, o.Ended)
			}
			if o.Returned <= s.Returned && s.Returned < ends {
				running++
			}
		}
		most = max(most, running)
		if s.Ended == 0 {
			left++
		}
	}
	if most > fewSlots.Quota() {
		t.Errorf("%d actions were in progress", most)
	}
	t.Logf("%d actions, at most %d at the same time; %d were killed", len(spans), most, left)
}
