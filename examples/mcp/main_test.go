package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// session is that of a client of the server at url.
func session(t *testing.T, url, token string) *mcp.ClientSession {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "v1.0.0"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func serve(t *testing.T, store core.Store) (url string) {
	srv := httptest.NewServer(routes(store))
	t.Cleanup(srv.Close)
	return srv.URL
}

func call(t *testing.T, s *mcp.ClientSession, tool string) (r *mcp.CallToolResult, text string) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"name": "Lao Qian"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Content {
		text += c.(*mcp.TextContent).Text
	}
	return r, text
}

// The refusal is a result that the model sees. Another session of the user has the same limit; another tool and
// another user have their own.
func TestTheSixthCallIsRefused(t *testing.T) {
	url := serve(t, memorystore.New(nil))
	alice := session(t, url, "of-alice")
	for i := range 5 {
		if r, text := call(t, alice, "greet"); r.IsError || text != "Hello, Lao Qian!" {
			t.Fatalf("call %d: %q", i+1, text)
		}
	}
	for _, s := range []*mcp.ClientSession{alice, session(t, url, "of-alice")} {
		r, text := call(t, s, "greet")
		if !r.IsError || !strings.HasPrefix(text, "Rate limit exceeded: this tool may be called 5 times a minute. Do not call it again for ") {
			t.Errorf("the sixth call: %q", text)
		}
		if wait, _ := r.Meta["com.example/retry-after-seconds"].(float64); wait < 1 || wait > 60 {
			t.Errorf("it may be called again in %v seconds", wait)
		}
	}
	if tools, err := alice.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 2 {
		t.Errorf("the list of tools: %+v, %v", tools, err)
	}
	if r, err := alice.CallTool(t.Context(), &mcp.CallToolParams{Name: "dice"}); err != nil || r.IsError {
		t.Errorf("another tool: %+v, %v", r, err)
	}
	if r, text := call(t, session(t, url, "of-bob"), "greet"); r.IsError {
		t.Errorf("another user: %q", text)
	}
}

// Names of no tool are charged together.
func TestUnknownToolsAreOneAction(t *testing.T) {
	store := memorystore.New(nil)
	s := session(t, serve(t, store), "of-alice")
	for i := range 5 {
		if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: strings.Repeat("x", i+1)}); err == nil {
			t.Error("a tool that does not exist answers")
		}
	}
	if r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "another"}); err != nil || !r.IsError {
		t.Errorf("the sixth: %+v, %v", r, err)
	}
}

func TestWithoutATokenNobodyConnects(t *testing.T) {
	resp, err := http.Post(serve(t, memorystore.New(nil)), "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Error(resp.Status)
	}
}

type down struct{ core.Store }

func (down) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{}, nil, errors.New("secret")
}

// Without a decision the call is an error of the protocol. The store's own error stays in the log, and a client that
// repeats the call does not fill it.
func TestTheStoreIsDown(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	calls := core.Must(core.New(down{memorystore.New(nil)}, core.SlidingWindow(5, time.Minute)))
	called := limit(calls, "greet")(nil)
	token := &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{UserID: "alice"}}
	for range 100 {
		_, err := called(t.Context(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "greet"}, Extra: token})
		var failure *jsonrpc.Error
		if !errors.As(err, &failure) || failure.Code != jsonrpc.CodeInternalError || failure.Message != "the limit cannot be checked at present" {
			t.Fatal(err)
		}
	}
	if n := strings.Count(logged.String(), "secret"); n > 1 {
		t.Errorf("%d lines in the log", n)
	}
}

func TestACallThatCanNeverPass(t *testing.T) {
	if r := refusal(core.Decision{RetryAfter: core.Never}); !r.IsError || len(r.Meta) != 0 {
		t.Errorf("%+v", r)
	}
}

// A user who begins sessions and leaves them has ten at most, and each ends.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := routes(memorystore.New(nil))
		post := func(session, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body))
			r.Header = http.Header{"Authorization": {"Bearer of-alice"}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
			if session != "" {
				r.Header.Set("Mcp-Session-Id", session)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
		const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
		var open []string
		for range 400 {
			if w := post("", begin); w.Code == http.StatusOK {
				open = append(open, w.Header().Get("Mcp-Session-Id"))
			} else if w.Code != http.StatusTooManyRequests {
				t.Fatal(w.Code, w.Body)
			}
			time.Sleep(time.Second) // so that there is room for requests
		}
		if len(open) != 10 {
			t.Errorf("%d sessions are open", len(open))
		}
		if w := post(open[0], ping); w.Code != http.StatusOK {
			t.Errorf("the first session: %d %s", w.Code, w.Body)
		}
		time.Sleep(idle + time.Second)
		for _, session := range open {
			if w := post(session, ping); w.Code != http.StatusNotFound {
				t.Errorf("a session that was idle: %d", w.Code)
			}
		}
	})
}

// A minute has sixty requests of a user, whatever they ask for.
func TestRequestsAreLimited(t *testing.T) {
	url, codes := serve(t, memorystore.New(nil)), map[int]int{}
	for range 61 {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Mcp-Session-Id": {"made-up"}, "Authorization": {"Bearer of-alice"}}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		codes[resp.StatusCode]++
	}
	if codes[http.StatusNotFound] != 60 || codes[http.StatusTooManyRequests] != 1 {
		t.Errorf("%v", codes)
	}
}
