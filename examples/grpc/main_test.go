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
	"testing"
	"time"

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
)

// A greets is a client.
type greets struct{ *grpc.ClientConn }

const greetMethod, watchMethod = "/greet.v1.GreetService/Greet", "/greet.v1.GreetService/Watch"

func (c greets) greet(ctx context.Context, trailer *metadata.MD) error {
	return c.Invoke(ctx, greetMethod, wrapperspb.String("Lao Qian"), new(wrapperspb.StringValue), grpc.Trailer(trailer))
}

func (c greets) watch(ctx context.Context, trailer *metadata.MD) error {
	stream, err := c.NewStream(ctx, &greeter.Streams[0], watchMethod, grpc.Trailer(trailer))
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

func client(t *testing.T, calls *core.Limiter) (c greets, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server(calls)
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return greets{conn}, l.Addr().String()
}

// The refusal tells the program (RetryInfo) and the client (the trailer) when to call again.
func TestTheSixthCallIsRefused(t *testing.T) {
	for kind, call := range map[string]func(greets, context.Context, *metadata.MD) error{"unary": greets.greet, "stream": greets.watch} {
		t.Run(kind, func(t *testing.T) {
			c, _ := client(t, fivePerMinute(memorystore.New(nil)))
			var trailer metadata.MD
			for i := range 5 {
				if err := call(c, as(t.Context(), "alice"), &trailer); err != nil {
					t.Fatalf("call %d: %v", i+1, err)
				}
			}
			s := status.Convert(call(c, as(t.Context(), "alice"), &trailer))
			if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
				t.Fatalf("the sixth call: %v", s)
			}
			info, ok := s.Details()[0].(*errdetails.RetryInfo)
			wait := info.GetRetryDelay().AsDuration()
			if !ok || wait <= 0 || wait > time.Minute {
				t.Errorf("retry in %s, want up to a minute", wait)
			}
			if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != pushback(t.Context(), wait) {
				t.Errorf("the client retries in %q ms, want %s", got, wait)
			}
			if err := call(c, as(t.Context(), "xiaoming"), &trailer); err != nil {
				t.Errorf("another user: %v", err)
			}
		})
	}
}

func TestACallWithoutAUserIsRefused(t *testing.T) {
	c, _ := client(t, fivePerMinute(memorystore.New(nil)))
	for _, users := range [][]string{nil, {""}, {"a", "b"}} {
		ctx := t.Context()
		for _, user := range users {
			ctx = as(ctx, user)
		}
		if err := c.greet(ctx, new(metadata.MD)); status.Code(err) != codes.Unauthenticated {
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
		if err := c.greet(as(t.Context(), "alice"), new(metadata.MD)); err != nil {
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
