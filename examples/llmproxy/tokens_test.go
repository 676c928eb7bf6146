package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

const chat = "/v1/chat/completions"

// upstream is an API. ask has a customer send a request, and hang up when the upstream has answered begun words. It
// returns the status.
func upstream(t *testing.T, store core.Store, api http.HandlerFunc) (ask func(path, body string, hangUp bool) int) {
	t.Helper()
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	to, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := metered(store, proxy(to, "ours"))
	return func(path, body string, hangUp bool) int {
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), customer{}, "alice"))
		defer leave()
		w := &first{httptest.NewRecorder(), func() {}}
		if hangUp {
			w.wrote = leave
		}
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body)))
		}()
		return w.Code
	}
}

// first is a response whose client acts when the first bytes come.
type first struct {
	*httptest.ResponseRecorder
	wrote func()
}

func (f *first) Write(p []byte) (int, error) {
	defer f.wrote()
	return f.ResponseRecorder.Write(p)
}

// worked is what the upstream has had to do: it reads a token from each byte, if the text is dense, and writes as many
// as it may.
func worked(r *http.Request) int64 {
	b, _ := io.ReadAll(r.Body)
	var body struct {
		Max       int `json:"max_completion_tokens"`
		MaxTokens int `json:"max_tokens"`
		MaxOutput int `json:"max_output_tokens"`
	}
	_ = json.Unmarshal(b, &body)
	n := max(body.Max, body.MaxTokens, body.MaxOutput)
	if n == 0 {
		n = 1 << 20
	}
	return int64(len(b) + n)
}

