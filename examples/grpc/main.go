// Command grpc limits a gRPC server: five calls of each method a minute for each user. A stream is one call. A
// call is checked before its first message is read. A refusal says when to call again, for the client
// (grpc-retry-pushback-ms) and for the program behind it (RetryInfo).
package main

import (
	"context"
	"log"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// login stands for your own check of a token. It believes everybody.
func login(ctx context.Context) (user string, ok bool) {
	tokens := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(tokens) != 1 {
		return "", false
	}
	user, ok = strings.CutPrefix(tokens[0], "Bearer of-")
	return user, ok && user != ""
}

// check asks limiter before a call. The action is the method's full name.
func check(ctx context.Context, limiter *core.Limiter, method string) error {
	user, ok := login(ctx)
	if !ok {
		return status.Error(codes.Unauthenticated, "the call does not say which user it is for")
	}
	d, err := limiter.Allow(ctx, user, method)
	if err != nil {
		complain(err)
		return status.Error(codes.Unavailable, "the limit cannot be checked at present")
	}
	if !d.Allowed {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", pushback(ctx, d.RetryAfter))) // it fails if the client has left
		return refusal(d)
	}
	return nil
}

// A client can repeat what fails, so the log has a limit too.
var lines = core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Minute)))

func complain(err error) {
	if d, _ := lines.Allow(context.Background(), "log", "no decision"); d.Allowed {
		log.Print(err)
	}
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

// limited checks the calls of the services that are registered with it. An interceptor of unary calls would
// do so after their message is read, and anybody could have the server read messages.
type limited struct {
	grpc.ServiceRegistrar
	calls *core.Limiter
}

func (l limited) RegisterService(service *grpc.ServiceDesc, impl any) {
	s := *service
	s.Methods, s.Streams = slices.Clone(s.Methods), slices.Clone(s.Streams)
	for i, m := range service.Methods {
		s.Methods[i].Handler = func(srv any, ctx context.Context, read func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
			if err := check(ctx, l.calls, "/"+s.ServiceName+"/"+m.MethodName); err != nil {
				return nil, err
			}
			return m.Handler(srv, ctx, read, next)
		}
	}
	for i, m := range service.Streams {
		s.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			if err := check(stream.Context(), l.calls, "/"+s.ServiceName+"/"+m.StreamName); err != nil {
				return err
			}
			return m.Handler(srv, stream)
		}
	}
	l.ServiceRegistrar.RegisterService(&s, impl)
}

// greeter is what protoc-gen-go-grpc makes of a service with a unary method and a stream.
var greeter = grpc.ServiceDesc{
	ServiceName: "greet.v1.GreetService", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Greet", Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var name wrapperspb.StringValue
		if err := read(&name); err != nil {
			return nil, err
		}
		return wrapperspb.String("Hello, " + name.GetValue() + "!"), nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(wrapperspb.String("Hello!"))
	}}},
}

func fivePerMinute(store core.Store) *core.Limiter {
	return core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
}

// server has no limit for the health service, since probes are no users.
func server(calls *core.Limiter) *grpc.Server {
	s := grpc.NewServer(grpc.MaxConcurrentStreams(100), grpc.MaxHeaderListSize(16<<10), grpc.MaxRecvMsgSize(64<<10))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	limited{s, calls}.RegisterService(&greeter, nil)
	return s
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server(fivePerMinute(memorystore.New(nil))).Serve(l))
}
