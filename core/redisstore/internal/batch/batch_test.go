package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// No more batches are under way than the client has connections, so more callers fill the batches.
func TestNoMoreBatchesThanConnections(t *testing.T) {
	for o, want := range map[[2]int]int{{1, 0}: 1, {5, 0}: 5, {1000, 0}: manyBatches, {1000, 7}: 7, {5, 7}: 5} {
		bubble(t, func(t *testing.T) {
			s := &server{let: make(chan struct{})}
			q := New(client(t, redis.Options{PoolSize: o[0], MaxActiveConns: o[1]}), timeout, s.exchange)
			c := &callers{t: t, q: q}
			c.call(t.Context(), "far away", 1)
			time.Sleep(manyBatches * perBatch)
			s.let <- struct{}{}
			c.wait()
			for i := range 400 {
				c.call(t.Context(), fmt.Sprint(i), 1)
				time.Sleep(2 * time.Millisecond)
			}
			if s.most != want {
				t.Errorf("%d batches are under way, want %d", s.most, want)
			}
			close(s.let)
			c.wait()
			for i := range 400 {
				if err := c.answer(fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
			if most := s.sizes[len(s.sizes)-1]; most < 300 {
				t.Errorf("the last batch has %d of the %d calls that queued", most, 400-want)
			}
		})
	}
}

// Calls without a weight are sent alone, as many at a time as there are connections.
func TestCallsThatAreSentAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{let: make(chan struct{})}
		c := &callers{t: t, q: New(client(t, redis.Options{PoolSize: 40}), timeout, s.exchange)}
		for i := range 100 {
			c.call(t.Context(), fmt.Sprint(i), 0)
		}
		if s.most != 40 || s.sent() != 40 {
			t.Errorf("%d are under way", s.most)
		}
		close(s.let)
		c.wait()
		if len(s.sizes) != 100 {
			t.Errorf("100 calls were sent in %d commands", len(s.sizes))
		}
		synctest.Wait()
		if n := len(c.q.lanes); n > 0 {
			t.Errorf("%d lanes are kept of servers that may be gone", n)
		}
	})
}

// A call that is passed over, since its answer would come too late, ends at its timeout, though its sender
// has ended.
func TestACallThatIsPassedOverEnds(t *testing.T) {
	for _, weight := range []int{0, 1} {
		bubble(t, func(t *testing.T) {
			s := &server{let: make(chan struct{})}
			c := &callers{t: t, q: New(client(t, redis.Options{PoolSize: 1}), timeout, s.exchange)}
			c.call(t.Context(), "sent", weight)
			c.call(t.Context(), "passed over", weight)
			time.Sleep(timeout * 9 / 10)
			close(s.let)
			time.Sleep(timeout)
			if err := c.answer("sent"); err != nil {
				t.Error(err)
			}
			if err := c.answer("passed over"); !errors.Is(err, context.DeadlineExceeded) || s.sent() != 1 {
				t.Errorf("%v; %d calls were sent", err, s.sent())
			}
			c.wait()
		})
	}
}

// After a stall the calls that queued meanwhile are sent: a single slow answer does not say that the
// next one will be slow.
func TestCallsThatQueueDuringAStallAreSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{let: make(chan struct{})}
		c := &callers{t: t, q: New(client(t, redis.Options{PoolSize: 1}), timeout, s.exchange)}
		c.call(t.Context(), "quick", 1)
		time.Sleep(time.Millisecond)
		s.let <- struct{}{}
		c.call(t.Context(), "stalls", 1)
		time.Sleep(timeout / 2)
		c.call(t.Context(), "queues", 1)
		time.Sleep(timeout / 3)
		close(s.let)
		c.wait()
		for _, key := range []string{"stalls", "queues"} {
			if err := c.answer(key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	})
}

