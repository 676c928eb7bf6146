package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
	"go.uber.org/goleak"
)

// Who and what; neither may show in an error.
const (
	user   = "geheim@example.org"
	action = "handlung-77"
)

// slack is what a busy machine may add to a timeout. It is less than any that a client
// has of its own.
const slack = 2 * time.Second

// patient is a timeout that only a test that waits for something else can have. It is long
// for a busy machine, and short beside go test's own timeout, so that a hang is reported.
const patient = 20 * time.Second

// closed is an address that refuses connections. No process gets its port by chance: it is below those that
// the system gives.
const closed = "127.0.0.1:1"

var hourly = core.Every(time.Hour)

// kinds are all there are, with a quota of 5.
var kinds = kindsOf(5)

// kindsOf are all kinds there are, so slow that a clock that runs does not matter.
func kindsOf(quota int) []core.Limit {
	return []core.Limit{
		core.SlidingWindow(quota, time.Hour),
		core.SlidingWindow(quota, time.Hour).CountRefused(),
		core.MovingWindow(quota, time.Hour),
		core.FixedWindow(quota, time.Hour),
		core.ElasticWindow(quota, time.Hour),
		core.TokenBucket(quota, hourly).Named("full"),
		core.TokenBucket(2*quota, hourly).Initial(quota),
		core.Funnel(quota, hourly),
		core.InFlight(quota).Lease(time.Hour),
		core.CalendarWindow(quota, core.Year, nil),
	}
}

// allKinds fails the test if a kind is missing. A ban is a policy's.
func allKinds(t testing.TB, limits []core.Limit) []core.Limit {
	t.Helper()
	for k := range machine.Kinds() {
		if k != machine.KindBan && !slices.ContainsFunc(limits, func(l core.Limit) bool { return l.Rule().Kind == k }) {
			t.Errorf("no limit of kind %q is tested", k)
		}
	}
	return limits
}

func TestKindsAreAll(t *testing.T) { allKinds(t, kinds) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // it says every failed dial on stderr
	slog.SetDefault(slog.New(slog.DiscardHandler))
	_ = flag.Set("test.parallel", "6") // most tests wait for servers; the command line may say another number
	if addr := os.Getenv(fleetEnv); addr != "" {
		os.Exit(fleetProcess(addr))
	}
	if addr := os.Getenv(leaseFleetEnv); addr != "" {
		os.Exit(leaseProcess(addr))
	}
	os.Exit(m.Run())
}

// startProcess starts another process of this test, which TestMain gives its task by the variable.
func startProcess(t testing.TB, variable string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env, cmd.Stderr = append(os.Environ(), variable), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in, out
}

func connect(t testing.TB, opts *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// reliable is a store on a server that nobody disturbs.
func reliable(t testing.TB, addr string) *redisstore.Store {
	t.Helper()
	return ready(t, redisstore.New(connect(t, &redis.Options{Addr: addr}), &redisstore.Options{Timeout: patient}))
}

// ready is a store that has found out how its servers run programs.
func ready(t testing.TB, store *redisstore.Store) *redisstore.Store {
	t.Helper()
	if err := store.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// follow has a store use clocks that move with Redis's, which the test moves and which shows now.
// Redis's alone may step back; as much time as it takes to notice passes then.
func follow(s *redisstore.Store, now func() time.Time, advance func(time.Duration)) (*redisstore.Store, func(time.Duration)) {
	s.SetTime(now)
	var passed atomic.Int64
	s.SetClock(func() time.Duration { return time.Duration(passed.Load()) })
	return s, func(d time.Duration) {
		advance(d)
		if d < 0 {
			d = time.Second
		}
		passed.Add(int64(d))
	}
}

// allow has a limiter decide about the user and the action.
func allow(t testing.TB, l *core.Limiter) core.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), user, action)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// charged is how many units of a limit are taken, as the store on a server says.
func charged(t testing.TB, s core.Store, user string, limit core.Limit) int {
	t.Helper()
	d, err := core.Must(core.New(s, limit)).Peek(t.Context(), user, action)
	if err != nil {
		t.Fatal(err)
	}
	if limit.Rule().ForgetAfter > 0 {
		return 5 - d.Remaining // it starts so
	}
	return limit.Quota() - d.Remaining
}

