package redisstore_test

import (
	"errors"
	"fmt"
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
func (s *spoiling) spoil(t *testing.T, proxy *redistest.Proxy, store asking, lim *core.Limiter, who string) (sent string) {
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

// No charge is made twice, because the store disables the client's retries. A charge whose reply is corrupt is an
// error within the timeout.
func TestCorruptReplies(t *testing.T) {
	noLeak(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, proxy := proxied(t)
			direct := reliable(t, server.Addr) // the library is known from here on
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