// A call whose keys are in two slots has no reply, and is not sent again.
func TestALoneCallAcrossSlotsIsSentOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var sent atomic.Int32
		refuse := func(Send, []*Call) error {
			sent.Add(1)
			return Apart{redisError("CROSSSLOT Keys in request don't hash to the same slot")}
		}
		c := &callers{t: t, q: New(client(t, redis.Options{PoolSize: 1}), timeout, refuse)}
		c.call(t.Context(), "all", 1)
		c.wait()
		if err := c.answer("all"); !redis.HasErrorPrefix(err, "CROSSSLOT") || sent.Load() != 1 {
			t.Errorf("%v; sent %d times", err, sent.Load())
		}
	})
}

// If a server refuses calls because they are together, each is sent alone, once, but for one whose caller has left. A
// batch that was run is not sent again, although calls have to be sent alone from then on.
func TestCallsThatAreRefusedTogether(t *testing.T) {
	for _, refused := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			var sent []string
			ctx, leave := context.WithCancel(t.Context())
			c := &callers{t: t}
			c.q = New(client(t, redis.Options{PoolSize: 1}), timeout, func(_ Send, calls []*Call) error {
				time.Sleep(time.Second)
				if len(calls) > 1 {
					c.q.SendApart()
					leave()
					time.Sleep(time.Second)
					if refused {
						return Apart{redisError("not together")}
					}
				}
				for _, c := range calls {
					sent = append(sent, c.Keys[0])
					c.Reply = []any{c.Keys[0]}
				}
				return nil
			})
			c.call(t.Context(), "first", 1)
			c.call(t.Context(), "a", 1)
			c.call(ctx, "left", 1)
			c.call(t.Context(), "b", 1)
			c.wait()
			c.call(t.Context(), "later", 1)
			c.wait()
			want := "first a left b later"
			if refused {
				want = "first a b later"
			}
			if got := strings.Join(sent, " "); got != want {
				t.Errorf("refused %t: sent %s, want %s", refused, got, want)
			}
			for _, key := range []string{"first", "a", "b", "later"} {
				if err := c.answer(key); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
			if err := c.answer("left"); !errors.Is(err, context.Canceled) {
				t.Errorf("left: %v", err)
			}
		})
	}
}

// Callers that leave before their calls are sent are not sent, and do not strand the one behind
// them, also if they are more than a batch has room for.
func TestTheCallOfADepartedCallerIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{let: make(chan struct{})}
		c := &callers{t: t, q: New(client(t, redis.Options{PoolSize: 1}), timeout, s.exchange)}
		ctx, leave := context.WithCancel(t.Context())
		c.call(t.Context(), "first", 1)
		for i := range 2*maxWeight + 76 {
			c.call(ctx, fmt.Sprint(i), 1)
		}
		c.call(t.Context(), "alive", 1)
		leave()
		synctest.Wait()
		close(s.let)
		c.wait()
		if err := c.answer("alive"); err != nil {
			t.Error(err)
		}
		if n := s.sent(); n != 2 {
			t.Errorf("%d calls were sent", n)
		}
	})
}

// A command's error is that of all its calls, but for those that have a reply.
func TestAnErrorIsOfThoseWithoutAReply(t *testing.T) {
	own, all := errors.New("its own"), errors.New("of all")
	for _, panics := range []bool{false, true} {
		let := make(chan struct{})
		q := New(client(t, redis.Options{PoolSize: 1}), timeout, func(_ Send, calls []*Call) error {
			<-let
			for _, c := range calls {
				switch c.Keys[0] {
				case "replied":
					c.Reply = []any{1}
				case "own":
					c.Err = own
				}
			}
			if panics {
				panic("of all")
			}
			return all
		})
		q.panicked.Due() // so that it is not logged
		var wg sync.WaitGroup
		for _, key := range []string{"first", "replied", "own", "all"} {
			wg.Go(func() {
				_, err := q.Do(t.Context(), &Call{Keys: []string{key}, Weight: 1})
				want := map[string]string{"replied": "<nil>", "own": "its own"}[key]
				if want == "" {
					want = map[bool]string{false: "of all", true: "panic: of all"}[panics]
				}
				if fmt.Sprint(err) != want {
					t.Errorf("%s: %v, want %s", key, err, want)
				}
			})
			time.Sleep(time.Millisecond)
		}
		close(let)
		wg.Wait()
	}
}

