package batch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A farServer is a Redis at the other end of a network with a constant delay. It answers one
// command at a time, and takes perCall for each call in it.
type farServer struct {
	roundTrip time.Duration
	perCall   time.Duration
	turn      chan struct{} // a mutex would stop the clock
	charged   int
	taken     int // commands
	loses     int // one reply of so many; 0: none
	ends      []net.Conn
	dead      map[net.Conn]bool // connections that the network has forgotten
	deaf      bool              // what is sent on those does not arrive, as well as the replies
}

// forget has the network forget all connections.
func (s *farServer) forget(deaf bool) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.dead, s.deaf = map[net.Conn]bool{}, deaf
	for _, c := range s.ends {
		s.dead[c] = true
	}
}

func (s *farServer) forgot(conn net.Conn) (dead, deaf bool) {
	if s.turn != nil {
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
	}
	return s.dead[conn], s.dead[conn] && s.deaf
}

func (s *farServer) dial(context.Context, string, string) (net.Conn, error) {
	time.Sleep(s.roundTrip)
	client, server := net.Pipe()
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if len(s.ends) == 0 {
		time.Sleep(s.roundTrip) // the client asks the first one for maintenance notifications, which are off here
	}
	s.ends = append(s.ends, client, server)
	go s.serve(server)
	return client, nil
}

func (s *farServer) serve(conn net.Conn) {
	type command struct {
		words []string
		sent  time.Time
	}
	commands := make(chan command, 100)
	go func() {
		defer close(commands)
		for r := bufio.NewReader(conn); ; {
			var words []string
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
			for range n {
				line, _ = r.ReadString('\n')
				size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
				word := make([]byte, size+2)
				_, _ = io.ReadFull(r, word)
				words = append(words, string(word[:size]))
			}
			commands <- command{words, time.Now()}
		}
	}()
	for c := range commands {
		time.Sleep(time.Until(c.sent.Add(s.roundTrip / 2)))
		if _, deaf := s.forgot(conn); deaf {
			continue
		}
		reply := "-ERR unknown command\r\n"
		if c.words[0] == "take" {
			n, _ := strconv.Atoi(c.words[1])
			s.turn <- struct{}{}
			time.Sleep(time.Duration(n) * s.perCall)
			s.charged += n
			s.taken++
			lost := s.loses > 0 && s.taken%s.loses == 0
			<-s.turn
			if lost {
				continue
			}
			reply = ":1\r\n"
		}
		if c.words[0] == "hello" {
			reply = "%1\r\n+proto\r\n:3\r\n"
		} else if c.words[0] == "ping" {
			reply = "+PONG\r\n"
		}
		time.Sleep(s.roundTrip / 2)
		if dead, _ := s.forgot(conn); !dead {
			_, _ = conn.Write([]byte(reply))
		}
	}
}

// A farRun is what callers were told, in the first two seconds and after them.
type farRun struct{ calls, unanswered [2]int }

