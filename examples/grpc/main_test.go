package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A greets is a client.
type greets struct{ *grpc.ClientConn }

const greetMethod, watchMethod = "/greet.v1.GreetService/Greet", "/greet.v1.GreetService/Watch"

func (c greets) greet(ctx context.Context, name string) error {
	return c.Invoke(ctx, greetMethod, wrapperspb.String(name), new(wrapperspb.StringValue))
}

func (c greets) watch(ctx context.Context) error {
	stream, err := c.NewStream(ctx, &greeter.Streams[0], watchMethod)
	if err == nil {
		err = stream.SendMsg(wrapperspb.String(""))
	}
	if err == nil || err == io.EOF {
		err = stream.RecvMsg(new(wrapperspb.StringValue))
	}
	return err
}

func as(ctx context.Context, user string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer of-"+user)
}

func client(t *testing.T, calls *core.Limiter, options ...grpc.DialOption) (c greets, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server(calls)
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return greets{conn}, l.Addr().String()
}

func TestTheSixthCallIsRefused(t *testing.T) {
	c, _ := client(t, fivePerMinute(memorystore.New(nil)))
	ctx := as(t.Context(), "alice")
	for i := range 6 {
		err := c.greet(ctx, "Lao Qian")
		if i < 5 {
			if err != nil {
				t.Fatalf("call %d: %v", i+1, err)
			}
			continue
		}
		s := status.Convert(err)
		if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
			t.Fatalf("the sixth call: %v", s)
		}
		info, ok := s.Details()[0].(*errdetails.RetryInfo)
		if wait := info.GetRetryDelay().AsDuration(); !ok || wait <= 0 || wait > time.Minute {
			t.Errorf("retry in %s, want up to a minute", wait)
		}
	}
	other := as(t.Context(), "xiaoming")
	if err := c.greet(other, "Lao Qian"); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestTheSixthStreamIsRefused(t *testing.T) {
	c, _ := client(t, fivePerMinute(memorystore.New(nil)))
	ctx := as(t.Context(), "alice")
	for i := range 6 {
		want := codes.OK
		if i == 5 {
			want = codes.ResourceExhausted
		}
		if err := c.watch(ctx); status.Code(err) != want {
			t.Errorf("stream %d: %v, want %s", i+1, err, want)
		}
	}
}

func TestACallWithoutAUserIsRefused(t *testing.T) {
	c, _ := client(t, fivePerMinute(memorystore.New(nil)))
	for _, users := range [][]string{nil, {""}, {"a", "b"}} {
		ctx := t.Context()
		for _, user := range users {
			ctx = as(ctx, user)
		}
		if err := c.greet(ctx, "Lao Qian"); status.Code(err) != codes.Unauthenticated {
			t.Errorf("users %q: %v", users, err)
		}
	}
}

// raw returns a client that speaks HTTP/2 and no gRPC, and a request that greets. It stays when its deadline has
// ended, and can send half a message.
func raw(t *testing.T, addr, user string, message io.Reader) (*http.Client, *http.Request) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: 10 * time.Second}
	t.Cleanup(c.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+greetMethod, message)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	if user != "" {
		r.Header.Set("Authorization", "Bearer of-"+user)
	}
	return c, r
}

// A call without a user, or above the limit, is answered while its message is still on its way.
func TestARefusedCallsMessageIsNotRead(t *testing.T) {
	c, addr := client(t, fivePerMinute(memorystore.New(nil)))
	for range 5 {
		if err := c.greet(as(t.Context(), "alice"), "Lao Qian"); err != nil {
			t.Fatal(err)
		}
	}
	for user, want := range map[string]codes.Code{"": codes.Unauthenticated, "alice": codes.ResourceExhausted} {
		message, send := io.Pipe()
		defer send.Close()
		go func() { _, _ = io.WriteString(send, "\x00\x00\x00\x03\xe8half of it") }()
		c, r := raw(t, addr, user, message)
		answer, err := c.Do(r)
		if err != nil {
			t.Fatalf("user %q: %v", user, err)
		}
		_ = answer.Body.Close()
		if got := answer.Header.Get("Grpc-Status"); got != strconv.Itoa(int(want)) {
			t.Errorf("user %q: status %q, want %d", user, got, want)
		}
	}
}

// What a client repeats fills no log.
func TestTheLogHasALimit(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer of-alice")))
	cancel()
	calls := fivePerMinute(memorystore.New(nil))
	for range 1000 {
		_ = check(ctx, calls, greetMethod)
	}
	if n := strings.Count(logged.String(), "\n"); n > 1 {
		t.Errorf("%d lines", n)
	}
}

