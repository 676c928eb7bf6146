// Command mcp limits the tool calls of an MCP server: five calls of each tool a minute for each user. Outside, it
// limits requests and sessions.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// limit makes middleware that asks calls before each call of a tool. Other requests, such as the list of tools, pass.
// All names that no tool has share one action: a client may make them up.
func limit(calls *core.Limiter, tools ...string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok {
				return next(ctx, method, req)
			}
			if call.Extra == nil || call.Extra.TokenInfo == nil || call.Extra.TokenInfo.UserID == "" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the request does not say which user it is for"}
			}
			tool := call.Params.Name
			if !slices.Contains(tools, tool) {
				tool = "unknown"
			}
			d, err := calls.Allow(ctx, call.Extra.TokenInfo.UserID, tool)
			switch {
			case err != nil:
				complain(err)
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the limit cannot be checked at present"}
			case !d.Allowed:
				return refusal(d), nil
			}
			return next(ctx, method, req)
		}
	}
}

// A client can repeat what fails, so the log has a limit too.
var lines = core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Minute)))

func complain(err error) {
	if d, _ := lines.Allow(context.Background(), "log", "no decision"); d.Allowed {
		log.Print(err)
	}
}

// refusal is a tool's error, and not one of the protocol: clients show it to the model, which can then do something
// else, or wait.
func refusal(d core.Decision) *mcp.CallToolResult {
	text, meta := "Rate limit exceeded: this call can never pass.", mcp.Meta{}
	if d.RetryAfter != core.Never {
		seconds := int64((d.RetryAfter + time.Second - 1) / time.Second)
		text = fmt.Sprintf("Rate limit exceeded: this tool may be called %d times a minute. Do not call it again for %d seconds.", d.Limit, seconds)
		meta["com.example/retry-after-seconds"] = seconds // for programs
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}, Meta: meta}
}

type greeting struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func greet(_ context.Context, _ *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
}

func dice(_ context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "4"}}}, nil, nil // chosen by a fair dice roll
}

func routes(store core.Store) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "v1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "greet somebody"}, greet)
	mcp.AddTool(server, &mcp.Tool{Name: "dice", Description: "roll a die"}, dice)
	server.AddReceivingMiddleware(limit(core.Must(core.New(store, core.SlidingWindow(5, time.Minute))), "greet", "dice"))

	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{SessionTimeout: idle, MaxRequestBodyBytes: 64 << 10})
	return auth.RequireBearerToken(verify, nil)(outside(store, handler))
}

// idle is how long a session lasts without a request. It takes 13 kB.
const idle = 10 * time.Minute

// outside limits a user's requests before their bodies are read, and with them the sessions that the user can have:
// a request without a session begins one, and a session without requests ends.
func outside(store core.Store, next http.Handler) http.Handler {
	requests := core.Must(core.New(store, core.SlidingWindow(60, time.Minute), core.InFlight(20)))
	sessions := core.Must(core.New(store, core.SlidingWindow(10, idle)))
	begins := nethttp.Config{Skip: func(r *http.Request) bool { return r.Header.Get("Mcp-Session-Id") != "" }}
	next = begins.Limit(sessions, user, keyfuncs.Action("session"))(next)
	return nethttp.Limit(requests, user, keyfuncs.Action("request"))(next)
}

func user(r *http.Request) (string, error) {
	token := auth.TokenInfoFromContext(r.Context())
	if token == nil || token.UserID == "" {
		return "", keyfuncs.ErrNoKey
	}
	return token.UserID, nil
}

// verify stands for your own check of an access token. It believes everybody.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	user, ok := strings.CutPrefix(token, "of-")
	if !ok || user == "" {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: user, Expiration: time.Now().Add(time.Hour)}, nil
}

func main() {
	srv := &http.Server{Addr: "127.0.0.1:8080", Handler: routes(memorystore.New(nil)), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(srv.ListenAndServe())
}