// noLeak holds the rest of the test, its clean-up included, to leaving no goroutine.
func noLeak(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		var err error
		for end := time.Now().Add(patient); ; {
			if err = goleak.Find(before); err == nil || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// discreet fails the test if err does not name the package, or names who or what.
func discreet(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
		t.Error("no error")
	case !strings.HasPrefix(err.Error(), "redisstore: "):
		t.Errorf("%q does not say where it is from", err)
	}
	for _, s := range []string{user, action, "geheim", "tailcut:"} {
		if err != nil && strings.Contains(err.Error(), s) {
			t.Errorf("%q names the user, the action or the key", err)
		}
	}
}

// within waits until what is said holds, no longer than patient.
func within(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it took longer than %s until %s", patient, what)
		}
	}
}

// asking is a store that says how many calls wait for an answer.
type asking interface{ Calls() (calls, sending int) }

// idle waits until no call of a store does.
func idle(t testing.TB, store asking) {
	t.Helper()
	within(t, "no call waits", func() bool { calls, sending := store.Calls(); return calls+sending == 0 })
}

// names are the commands' names, less those which find out about the server: they go aside, see
// eviction_test.go and library_test.go.
func names(commands [][]string) string {
	var s []string
	for _, c := range commands {
		if c[0] != "info" && c[0] != "function" && (len(c) < 4 || !strings.HasSuffix(c[3], "}")) {
			s = append(s, c[0])
		}
	}
	return strings.Join(s, " ")
}

// together runs n goroutines that all start at once, and waits for them.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}

// hang waits for longer than a store may, so that a test that waits for it fails and ends.
func hang(until <-chan struct{}) {
	select {
	case <-until:
	case <-time.After(2 * slack):
	}
}

// proxied is a server behind a proxy.
func proxied(t testing.TB) (*redistest.Server, *redistest.Proxy) {
	t.Helper()
	server := redistest.Start(t)
	return server, redistest.StartProxy(t, server.Addr)
}

// A hook sees every command of a client, and calls next to run it.
type hook func(cmd redis.Cmder, next func() error) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(cmd, func() error { return next(ctx, cmd) })
	}
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// before is a hook that runs before every command. If it returns an error, the command is not run.
func before(do func(cmd redis.Cmder) error) hook {
	return func(cmd redis.Cmder, next func() error) error {
		if err := do(cmd); err != nil {
			return err
		}
		return next()
	}
}

// bubble is synctest.Test. go-redis keeps timers for later use, and one of a bubble must not be used outside:
// two collections drop them.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
	runtime.GC()
	runtime.GC()
}

var plenty = core.FixedWindow(1_000_000, time.Hour)

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

// clients are those a Store may be given, with default options but for the one named.
var clients = []struct {
	name string
	open func(addr string) redis.UniversalClient
}{
	{"Client", func(addr string) redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) }},
	{"RESP2", func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr, Protocol: 2})
	}},
	{"ContextTimeoutEnabled", func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	}},
	{"ClusterClient", func(addr string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		}})
	}},
	{"Ring", func(addr string) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": addr}})
	}},
	{"AutoPipeline", func(addr string) redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		ap, err := rdb.AutoPipeline()
		if err != nil {
			panic(err)
		}
		return autoPipeline{ap, rdb}
	}},
}

// autoPipeline closes its client as well.
type autoPipeline struct {
	redis.UniversalClient
	rdb *redis.Client
}

func (a autoPipeline) Close() error { return errors.Join(a.UniversalClient.Close(), a.rdb.Close()) }

// eager asks of buckets and funnels up to a second ahead.
type eager struct {
	*redisstore.Store
	ahead bool
}

func (s *eager) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if s.ahead && c.Mode != machine.ModePeek {
		t := *c.Terms
		t.Ahead = 1e6
		c.Terms = &t
	}
	return s.Store.Take(ctx, c)
}