// The probe of a platform has no user, and comes more often than five times a minute.
func TestAProbeIsNotLimited(t *testing.T) {
	c, _ := client(t, fivePerMinute(memorystore.New(nil)))
	for range 10 {
		if _, err := grpc_health_v1.NewHealthClient(c).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A client whose deadlines are shorter than Redis is far away changes nothing for other users:
// Redis, where alice has used up the limit, still decides.
func TestShortDeadlinesDoNotOpenTheBreaker(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	proxy.Spoil(func(_ []string, reply []byte) ([]byte, bool) {
		time.Sleep(20 * time.Millisecond)
		return reply, false
	})
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	var mu sync.Mutex
	unanswered := 0
	decided := core.Observe(redisstore.New(rdb, &redisstore.Options{Timeout: time.Second}), func(_ context.Context, o core.Observation) {
		mu.Lock()
		defer mu.Unlock()
		if o.Err != nil {
			unanswered++
		}
	})
	c, addr := client(t, fivePerMinute(core.Fallback(decided, memorystore.New(nil))))
	ctx := as(t.Context(), "alice")
	for range 5 {
		if err := c.greet(ctx, "Lao Qian"); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		raw, r := raw(t, addr, "eve", strings.NewReader("\x00\x00\x00\x00\x00"))
		r.Header.Set("Grpc-Timeout", "5m")
		if answer, err := raw.Do(r); err == nil { // else the server has reset the stream
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	}
	mu.Lock()
	if unanswered < 20 {
		t.Errorf("only %d of the 100 calls had no answer of Redis", unanswered)
	}
	mu.Unlock()
	if err := c.greet(ctx, "Lao Qian"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("alice's sixth call: %v", err)
	}
}

// The store's error stays in the log.
func TestWithoutADecisionTheCallIsUnavailable(t *testing.T) {
	calls := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer of-alice")))
	cancel() // which every store answers with an error
	err := check(ctx, calls, "/a/b")
	if s := status.Convert(err); s.Code() != codes.Unavailable || s.Message() != "the limit cannot be checked at present" {
		t.Error(err)
	}
}

func TestACallThatCanNeverPassHasNoRetryInfo(t *testing.T) {
	s := status.Convert(refusal(core.Decision{RetryAfter: core.Never}))
	if s.Code() != codes.ResourceExhausted || len(s.Details()) != 0 {
		t.Error(s)
	}
}

// retries has the client try a refused call up to four times, after 10 ms unless the server says another time.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

// A client with a retry policy waits for as long as the server says, or gives up at once if it says so. Without
// that it would try all its four attempts within 40 ms.
func TestAClientObeysThePushback(t *testing.T) {
	for _, c := range []struct {
		name     string
		limit    core.Limit // of which a first call uses all
		deadline time.Duration
		want     codes.Code
		attempts int
		waits    bool
	}{
		{"it waits, and passes", core.SlidingWindow(1, time.Second), 20 * time.Second, codes.OK, 2, true},
		{"it waits without a deadline", core.SlidingWindow(1, time.Second), 0, codes.OK, 2, true},
		{"the wait is past its deadline", core.SlidingWindow(1, time.Minute), 20 * time.Second, codes.ResourceExhausted, 1, false},
	} {
		for _, kind := range []string{"unary", "stream"} {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				var attempts atomic.Int32
				store := core.Observe(memorystore.New(nil), func(context.Context, core.Observation) { attempts.Add(1) })
				h, _ := client(t, core.Must(core.New(store, c.limit)), grpc.WithDefaultServiceConfig(retries))
				call := func(ctx context.Context) error {
					ctx = as(ctx, "alice")
					if kind == "unary" {
						return h.greet(ctx, "Lao Qian")
					}
					return h.watch(ctx)
				}
				if err := call(t.Context()); err != nil {
					t.Fatal(err)
				}
				attempts.Store(0)
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				begun := time.Now()
				err := call(ctx)
				if n := int(attempts.Load()); status.Code(err) != c.want || n != c.attempts {
					t.Errorf("%v after %d attempts; want %s after %d", err, n, c.want, c.attempts)
				}
				if took := time.Since(begun); c.waits && took < time.Second/2 {
					t.Errorf("it has waited for %s only", took)
				}
			})
		}
	}
}

// The pushback is the wait, rounded up to a millisecond.
func TestPushback(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range []struct {
		ctx  context.Context
		wait time.Duration
		want string
	}{
		{t.Context(), time.Microsecond, "1"},
		{t.Context(), 2 * time.Second, "2000"},
		{t.Context(), 2*time.Second + time.Microsecond, "2001"},
		{t.Context(), core.Never, "-1"},
		{ctx, 2 * time.Second, "2000"},
		{ctx, 10 * time.Second, "-1"},
		{ctx, core.Never, "-1"},
	} {
		if got := pushback(c.ctx, c.wait); got != c.want {
			t.Errorf("%s: %s, want %s", c.wait, got, c.want)
		}
	}
}