// Nothing is gained by hanging up, by dense text, by long answers, or by not asking for the usage: with a quota of
// 100,000 tokens the upstream works for 100,000 at most, and not for 820,000.
func TestTheUpstreamWorksForTheQuotaAtMost(t *testing.T) {
	dense := strings.Repeat("鿿𠀀", 2000)
	for _, c := range []struct {
		name, path, body string
		hangUp           bool
	}{
		{"small requests, hung up", chat, `{"stream":true}`, true},
		{"long requests, hung up", chat, `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 40_000) + `"}]}`, true},
		{"dense text, hung up", chat, `{"messages":[{"role":"user","content":"` + dense + `"}]}`, true},
		{"dense text", chat, `{"messages":[{"role":"user","content":"` + dense + `"}]}`, false},
		{"long answers, hung up", chat, `{"max_tokens":30000,"stream":true}`, true},
		{"two caps", chat, `{"max_tokens":1,"max_completion_tokens":30000}`, true},
		{"of responses", "/v1/responses", `{"max_output_tokens":30000}`, true},
		{"of responses, without a cap", "/v1/responses", `{"stream":true}`, true},
		{"of messages, without a cap", "/v1/messages", `{}`, true},
		{"no usage is wanted", chat, `{"stream":true,"stream_options":{"include_usage":false}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var work atomic.Int64
			ask := upstream(t, memorystore.New(nil), func(w http.ResponseWriter, r *http.Request) {
				work.Add(worked(r))
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: the\n\n")
				_ = http.NewResponseController(w).Flush()
				if c.hangUp {
					<-r.Context().Done()
				}
			})
			status := 0
			for i := 0; i < 100 && status != http.StatusTooManyRequests; i++ {
				status = ask(c.path, c.body, c.hangUp)
			}
			if n := work.Load(); status != http.StatusTooManyRequests || n > quota || n < quota/2 {
				t.Errorf("the upstream has worked for %d tokens of a quota of %d; the last status is %d", n, quota, status)
			}
		})
	}
}

// What reaches the upstream.
func TestARequestIsCappedAndAsksForTheUsage(t *testing.T) {
	const png = "data:image/png;base64,"
	picture64 := strings.Repeat("A", 100_000)
	for _, c := range []struct {
		name, path, body, want string // "" is a refusal
		answer, image          int    // the tokens of the answer, and the bytes that are no text
	}{
		{"an empty one", chat, `{}`, `{"max_completion_tokens":4000}`, 4000, 0},
		{"a stream", chat, `{"stream":true}`, `{"max_completion_tokens":4000,"stream":true,"stream_options":{"include_usage":true}}`, 4000, 0},
		{"its own options", chat, `{"stream":true,"stream_options":{"include_usage":false,"continuous_usage_stats":true},"max_tokens":7}`,
			`{"max_tokens":7,"stream":true,"stream_options":{"include_usage":true}}`, 7, 0},
		{"options without a stream", chat, `{"stream_options":{},"max_tokens":7}`, `{"max_tokens":7}`, 7, 0},
		{"of responses", "/v1/responses", `{"stream":true}`, `{"max_output_tokens":4000,"stream":true}`, 4000, 0},
		{"of messages", "/v1/messages", `{"stream":true,"max_tokens":9}`, `{"max_tokens":9,"stream":true}`, 9, 0},
		{"a field twice", chat, `{"max_tokens":7,"max_tokens":8}`, `{"max_tokens":8}`, 8, 0},
		{"an image", chat, `{"max_tokens":7,"messages":[{"content":[{"type":"image_url","image_url":{"url":"` + png + picture64 + `"}}]}]}`,
			`{"max_tokens":7,"messages":[{"content":[{"image_url":{"url":"` + png + picture64 + `"},"type":"image_url"}]}]}`, 7, len(png + picture64)},
		{"an image of messages", "/v1/messages", `{"max_tokens":7,"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"` + picture64 + `"}}]}]}`,
			`{"max_tokens":7,"messages":[{"content":[{"source":{"data":"` + picture64 + `","type":"base64"},"type":"image"}]}]}`, 7, len(picture64)},
		{"a text that looks like an image", chat, `{"max_tokens":7,"messages":[{"content":"` + png + picture64 + `"}]}`,
			`{"max_tokens":7,"messages":[{"content":"` + png + picture64 + `"}]}`, 7, 0},
		{"a tool that looks like an image", chat, `{"max_tokens":7,"tools":[{"image_url":"` + png + picture64 + `"}]}`,
			`{"max_tokens":7,"tools":[{"image_url":"` + png + picture64 + `"}]}`, 7, 0},
		{"several answers", chat, `{"n":128}`, "", 0, 0},
		{"stored text", "/v1/responses", `{"previous_response_id":"x"}`, "", 0, 0},
		{"stored text in a message", "/v1/responses", `{"input":[{"type":"item_reference","id":"x"}]}`, "", 0, 0},
		{"a file", chat, `{"messages":[{"content":[{"type":"file","file":{"file_id":"x"}}]}]}`, "", 0, 0},
		{"a file in a tool's result", "/v1/messages", `{"messages":[{"content":[{"type":"tool_result","content":[{"type":"document"}]}]}]}`, "", 0, 0},
		{"a tool that the upstream runs", "/v1/messages", `{"tools":[{"type":"web_search_20250305"}]}`, "", 0, 0},
		{"a field in other letters", chat, `{"MAX_TOKENS":8}`, "", 0, 0},
		{"another API's cap", chat, `{"max_output_tokens":8}`, "", 0, 0},
		{"no number", chat, `{"max_tokens":"8"}`, "", 0, 0},
		{"a part of a token", chat, `{"max_tokens":0.5}`, "", 0, 0},
		{"less than nothing", chat, `{"max_tokens":-1}`, "", 0, 0},
		{"more than the quota", chat, `{"max_tokens":100001}`, "", 0, 0},
		{"no object", chat, `null`, "", 0, 0},
		{"no JSON", chat, `{`, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, err := read(c.path, strings.NewReader(c.body))
			if got := strings.TrimSpace(string(j.body)); (err != nil) != (c.want == "") || err == nil && got != c.want {
				t.Errorf("%.200s, %v; want %.200s", got, err, c.want)
			}
			prompt := len(c.want) + len("\n") + hidden - c.image
			if c.image > 0 {
				prompt += picture
			}
			if err == nil && (j.prompt != prompt || j.answer != c.answer) {
				t.Errorf("%d and %d tokens are charged, want %d and %d", j.prompt, j.answer, prompt, c.answer)
			}
		})
	}
}

func TestTokensAreCounted(t *testing.T) {
	const body = "data: a\n\n: a comment\n\nevent: x\ndata: [DONE]x\n\ndata: b\n\ndata: [DONE]\n\n"
	for size := range len(body) {
		c := &counted{ResponseWriter: httptest.NewRecorder()}
		c.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for part := range slices.Chunk([]byte(body), size+1) {
			_, _ = c.Write(part)
		}
		if n := c.cost(10, 2); n != 10 {
			t.Errorf("in parts of %d bytes: %d tokens, want those that were charged", size+1, n)
		}
		if n := c.cost(4, 2); n != 5 {
			t.Errorf("in parts of %d bytes: %d tokens, want three events and the prompt", size+1, n)
		}
	}
}

// What the upstream reports is what is charged, if that is less than the estimate too. What a model writes,
// or a customer has it write, is no report.
func TestTheUsageThatTheUpstreamReports(t *testing.T) {
	const stream, json = "text/event-stream", "application/json"
	for _, tt := range []struct {
		name, kind, body string
		want             int
	}{
		{"at the end of a stream", stream, "data: {\"choices\":[{}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":12}}\n\ndata: [DONE]\n\n", 12},
		{"without a space, and with CRLF", stream, "data:{\"usage\":{\"total_tokens\":12}}\r\n\r\ndata:[DONE]\r\n\r\n", 12},
		{"of an answer in one piece", json, "{\"choices\":[{}],\n\"usage\":{\"total_tokens\":12}}\n", 12},
		{"of a cut answer", json, "{\"usage\":{\"total_tokens\":12},\"choices\":[", 500},
		{"of a stream without a report", stream, "data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n", 500},
		{"of input and output", json, `{"usage":{"input_tokens":5,"output_tokens":7}}`, 12},
		{"of a prompt and its completion", json, `{"usage":{"prompt_tokens":5,"completion_tokens":7}}`, 12},
		{"of a stream of responses", stream, "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":7,\"total_tokens\":12}}}\n\n", 12},
		{"of a stream of messages", stream, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":2,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n" +
			"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\ndata: {\"type\":\"message_stop\"}\n\n", 12},
		{"of a stream of messages that is cut off", stream, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n", 500},
		{"in each event of a stream that is cut off", stream, "data: {\"usage\":{\"total_tokens\":12}}\n\n", 500},
		{"in the model's words", stream, `data: {"choices":[{"delta":{"content":"\"usage\":{\"total_tokens\":1}"}}]}` + "\n\ndata: [DONE]\n\n", 500},
		{"in a comment", stream, ": {\"usage\":{\"total_tokens\":12}}\n\n", 500},
		{"of less than nothing", stream, "data: {\"usage\":{\"total_tokens\":-12}}\n\n", 500},
		{"of more than was charged", json, `{"usage":{"total_tokens":1200}}`, 1200},
		{"after too many bytes", json, `{"text":"` + strings.Repeat("x", 1<<20) + `","usage":{"total_tokens":12}}`, 262_153},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &counted{ResponseWriter: httptest.NewRecorder()}
			c.Header().Set("Content-Type", tt.kind)
			_, _ = c.Write([]byte(tt.body))
			if n := c.cost(500, 0); n != tt.want {
				t.Errorf("%d tokens are charged, want %d", n, tt.want)
			}
			if len(c.kept) > 1<<19 {
				t.Errorf("%d bytes are kept", len(c.kept))
			}
		})
	}
}

