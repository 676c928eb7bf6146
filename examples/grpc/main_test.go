package main

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func client(t *testing.T) grpc_health_v1.HealthClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server()
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func TestTheSixthCallIsRefused(t *testing.T) {
	c := client(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user-id", "alice")
	for i := range 6 {
		_, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
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
	other := metadata.AppendToOutgoingContext(t.Context(), "x-user-id", "xiaoming")
	if _, err := c.Check(other, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestTheSixthStreamIsRefused(t *testing.T) {
	c := client(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user-id", "alice")
	for i := range 6 {
		stream, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want := codes.OK
		if i == 5 {
			want = codes.ResourceExhausted
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("stream %d: %v, want %s", i+1, err, want)
		}
	}
}

func TestACallWithoutAUserIsRefused(t *testing.T) {
	c := client(t)
	for _, users := range [][]string{nil, {""}, {"a", "b"}} {
		ctx := t.Context()
		for _, user := range users {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-user-id", user)
		}
		if _, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("users %q: %v", users, err)
		}
	}
}

// The store's error stays in the log.
func TestWithoutADecisionTheCallIsUnavailable(t *testing.T) {
	calls := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-user-id", "alice")))
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