// Of the panics of a client, the first one is logged, and after that one a minute.
func TestPanicsAreLoggedOnceAMinute(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		var c redisClient
		for _, after := range []time.Duration{0, 1, 1, 1, time.Minute} {
			time.Sleep(after)
			func() (err error) {
				defer c.guard(&err)
				panic("a bug in a hook")
			}()
		}
	})
	if n := strings.Count(log.String(), "redis-panic"); n != 2 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

func TestACallerSendsItselfOnlyIfTheClientHeedsDeadlines(t *testing.T) {
	for name, o := range map[string]redis.Options{
		"":                     {},
		"no timeouts":          {ReadTimeout: -1, WriteTimeout: -1},
		"no deadline to read":  {ReadTimeout: -2, WriteTimeout: -1},
		"no deadline to write": {WriteTimeout: -2},
	} {
		o.ContextTimeoutEnabled = true
		if got, want := New(client(t, o), timeout, nil).heeds, !strings.HasPrefix(name, "no deadline"); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

// panicsLater is a client whose second look-up of a server panics: the first is its caller's, and the
// second is in a goroutine that sends.
type panicsLater struct {
	redis.UniversalClient
	server  *redis.Client
	lookups atomic.Int32
}

func (p *panicsLater) MasterForKey(context.Context, string) (*redis.Client, error) {
	if p.lookups.Add(1) > 1 {
		panic("the look-up panics")
	}
	return p.server, nil
}

// A client that panics while a sender looks up its server costs an error, and not the process.
func TestAPanicInALookUpIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := client(t, redis.Options{PoolSize: 1})
		q := New(&panicsLater{UniversalClient: server, server: server}, timeout, nil)
		q.reached.Store(true)
		if _, err := q.Do(t.Context(), &Call{Keys: []string{"k"}, Weight: 1}); err == nil || !strings.Contains(err.Error(), "the look-up panics") {
			t.Error(err)
		}
	})
}

// If connections are closed again and again, as by a proxy that fails now and then, a call waits for the next
// check only, however long the timeout is.
func TestClosedConnectionsDoNotDelayCalls(t *testing.T) {
	for name, weight := range map[string]int{"in batches": 1, "alone": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := 0
				answer := func() error {
					if n++; n%4 > 0 {
						return io.EOF
					}
					return nil
				}
				q := New(client(t, redis.Options{}), timeout, func(_ Send, calls []*Call) error {
					for _, c := range calls {
						c.Reply = []any{"done"}
					}
					if err := answer(); err != nil {
						calls[0].Reply = nil
						return err
					}
					return nil
				})
				for range 20 {
					c, begun := &Call{Keys: []string{"a"}, Weight: weight}, time.Now()
					if weight == 0 {
						c.Command = func(Send) ([]any, error) { return []any{"done"}, answer() }
					}
					_, err := q.Do(t.Context(), c)
					if took := time.Since(begun); took > time.Second || err != nil && err != io.EOF {
						t.Errorf("%v after %s", err, took)
					}
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// A sender that waits for its turn while the connections are closed sends nothing any more. Its call is sent by
// the one that starts when a new connection answers.
func TestASenderThatWaitedForItsTurnKeepsNobodyWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{let: make(chan struct{})}
		closed := make(chan struct{})
		q := New(client(t, redis.Options{PoolSize: 3}), timeout, func(send Send, calls []*Call) error {
			if calls[0].Keys[0] == "closed" {
				<-closed
				return io.EOF
			}
			return s.exchange(send, calls)
		})
		c := &callers{t: t, q: q}
		c.call(t.Context(), "far away", 1)
		time.Sleep(timeout / 2)
		s.let <- struct{}{}
		c.wait()
		c.call(t.Context(), "closed", 1)
		c.call(t.Context(), "waits", 1)
		close(closed)
		close(s.let)
		c.wait()
		if err := c.answer("waits"); err != nil {
			t.Error(err)
		}
	})
}
