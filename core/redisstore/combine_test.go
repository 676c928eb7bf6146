package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

var plenty = core.FixedWindow(1_000_000, time.Hour)

func TestUsersHooksSeeDecisions(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	var seen atomic.Int32
	rdb.AddHook(before(func(cmd redis.Cmder) error {
		if cmd.Name() == "fcall" {
			seen.Add(1)
		}
		return nil
	}))
	lim := core.Must(core.New(ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient})), plenty))
	for range 10 {
		if _, err := lim.Allow(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
	}
	if seen.Load() != 11 { // Connect has asked once, without a charge
		t.Errorf("the hook saw %d calls for 10 decisions", seen.Load())
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

func TestPanickingHookIsAnError(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	var angry atomic.Bool
	rdb.AddHook(before(func(redis.Cmder) error {
		if angry.Load() {
			panic("a bug in a hook")
		}
		return nil
	}))
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, plenty))
	angry.Store(true)
	together(20, func(int) {
		if d, err := lim.Allow(t.Context(), user, action); err == nil || d != (core.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
	if err := lim.Reset(t.Context(), user, action); err == nil {
		t.Error("Reset: no error")
	}
	idle(t, store) // a sender that still opens a connection fails the calls that come meanwhile
	angry.Store(false)
	if _, err := lim.Allow(t.Context(), user, action); err != nil {
		t.Error(err)
	}
}

func TestResetThatDidNotRunIsAnError(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	open := errors.New("the circuit is open")
	rdb.AddHook(before(func(cmd redis.Cmder) error {
		if cmd.Name() == "del" {
			return open
		}
		return nil
	}))
	lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), plenty))
	together(20, func(int) {
		if err := lim.Reset(t.Context(), user, action); !errors.Is(err, open) {
			t.Errorf("%v", err)
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

// mute is a client of a server that hears and says nothing.
func mute() (rdb *redis.Client, hangUp func()) {
	var mu sync.Mutex
	var ends []net.Conn
	rdb = redis.NewClient(&redis.Options{
		Addr: closed, ContextTimeoutEnabled: true,
		PoolSize: 10_000, // who waits for a connection has a timer of another bubble
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, client, server)
			return client, nil
		},
	})
	return rdb, func() {
		_ = rdb.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range ends {
			_ = c.Close()
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

// A shard that hangs takes no other with it.
func TestRingsShardsAnswerEachForItself(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"a": a.Addr, "b": b.Addr},
		HeartbeatFrequency: time.Hour, // it is to stay in the ring
	})
	t.Cleanup(func() { _ = ring.Close() })
	lim := core.Must(core.New(redisstore.New(ring, &redisstore.Options{Timeout: patient}), plenty))
	users := map[bool][]string{}
	for i := 0; len(users[true]) < 8 || len(users[false]) < 8; i++ {
		name := fmt.Sprint("user", i)
		if _, err := lim.Allow(t.Context(), name, action); err != nil {
			t.Fatal(err)
		}
		onA := a.Do("EXISTS", "tailcut:{"+name+"}:"+action+":"+plenty.Identity()) == ":1"
		users[onA] = append(users[onA], name)
	}
	a.Pause()
	defer a.Resume()
	var hang, well sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 8 {
		hang.Go(func() { // what asks the one that hangs
			if _, err := lim.Allow(ctx, users[true][i], action); err != context.Canceled {
				t.Errorf("%v, not the caller's own", err)
			}
		})
		well.Go(func() {
			for range 300 {
				if _, err := lim.Allow(t.Context(), users[false][i], action); err != nil {
					t.Errorf("the shard that is well: %v", err)
					return
				}
			}
		})
	}
	well.Wait()
	cancel()
	hang.Wait()
}

// Charges of several users cannot go together to a node of a cluster.
func TestClusterNodeBehindAPlainClient(t *testing.T) {
	server := redistest.Start(t, "cluster-enabled yes", "cluster-config-file nodes.conf")
	server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	within(t, "the cluster is up", func() bool { return server.Do("SET", "a", "b") == "+OK" })
	lim := core.Must(core.New(redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient}), plenty))
	together(50, func(g int) {
		for i := range 20 {
			name := fmt.Sprint("user", g, i)
			if d, err := lim.Allow(t.Context(), name, action); err != nil || d.Remaining != plenty.Quota()-1 {
				t.Errorf("%+v, %v", d, err)
			}
		}
	})
}

// One charge that fails takes no other of its run with it.
func TestOneBadKeyInARun(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient})
	l := core.Funnel(1000, core.Per(1000, time.Hour))
	lim := core.Must(core.New(store, l))
	server.Do("LPUSH", store.Key("corrupt", action, l), "x")
	together(64, func(g int) {
		for range 20 {
			if g%8 == 0 {
				if d, err := lim.Allow(t.Context(), "corrupt", action); !errors.Is(err, redisstore.ErrState) || d != (core.Decision{}) {
					t.Errorf("%+v, %v", d, err)
				}
			} else if d, err := lim.Allow(t.Context(), fmt.Sprint("user", g), action); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
	})
}

// What looks like a number to Lua is not thereby a state.
func TestNumbersThatAreNotAState(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient})
	l := core.Funnel(5, core.Every(time.Minute))
	lim := core.Must(core.New(store, l))
	for _, value := range []string{"0x06660000000000", "1.8000000000e+15", "0000000000018e14", "-000000000000001"} {
		key := store.Key(user, action, l)
		server.Do("SET", key, value)
		if d, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrState) {
			t.Errorf("%q: %+v, %v", value, d, err)
		}
		if got := server.Do("GET", key); got != value {
			t.Errorf("%q has become %q", value, got)
		}
	}
}

// Whatever a ring holds, a charge that fails has charged nothing.
func TestACorruptRingChargesNothing(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient})
	fixed, moving := core.FixedWindow(100, time.Hour), core.MovingWindow(100, time.Hour)
	both := core.Must(core.New(store, fixed, moving))
	for range 3 {
		if _, err := both.Allow(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
	}
	server.Do("SETRANGE", store.Key(user, action, moving), "0", "\x1f\xff\xff\xff\xff\xff\xff")
	for range 3 {
		if d, err := both.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrState) {
			t.Errorf("%+v, %v", d, err)
		}
	}
	d, err := core.Must(core.New(store, fixed)).Peek(t.Context(), user, action)
	if err != nil || d.Remaining != 97 {
		t.Errorf("the other limit: %+v, %v; want what three actions left", d, err)
	}
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
