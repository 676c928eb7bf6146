// Command connect limits a Connect procedure: five greetings a minute for each user. The
// limit is before the decoder, so the body of a refused request is not read.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const procedure = "/greet.v1.GreetService/Greet"

func greet(_ context.Context, name *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	return wrapperspb.String("Hello, " + name.GetValue() + "!"), nil
}

func routes() http.Handler {
	greetings := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	limit := nethttp.Config{Deny: deny}.Limit(greetings, keyfuncs.Header("X-User-ID"), keyfuncs.Action("greet"))

	mux := http.NewServeMux()
	mux.Handle(procedure, limit(connect.NewUnaryHandlerSimple(procedure, greet)))
	return mux
}

var errorWriter = connect.NewErrorWriter()

// deny answers in the client's protocol: Connect, gRPC or gRPC-Web. To other clients it
// writes nothing, and they get the default answer.
func deny(w http.ResponseWriter, r *http.Request, d core.Decision) {
	if !errorWriter.IsSupported(r) {
		return
	}
	refusal := connect.NewError(connect.CodeResourceExhausted, errors.New("too many greetings"))
	if d.RetryAfter != core.Never {
		if detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}); err == nil {
			refusal.AddDetail(detail)
		}
	}
	_ = errorWriter.Write(w, r, refusal) // it fails if the client has disconnected
}

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", routes())) }
