package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

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

func lose([]string, []byte) ([]byte, bool) { return nil, false }

func say(reply string) redistest.Fault {
	return func([]string, []byte) ([]byte, bool) { return []byte(reply), false }
}

// spoiling is what becomes of a reply.
type spoiling struct {
	name  string
	fault redistest.Fault
	want  error // nil: any
}

// timeout is one that a busy machine does not reach if there is another error to come.
func (s *spoiling) timeout() time.Duration {
	if s.want == redisstore.ErrTimeout {
		return 250 * time.Millisecond
	}
	return patient
}

// spoil has a limiter decide once the client is connected, again if a busy machine did not
// send it in time. It holds the outcome to be an error and returns the commands that were
// sent.
func (s *spoiling) spoil(t *testing.T, proxy *redistest.Proxy, store *redisstore.Store, lim *core.Limiter, who string) (sent string) {
	t.Helper()
	within(t, "it is sent", func() bool {
		within(t, "the client is connected", func() bool {
			_, err := lim.Peek(t.Context(), "nobody", action)
			return err == nil
		})
		idle(t, store)
		proxy.Commands()
		var ran atomic.Bool
		proxy.Spoil(func(command []string, reply []byte) ([]byte, bool) {
			ran.Store(true)
			return s.fault(command, reply)
		})
		defer proxy.Spoil(nil)
		start := time.Now()
		d, err := lim.Allow(t.Context(), who, action)
		if took := time.Since(start); took > s.timeout()+slack {
			t.Errorf("it took %s", took)
		}
		discreet(t, err)
		if d != (core.Decision{}) || s.want != nil && !errors.Is(err, s.want) {
			t.Errorf("%+v, %v; want %v", d, err, s.want)
		}
		if sent = names(proxy.Commands()); sent != "" {
			within(t, "the server has run it", ran.Load)
		}
		// A client that would send it again may, now that nothing is wrong.
		proxy.Spoil(nil)
		proxy.HangUp()
		idle(t, store)
		sent = strings.TrimSpace(sent + " " + names(proxy.Commands()))
		return sent != ""
	})
	return sent
}