// run has callers ask one call after another for so long.
func (s *farServer) run(t *testing.T, callers, poolSize int, last time.Duration) (r farRun) {
	bubble(t, func(t *testing.T) {
		s.turn = make(chan struct{}, 1)
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: poolSize, Dialer: s.dial, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		q := New(rdb, 50*time.Millisecond, func(send Send, calls []*Call) error {
			reply, err := send([]any{"take", len(calls)}, 0)
			for _, c := range calls {
				c.Reply = reply
			}
			return err
		})
		if err := q.Connect(t.Context(), func(string, Send) error { return nil }); err != nil {
			t.Error(err)
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		start := time.Now()
		for i := range callers {
			wg.Go(func() {
				for time.Since(start) < last {
					part := min(1, int(time.Since(start)/(2*time.Second)))
					_, err := q.Do(t.Context(), &Call{Keys: []string{fmt.Sprint(i)}, Weight: 1})
					mu.Lock()
					if r.calls[part]++; err != nil {
						r.unanswered[part]++
					}
					mu.Unlock()
					time.Sleep(rand.N(time.Millisecond))
				}
			})
		}
		wg.Wait()
		for n, sending := q.Load(); n+sending > 0; n, sending = q.Load() {
			time.Sleep(time.Millisecond)
		}
		_ = rdb.Close()
		s.turn <- struct{}{} // a check of the server may dial still
		for _, c := range s.ends {
			_ = c.Close()
		}
		<-s.turn
	})
	return r
}

// Calls are answered over a slow network, whatever the number of callers and connections.
// TAILCUT_FAR=1 runs all cells. Of 5,000 callers who begin at the same instant, Redis takes 20 ms to
// decide, and over 40 ms only 10 ms are left: so they first have to spread, and with four connections
// that takes longer than two seconds.
func TestFar(t *testing.T) {
	type cell struct{ roundTrip, callers, poolSize int }
	cells := []cell{{1, 500, 4}, {15, 80, 20}, {25, 10, 10}, {25, 500, 20}, {40, 80, 4}, {40, 500, 4}, {40, 500, 20}, {40, 5000, 10}}
	if os.Getenv("TAILCUT_FAR") != "" {
		cells = nil
		for _, callers := range []int{10, 80, 500, 5000} {
			for _, roundTrip := range []int{1, 15, 25, 40} {
				for _, poolSize := range []int{4, 10, 20} {
					cells = append(cells, cell{roundTrip, callers, poolSize})
				}
			}
		}
	}
	for _, c := range cells {
		t.Run(fmt.Sprintf("%d ms, %d callers, PoolSize %d", c.roundTrip, c.callers, c.poolSize), func(t *testing.T) {
			s := &farServer{roundTrip: time.Duration(c.roundTrip) * time.Millisecond, perCall: 4 * time.Microsecond}
			r := s.run(t, c.callers, c.poolSize, 3*time.Second)
			part := func(i int) float64 { return float64(r.unanswered[i]) / float64(max(1, r.calls[i])) }
			t.Logf("%.1f%% of %d without an answer in the first two seconds, then %.1f%% of %d; %d were charged of %d", 100*part(0), r.calls[0], 100*part(1), r.calls[1], s.charged, r.calls[0]+r.calls[1])
			first, then := 0.05, 0.01
			if c.roundTrip == 40 && c.callers == 5000 {
				first = 0.25
				if c.poolSize == 4 {
					then = 0.05
				}
			}
			if part(0) > first || part(1) > then {
				t.Error("too many calls have no answer")
			}
			if without := s.charged - (r.calls[0] + r.calls[1] - r.unanswered[0] - r.unanswered[1]); without > manyBatches*c.callers/10 {
				t.Errorf("%d were charged without an answer", without)
			}
		})
	}
}

// A batch waits for callers who were just answered, but not for long: with few connections, the calls that
// queue meanwhile would wait for nothing.
func TestFewConnectionsOverASlowNetwork(t *testing.T) {
	s := &farServer{roundTrip: 25 * time.Millisecond, perCall: 4 * time.Microsecond}
	if r := s.run(t, 80, 3, 3*time.Second); r.calls[0]+r.calls[1] < 8600 || r.unanswered != [2]int{} {
		t.Errorf("%d calls, %d without an answer", r.calls, r.unanswered)
	}
}

// One reply that is lost among others says nothing of the server, so the other calls go on.
func TestALostReplyStopsNobodyElse(t *testing.T) {
	s := &farServer{roundTrip: 25 * time.Millisecond, perCall: 4 * time.Microsecond, loses: 50}
	r := s.run(t, 80, 20, 3*time.Second)
	t.Logf("%d calls, %d without an answer", r.calls, r.unanswered)
	if part := float64(r.unanswered[0]+r.unanswered[1]) / float64(r.calls[0]+r.calls[1]); part > 0.03 {
		t.Errorf("%.1f%% of the calls have no answer, and one reply in 50 is lost", 100*part)
	}
}
