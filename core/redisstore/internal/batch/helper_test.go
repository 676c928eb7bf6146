package batch

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

const timeout = time.Minute

func connects(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go new(farServer).serve(server)
	return client, nil
}

// client is a client that can connect, and answers nothing else: the tests' own exchange does.
func client(t *testing.T, o redis.Options) *redis.Client {
	o.Addr, o.Dialer = "127.0.0.1:1", connects
	rdb := redis.NewClient(&o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// A server answers a call with its first key, when it is let.
type server struct {
	let      chan struct{} // one for each batch; closed: all
	mu       sync.Mutex
	underWay int
	most     int   // under way at a time
	sizes    []int // of the batches
}

func (s *server) exchange(_ Send, calls []*Call) error {
	s.mu.Lock()
	s.underWay++
	s.most = max(s.most, s.underWay)
	s.sizes = append(s.sizes, len(calls))
	s.mu.Unlock()
	<-s.let
	s.mu.Lock()
	s.underWay--
	s.mu.Unlock()
	for _, c := range calls {
		c.Reply = []any{c.Keys[0]}
	}
	return nil
}

func (s *server) sent() (calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.sizes {
		calls += n
	}
	return calls
}

// callers are goroutines that each wait for a call.
type callers struct {
	t      *testing.T
	q      *Queue
	wg     sync.WaitGroup
	errors sync.Map // by key
}

func (c *callers) call(ctx context.Context, key string, weight int) {
	c.wg.Go(func() {
		reply, err := c.q.Do(ctx, &Call{Keys: []string{key}, Weight: weight})
		if err == nil && reply[0] != key {
			c.t.Errorf("%s has the reply %v", key, reply)
		}
		c.errors.Store(key, err)
	})
	synctest.Wait()
}

// wait waits until no call waits, and nothing is sent.
func (c *callers) wait() {
	c.wg.Wait()
	time.Sleep(time.Minute)
	if n, sending := c.q.Load(); n > 0 || sending > 0 {
		c.t.Errorf("%d calls wait, %d goroutines send", n, sending)
	}
}

// answer returns the error of a call that has ended.
func (c *callers) answer(key string) error {
	err, ok := c.errors.Load(key)
	if !ok {
		c.t.Fatalf("%s still waits", key)
	}
	e, _ := err.(error)
	return e
}

// bubble is synctest.Test. go-redis keeps timers for later use, and one of a bubble must not be used outside:
// two collections drop them.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
	runtime.GC()
	runtime.GC()
}