func TestARequestIsBounded(t *testing.T) {
	ask := upstream(t, memorystore.New(nil), func(w http.ResponseWriter, r *http.Request) {})
	if status := ask(chat, `{"messages":"`+strings.Repeat("x", longest)+`"}`, false); status != http.StatusRequestEntityTooLarge {
		t.Errorf("too long: %d", status)
	}
	if status := ask(chat, `{"messages":"`+strings.Repeat("x", quota)+`"}`, false); status != http.StatusTooManyRequests {
		t.Errorf("longer than the quota: %d", status)
	}
}

// A customer who wants no stream pays too, and so does one whose upstream writes more than it may. Only a request that the
// upstream refuses is free.
func TestNoAnswerIsFree(t *testing.T) {
	const charged = len(`{"max_tokens":100}`) + 1 + hidden + 100
	say := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name string
		api  http.HandlerFunc
		want int
	}{
		{"a long answer in one piece", say("application/json", strings.Repeat("tail", 2500)), charged - 100 + 2500},
		{"a long stream", say("text/event-stream", strings.Repeat("data: tail\n\n", 2500)), charged - 100 + 2500},
		{"a short one", say("text/event-stream", "data: tail\n\n"), charged},
		{"a reported one", say("application/json", `{"usage":{"total_tokens":12}}`), 12},
		{"none", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, charged},
		{"an upstream that is broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, charged},
		{"an upstream that refuses", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, 0},
	} {
		store := memorystore.New(nil)
		upstream(t, store, c.api)(chat, `{"max_tokens":100}`, false)
		tokens := core.Must(core.New(store, core.MovingWindow(quota, time.Minute)))
		if d, err := tokens.Peek(t.Context(), "alice", "tokens"); err != nil || quota-d.Remaining != c.want {
			t.Errorf("%s: %d tokens are charged, %v; want %d", c.name, quota-d.Remaining, err, c.want)
		}
	}
}