// faults spoil the reply to a charge that the server has taken.
var faults = []spoiling{
	{"the reply is lost", lose, redisstore.ErrTimeout},
	{"the connection ends before the reply", func([]string, []byte) ([]byte, bool) { return nil, true }, nil},
	{"the connection ends in mid-reply", func(_ []string, reply []byte) ([]byte, bool) { return reply[:len(reply)/2], true }, nil},
	{"the reply stops in the middle", func(_ []string, reply []byte) ([]byte, bool) { return reply[:len(reply)/2], false }, redisstore.ErrTimeout},
	{"the reply is late", func(_ []string, reply []byte) ([]byte, bool) {
		time.Sleep(time.Second)
		return reply, false
	}, redisstore.ErrTimeout},
	{"garbage", say("\x00\xff garbage\r\n"), nil},
	{"HTTP", say("HTTP/1.1 400 Bad Request\r\n\r\n"), nil},
	{"a negative integer", say(":-1\r\n"), redisstore.ErrReply},
	{"a status", say("+OK\r\n"), redisstore.ErrReply},
	{"a string", say("$4\r\n1 40\r\n"), redisstore.ErrReply},
	{"nothing", say("$-1\r\n"), redis.Nil},
	{"no array", say("*-1\r\n"), redis.Nil},
	{"an empty array", say("*0\r\n"), redisstore.ErrReply},
	{"too few integers", say("*3\r\n:1\r\n:0\r\n:0\r\n"), redisstore.ErrReply},
	{"too many integers", say("*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n"), redisstore.ErrReply},
	{"strings of integers", say("*4\r\n$1\r\n1\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n"), redisstore.ErrReply},
	{"a nothing among integers", say("*4\r\n:1\r\n$-1\r\n:0\r\n:0\r\n"), redisstore.ErrReply},
	{"arrays", say("*4\r\n*0\r\n*0\r\n*0\r\n*0\r\n"), redisstore.ErrReply},
	{"no verdict", say("*4\r\n:2\r\n:0\r\n:0\r\n:0\r\n"), redisstore.ErrReply},
	{"a negative verdict", say("*4\r\n:-1\r\n:0\r\n:0\r\n:0\r\n"), redisstore.ErrReply},
	{"a negative count", say("*4\r\n:1\r\n:-1\r\n:0\r\n:0\r\n"), redisstore.ErrReply},
	{"a negative wait", say("*4\r\n:0\r\n:5\r\n:1\r\n:-9223372036854775808\r\n"), redisstore.ErrReply},
	// What the client would send again by itself.
	{"LOADING", say("-LOADING Redis is loading the dataset in memory\r\n"), nil},
	{"MASTERDOWN", say("-MASTERDOWN Link with MASTER is down\r\n"), nil},
	{"CLUSTERDOWN", say("-CLUSTERDOWN The cluster is down\r\n"), nil},
	{"TRYAGAIN", say("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), nil},
	{"NOREPLICAS", say("-NOREPLICAS Not enough good replicas to write.\r\n"), nil},
	{"max clients", say("-ERR max number of clients reached\r\n"), nil},
	{"BUSY", say("-BUSY Redis is busy running a script.\r\n"), nil},
	{"ERR", say("-ERR of a kind that nobody knows\r\n"), nil},
}

// RESP3 has more shapes.
var faults3 = []struct {
	name, reply string
}{
	{"floats", "*4\r\n,1\r\n,0\r\n,0\r\n,0\r\n"},
	{"booleans", "*4\r\n#t\r\n:0\r\n:0\r\n:0\r\n"},
	{"a big number", "*4\r\n:1\r\n(3492890328409238509324850943850943825024385\r\n:0\r\n:0\r\n"},
	{"a map", "%2\r\n:1\r\n:0\r\n:2\r\n:0\r\n"},
	{"null", "_\r\n"},
	{"an error", "!9\r\nERR a bulk\r\n"},
}

// A charge whose reply is corrupt is an error within the timeout and is taken once,
// whatever the client does about its own commands.
func TestCorruptReplies(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	direct := reliable(t, server.Addr)
	if charged(t, direct, "nobody", kinds[0]) != 0 { // the script is known from here on
		t.Fatal("not fresh")
	}
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			all := faults
			for _, f := range faults3 {
				if c.name != "RESP2" {
					all = append(all[:len(all):len(all)], spoiling{f.name, say(f.reply), nil})
				}
			}
			for i, f := range all {
				// Each kind has its turn, but a slot is released: see lost_test.go.
				rates := slices.DeleteFunc(slices.Clone(kinds), func(l core.Limit) bool { return l.Rule().TakesSlots() })
				l := rates[i%len(rates)]
				t.Run(f.name, func(t *testing.T) {
					rdb := c.open(proxy.Addr)
					defer rdb.Close()
					store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: f.timeout()}))
					lim := core.Must(core.New(store, l))
					who := fmt.Sprint(user, c.name, i)
					sent := f.spoil(t, proxy, store, lim, who)
					_ = rdb.Close()
					if n := charged(t, direct, who, l); n != 1 {
						t.Errorf("%d are charged, not 1", n)
					}
					if sent += names(proxy.Commands()); sent != "fcall" {
						t.Errorf("the client sent %s", sent)
					}
				})
			}
		})
	}
}

// A corrupt reply does not affect a later one: no connection is used again with an answer on it
// that belongs to another.
func TestAnswersStayWithTheirQuestions(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: 20 * time.Millisecond})
	direct := reliable(t, server.Addr)
	lim := core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))
	var n, answered, late atomic.Int64
	proxy.Spoil(func(_ []string, reply []byte) ([]byte, bool) {
		if n.Add(1)%3 == 0 {
			time.Sleep(30 * time.Millisecond)
		}
		return reply, false
	})
	together(8, func(i int) {
		who := fmt.Sprint(user, i)
		sent, last := 0, 0
		for range 30 {
			sent++
			d, err := lim.Allow(t.Context(), who, action)
			if err != nil {
				late.Add(1)
				continue
			}
			answered.Add(1)
			used := 1000 - d.Remaining
			if used <= last || used > sent {
				t.Errorf("%d are charged of %d sent, and before it were %d", used, sent, last)
			}
			last = used
		}
	})
	proxy.Spoil(nil)
	if answered.Load() == 0 || late.Load() == 0 {
		t.Errorf("%d answered, %d late", answered.Load(), late.Load())
	}
	for i := range 8 {
		if c := charged(t, direct, fmt.Sprint(user, i), core.FixedWindow(1000, time.Hour)); c > 30 {
			t.Errorf("%d are charged of 30 sent", c)
		}
	}
}

// What the server did not run it may be sent again: a cluster's redirections.
func TestRedirection(t *testing.T) {
	server, proxy := proxied(t)
	direct := reliable(t, server.Addr)
	for _, word := range []string{"MOVED", "ASK"} {
		t.Run(word, func(t *testing.T) {
			rdb := clients[3].open(proxy.Addr)
			defer rdb.Close()
			lim := core.Must(core.New(ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient})), kinds[0]))
			var asked atomic.Bool
			proxy.Answer(func(command []string) []byte {
				switch {
				case command[0] == "asking":
					return []byte("+OK\r\n")
				case command[0] == "fcall" && asked.CompareAndSwap(false, true):
					return fmt.Appendf(nil, "-%s 1 %s\r\n", word, proxy.Addr)
				}
				return nil
			})
			defer proxy.Answer(nil)
			d, err := lim.Allow(t.Context(), user+word, action)
			if err != nil || !d.Allowed || !asked.Load() {
				t.Errorf("%+v, %v", d, err)
			}
			if n := charged(t, direct, user+word, kinds[0]); n != 1 {
				t.Errorf("%d are charged", n)
			}
		})
	}
}

