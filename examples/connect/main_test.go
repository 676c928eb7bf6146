package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

var protocols = map[string]connecthttp.Option{
	"Connect": connecthttp.WithProtoJSON(), "gRPC-Web": connecthttp.WithGRPCWeb(), "gRPC": connecthttp.WithGRPC(),
}

// client returns a function that greets somebody as a user, or as nobody.
func client(t *testing.T, store core.Store, protocol connecthttp.Option) func(user, name string) (string, error) {
	srv := httptest.NewUnstartedServer(routes(store))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c := connect.NewClient(connecthttp.NewTransport(srv.Client(), srv.URL, protocol))
	return func(user, name string) (string, error) {
		ctx, info := connect.NewClientContext(t.Context())
		if user != "" {
			info.RequestHeader().Set("Authorization", "Bearer of-"+user)
		}
		var greeting wrapperspb.StringValue
		err := c.CallUnary(ctx, greet.Spec, wrapperspb.String(name), &greeting)
		return greeting.GetValue(), err
	}
}

func TestTheSixthGreetingIsRefused(t *testing.T) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			greet := client(t, memorystore.New(nil), protocol)
			for i := range 6 {
				greeting, err := greet("alice", "Lao Qian")
				if i < 5 {
					if err != nil || greeting != "Hello, Lao Qian!" {
						t.Fatalf("greeting %d: %q, %v", i+1, greeting, err)
					}
					continue
				}
				if connect.CodeOf(err) != connect.CodeResourceExhausted {
					t.Fatalf("the sixth greeting: %v", err)
				}
				if wait := retryDelay(t, err); wait <= 0 || wait > time.Minute {
					t.Errorf("retry in %s, want up to a minute", wait)
				}
			}
		})
	}
}

// down is a store without an answer.
type down struct{ core.Store }

func (down) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{}, nil, errors.New("secret")
}

// A request without a decision is answered in the client's protocol too.
func TestFailures(t *testing.T) {
	for name, protocol := range protocols {
		for _, c := range []struct {
			name  string
			store core.Store
			user  string
			want  connect.Code
			retry time.Duration
		}{
			{"no user", memorystore.New(nil), "", connect.CodeUnauthenticated, 0},
			{"the store is down", down{memorystore.New(nil)}, "alice", connect.CodeUnavailable, time.Second},
		} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				_, err := client(t, c.store, protocol)(c.user, "Lao Qian")
				if connect.CodeOf(err) != c.want || strings.Contains(err.Error(), "secret") {
					t.Fatal(err)
				}
				if got := retryDelay(t, err); got != c.retry {
					t.Errorf("retry in %s, want %s", got, c.retry)
				}
			})
		}
	}
}

func retryDelay(t *testing.T, err error) time.Duration {
	t.Helper()
	var refusal *connect.Error
	if !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	for _, detail := range refusal.Details() {
		if v, err := connectproto.UnmarshalErrorDetail(detail); err != nil {
			t.Error(err)
		} else if info, ok := v.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// Somebody without a user is answered in plain HTTP too, and the body is not read.
func TestNobodyIsNotDecoded(t *testing.T) {
	for _, contentType := range []string{"application/json", "text/plain"} {
		r := httptest.NewRequest("POST", procedure, unread{t})
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		if routes(memorystore.New(nil)).ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", contentType, w.Code, w.Body)
		}
	}
}

// A user has five greetings, and no novels.
func TestAMessageIsBounded(t *testing.T) {
	for name, protocol := range protocols {
		_, err := client(t, memorystore.New(nil), protocol)("alice", strings.Repeat("x", 64<<10))
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reader that fails the test if it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, http.ErrBodyReadAfterClose
}

func TestARefusedRequestIsNotDecoded(t *testing.T) {
	h := routes(memorystore.New(nil))
	greet := func(contentType string, body io.Reader) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", procedure, body)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Authorization", "Bearer of-alice")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for range 5 {
		if w := greet("application/json", strings.NewReader(`"Lao Qian"`)); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	for contentType, want := range map[string]string{
		"application/json": "application/json",
		"text/plain":       "application/problem+json", // no RPC client's
	} {
		w := greet(contentType, unread{t})
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusTooManyRequests || got != want || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: status %d, headers %v, %s", contentType, w.Code, w.Header(), w.Body)
		}
	}
}
