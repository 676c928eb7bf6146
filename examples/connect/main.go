// Command connect limits a Connect procedure: five greetings a minute for each user. The
// limit is before the decoder, so the body of a refused request is not read.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

const procedure = "/greet.v1.GreetService/Greet"

// greet is what protoc-gen-connect-go makes of a service with one method.
var greet = connect.Method{
	Spec: connect.Spec{Procedure: procedure, StreamType: connect.StreamTypeUnary},
	Handler: func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
		var name wrapperspb.StringValue
		if err := stream.Receive(&name); err != nil {
			return err
		}
		return stream.Send(wrapperspb.String("Hello, " + name.GetValue() + "!"))
	},
}

type userKey struct{} // of the user in the context

// login stands for your own check of a token or a session. It believes everybody.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer of-")
		if !ok || name == "" {
			_ = errorWriter.Write(w, r, connect.NewError(connect.CodeUnauthenticated, "log in first"))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

func routes(store core.Store) http.Handler {
	server := connect.NewServer()
	server.Register(greet)
	procedures := http.NewServeMux()
	connecthttp.Mount(procedures, server, connecthttp.WithReadMaxBytes(64<<10))

	greetings := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	limit := nethttp.Config{Deny: deny, Fail: fail}.Limit(greetings, keyfuncs.ContextValue(userKey{}), keyfuncs.Action("greet"))
	mux := http.NewServeMux()
	mux.Handle(procedure, login(limit(procedures)))
	return mux
}

// deny answers a refusal.
func deny(w http.ResponseWriter, r *http.Request, d core.Decision) {
	write(w, r, connect.NewError(connect.CodeResourceExhausted, "too many greetings"), d.RetryAfter)
}

// fail answers a request that got no decision. The error's text stays in the log.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	var f *gate.Failure
	if errors.As(err, &f) && f.Status == http.StatusServiceUnavailable {
		write(w, r, connect.NewError(connect.CodeUnavailable, "the limit cannot be checked at present"), time.Second)
	} else { // no user, although the login is outside of the limit, or a function has failed
		write(w, r, connect.NewError(connect.CodeInternal, "the limit could not be determined"), core.Never)
	}
}

var errorWriter = connecthttp.NewErrorWriter()

// write answers in the client's protocol: Connect, gRPC or gRPC-Web. To other clients it writes nothing,
// and they get the default answer. A retry after core.Never has no RetryInfo.
func write(w http.ResponseWriter, r *http.Request, refusal *connect.Error, retry time.Duration) {
	if !errorWriter.IsSupported(r) {
		return
	}
	if retry != core.Never {
		if detail, err := connectproto.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)}); err == nil {
			refusal = refusal.WithDetail(detail)
		}
	}
	_ = errorWriter.Write(w, r, refusal) // it fails if the client has disconnected
}

func main() {
	srv := &http.Server{Addr: "127.0.0.1:8080", Handler: routes(memorystore.New(nil)), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(srv.ListenAndServe())
}