// A Cluster's client repeats a command that a replica has refused. Nothing was written.
func TestAReplicaChargesNothing(t *testing.T) {
	server, proxy := proxied(t)
	rdb := clients[3].open(proxy.Addr)
	defer rdb.Close()
	store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}))
	direct := reliable(t, server.Addr)
	if _, err := core.Must(core.New(store, kinds...)).Allow(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for _, l := range kinds {
		proxy.Commands()
		refusedBy(t, store, "READONLY", l)
		refusedBy(t, store, "READONLY", append([]core.Limit{l.Named("first")}, kinds...)...)
		if got := strings.Count(names(proxy.Commands()), "fcall"); got < 4 {
			t.Errorf("%s: sent %d times: the client repeats nothing", l, got)
		}
	}
	server.Do("REPLICAOF", "NO", "ONE")
	for _, l := range kinds {
		if n := charged(t, direct, user, l); n != 1 {
			t.Errorf("%s: %d are charged, not 1", l, n)
		}
	}
}

// Options.Timeout holds whatever the client's own options are, and whatever it is that
// does not answer.
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

func TestStoppedServer(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	const timeout = 50 * time.Millisecond
	store := redisstore.New(rdb, nil)
	l := core.MovingWindow(1000, time.Hour)
	lim := core.Must(core.New(store, l))
	within(t, "the client is connected", func() bool {
		_, err := lim.Peek(t.Context(), user, action)
		return err == nil
	})
	server.Pause()
	resumed := false
	defer func() {
		if !resumed {
			server.Resume()
		}
	}()
	const callers = 60
	together(callers, func(int) {
		start := time.Now()
		d, err := lim.Allow(t.Context(), user, action)
		if took := time.Since(start); took > timeout+slack {
			t.Errorf("it took %s", took)
		}
		if !errors.Is(err, redisstore.ErrTimeout) || d != (core.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
	server.Resume()
	resumed = true
	within(t, "it works again", func() bool {
		_, err := lim.Peek(t.Context(), user, action)
		return err == nil
	})
	// What was sent has been taken by now, and nothing of it twice.
	idle(t, store)
	if n := charged(t, reliable(t, server.Addr), user, l); n > callers {
		t.Errorf("%d are charged of %d", n, callers)
	}
}

// A connection takes several round trips to open, and so may take longer than a decision.
func TestConnectionThatTakesLongToOpen(t *testing.T) {
	server := redistest.Start(t)
	for _, enabled := range []bool{false, true} {
		rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: enabled, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
			c, err := net.Dial(network, addr)
			return &slowToOpen{Conn: c}, err
		}})
		lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
		within(t, fmt.Sprint("it is open, ContextTimeoutEnabled: ", enabled), func() bool {
			_, err := lim.Allow(t.Context(), user, action)
			return err == nil
		})
	}
}

// slowToOpen is a connection with a server whose first replies are late.
type slowToOpen struct {
	net.Conn
	replies int
}

func (c *slowToOpen) Read(b []byte) (int, error) {
	if c.replies++; c.replies <= 3 {
		time.Sleep(25 * time.Millisecond)
	}
	return c.Conn.Read(b)
}

func TestAnExhaustedPool(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, PoolSize: 1})
	store := redisstore.New(rdb, nil)
	lim := core.Must(core.New(store, kinds[0]))
	conn := rdb.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil { // has it now
		t.Fatal(err)
	}
	together(20, func(int) {
		start := time.Now()
		d, err := lim.Allow(t.Context(), user, action)
		if took := time.Since(start); took > 50*time.Millisecond+slack {
			t.Errorf("it took %s", took)
		}
		if !errors.Is(err, redisstore.ErrTimeout) || d != (core.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	idle(t, store)
	if n := charged(t, reliable(t, server.Addr), user, kinds[0]); n != 0 {
		t.Errorf("%d are charged that were not sent", n)
	}
	if c := proxy.Commands(); len(c) != 0 {
		t.Errorf("sent: %s", names(c))
	}
	within(t, "it works again", func() bool {
		d, err := lim.Allow(t.Context(), user, action)
		return err == nil && d.Allowed
	})
}
