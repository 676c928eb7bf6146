// Command grpc limits a gRPC server with interceptors over package core: five calls of
// each method a minute for each user. A stream is one call. A refusal says when to call again, for the client
// (grpc-retry-pushback-ms) and for the program behind it (RetryInfo).
package main

import (
	"context"
	"log"
	"net"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// check asks limiter before a call. The action is the method's full name.
func check(ctx context.Context, limiter *core.Limiter, method string) error {
	user := metadata.ValueFromIncomingContext(ctx, "x-user-id") // the gateway sets it
	if len(user) != 1 || user[0] == "" {
		return status.Error(codes.Unauthenticated, "the call does not say which user it is for")
	}
	d, err := limiter.Allow(ctx, user[0], method)
	if err != nil {
		log.Print(err)
		return status.Error(codes.Unavailable, "the limit cannot be checked at present")
	}
	if !d.Allowed {
		if err := grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", pushback(ctx, d.RetryAfter))); err != nil {
			log.Print(err)
		}
		return refusal(d)
	}
	return nil
}

// pushback tells a client with a retry policy when to try again, in milliseconds. Such a client does not
// read RetryInfo. -1 forbids a retry: none could pass, or the wait is longer than the caller's deadline.
func pushback(ctx context.Context, wait time.Duration) string {
	end, ends := ctx.Deadline()
	if wait == core.Never || ends && wait >= time.Until(end) {
		return "-1"
	}
	return strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10)
}

// refusal tells the program behind the client when to come back.
func refusal(d core.Decision) error {
	s := status.New(codes.ResourceExhausted, "too many calls")
	if d.RetryAfter != core.Never {
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}); err == nil {
			s = detailed
		}
	}
	return s.Err()
}

func fivePerMinute(store core.Store) *core.Limiter {
	return core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
}

func server(calls *core.Limiter) *grpc.Server {
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := check(ctx, calls, info.FullMethod); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	stream := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := check(ss.Context(), calls, info.FullMethod); err != nil {
			return err
		}
		return handler(srv, ss)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	return s
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server(fivePerMinute(memorystore.New(nil))).Serve(l))
}
