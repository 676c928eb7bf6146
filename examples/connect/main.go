// Command connect limits a Connect procedure: five greetings a minute for each user. The
// limit is before the decoder, so the body of a refused request is not read.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
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

func routes(store core.Store) http.Handler {
	server := connect.NewServer()
	server.Register(greet)
	procedures := http.NewServeMux()
	connecthttp.Mount(procedures, server)

	greetings := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	limit := nethttp.Config{Deny: deny, Fail: fail}.Limit(greetings, keyfuncs.Header("X-User-ID"), keyfuncs.Action("greet"))
	mux := http.NewServeMux()
	mux.Handle(procedure, limit(procedures))
	return mux
}

// deny answers a refusal.
func deny(w http.ResponseWriter, r *http.Request, d core.Decision) {
	write(w, r, connect.NewError(connect.CodeResourceExhausted, "too many greetings"), d.RetryAfter)
}

// fail answers a request that got no decision. The error's text stays in the log.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	var f *gate.Failure
	switch {
	case errors.Is(err, keyfuncs.ErrNoKey):
		write(w, r, connect.NewError(connect.CodeUnauthenticated, "the request does not say which user it is for"), core.Never)
	case !errors.As(err, &f) || f.Status == http.StatusInternalServerError:
		write(w, r, connect.NewError(connect.CodeInternal, "the limit could not be determined"), core.Never)
	case f.Status == http.StatusBadRequest:
		write(w, r, connect.NewError(connect.CodeInvalidArgument, "the request says in a way that cannot be read which user it is for"), core.Never)
	default:
		write(w, r, connect.NewError(connect.CodeUnavailable, "the limit cannot be checked at present"), time.Second)
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

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", routes(memorystore.New(nil)))) }
