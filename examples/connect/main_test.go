package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestTheSixthGreetingIsRefused(t *testing.T) {
	for name, protocol := range map[string]connect.ClientOption{
		"Connect": connect.WithProtoJSON(), "gRPC-Web": connect.WithGRPCWeb(), "gRPC": connect.WithGRPC(),
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(routes())
			srv.EnableHTTP2 = true
			srv.StartTLS()
			defer srv.Close()
			client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](srv.Client(), srv.URL+procedure, protocol)
			for i := range 6 {
				req := connect.NewRequest(wrapperspb.String("Lao Qian"))
				req.Header().Set("X-User-ID", "alice")
				resp, err := client.CallUnary(t.Context(), req)
				if i < 5 {
					if err != nil || resp.Msg.GetValue() != "Hello, Lao Qian!" {
						t.Fatalf("greeting %d: %v, %v", i+1, resp, err)
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

func retryDelay(t *testing.T, err error) time.Duration {
	t.Helper()
	for _, detail := range err.(*connect.Error).Details() {
		if v, err := detail.Value(); err != nil {
			t.Error(err)
		} else if info, ok := v.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// A reader that fails the test if it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, http.ErrBodyReadAfterClose
}

func TestARefusedRequestIsNotDecoded(t *testing.T) {
	h := routes()
	greet := func(contentType string, body io.Reader) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", procedure, body)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("X-User-ID", "alice")
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
