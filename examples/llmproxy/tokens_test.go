package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// Two customers, with three streams each, want more than their tokens for an hour. Answers are of any
// length up to 4,000 tokens, and one in five is cut off by its client. In no minute do more tokens pass
// than the quota and what six streams may exceed it by, which is less than one debt: those that had
// begun before, and those that were under way when the last one was admitted.
func TestTokensOfAnHour(t *testing.T) {
	const streams, longest, second = 3, 4000, 1000 // tokens
	synctest.Test(t, func(t *testing.T) {
		h := metered(memorystore.New(nil), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("tokens"))
			w.Header().Set("Content-Type", "text/event-stream")
			chunk := []byte(strings.Repeat("data: word\n\n", second/10))
			usage := fmt.Sprintf("data: {\"usage\":{\"total_tokens\":%d}}\n\n", (n+second/10-1)/(second/10)*(second/10))
			for ; n > 0 && r.Context().Err() == nil; n -= second / 10 {
				_, _ = w.Write(chunk)
				time.Sleep(100 * time.Millisecond)
			}
			if r.Context().Err() == nil {
				_, _ = w.Write([]byte(usage + "data: [DONE]\n\n"))
			}
		}))
		start := time.Now()
		for _, name := range []string{"alice", "bob"} {
			var mu sync.Mutex
			var passed []chunk
			refused := 0
			var clients sync.WaitGroup
			for i := range streams {
				clients.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), uint64(len(name))))
					for time.Since(start) < time.Hour {
						ctx, leave := context.WithCancel(context.WithValue(t.Context(), customer{}, name))
						if r.IntN(5) == 0 {
							time.AfterFunc(time.Duration(r.IntN(2000))*time.Millisecond, leave)
						}
						w := &stream{header: http.Header{}, pass: func(n int) {
							mu.Lock()
							passed = append(passed, chunk{time.Since(start), n})
							mu.Unlock()
						}}
						h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", fmt.Sprint("/?tokens=", 1+r.IntN(longest)), nil))
						leave()
						if w.status == http.StatusTooManyRequests {
							mu.Lock()
							refused++
							mu.Unlock()
							after, err := strconv.Atoi(w.header.Get("Retry-After"))
							if err != nil {
								t.Error(err)
							}
							time.Sleep(time.Duration(after) * time.Second)
						}
					}
				})
			}
			clients.Wait()
			start = time.Now() // of the next one

			total, most := recount(passed)
			if bound := quota + 2*streams*longest; most > bound || most <= quota || bound > 2*quota {
				t.Errorf("%s: %d tokens passed in a minute, with a quota of %d; want more, and at most %d", name, most, quota, bound)
			}
			if total < 55*quota || refused == 0 {
				t.Errorf("%s: %d tokens passed in an hour, and %d requests were refused", name, total, refused)
			}
		}
	})
}

// A chunk is tokens that have passed, and when.
type chunk struct {
	at     time.Duration
	tokens int
}

// recount returns all tokens, and the most in a minute.
func recount(passed []chunk) (total, most int) {
	slices.SortFunc(passed, func(a, b chunk) int { return int(a.at - b.at) })
	within, first := 0, 0
	for _, c := range passed {
		total, within = total+c.tokens, within+c.tokens
		for passed[first].at <= c.at-time.Minute {
			within -= passed[first].tokens
			first++
		}
		most = max(most, within)
	}
	return total, most
}

// A stream is a response that tells of the tokens that it gets.
type stream struct {
	header http.Header
	status int
	pass   func(tokens int)
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(status int) { s.status = status }

func (s *stream) Write(p []byte) (int, error) {
	if n := strings.Count(string(p), "data: word"); n > 0 {
		s.pass(n)
	}
	return len(p), nil
}

// A customer who sends requests and hangs up, before the first word or after it, has the upstream work. Of
// a quota of 100,000 that is worth 100,000, and not 820,000.
func TestNothingIsGainedByHangingUp(t *testing.T) {
	for _, words := range []int{0, 1} {
		t.Run(fmt.Sprint(words, " words"), func(t *testing.T) {
			var asked atomic.Int64
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				asked.Add(estimate + n/4)
				w.Header().Set("Content-Type", "text/event-stream")
				for range words {
					_, _ = io.WriteString(w, "data: the\n\n")
				}
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			defer api.Close()
			upstream, err := url.Parse(api.URL)
			if err != nil {
				t.Fatal(err)
			}
			asks := metered(memorystore.New(nil), proxy(upstream, "ours"))
			refused := false
			for range 20 {
				ctx, leave := context.WithCancel(context.WithValue(t.Context(), customer{}, "alice"))
				r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(strings.Repeat("x", 40_000)))
				before := asked.Load()
				w := httptest.NewRecorder()
				ended := make(chan bool)
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					asks.ServeHTTP(w, r)
				}()
				for wait := true; wait && asked.Load() == before; {
					select {
					case <-ended:
						wait = false
					case <-time.After(time.Millisecond):
					}
				}
				leave()
				<-ended
				if refused = w.Code == http.StatusTooManyRequests; refused {
					break
				}
			}
			if n := asked.Load(); !refused || n > quota {
				t.Errorf("the upstream has worked for %d tokens of a quota of %d; refused: %t", n, quota, refused)
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
		{"in the model's words", stream, `data: {"choices":[{"delta":{"content":"\"usage\":{\"total_tokens\":1}"}}]}` + "\n\ndata: [DONE]\n\n", 500},
		{"in a comment", stream, ": {\"usage\":{\"total_tokens\":12}}\n\n", 500},
		{"of less than nothing", stream, "data: {\"usage\":{\"total_tokens\":-12}}\n\n", 500},
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

// The length of a request is a part of its estimate.
func TestALongRequestCosts(t *testing.T) {
	srv := httptest.NewServer(routes(memorystore.New(nil), &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, "ours"))
	defer srv.Close()
	for _, tt := range []struct {
		name string
		body io.Reader
		want int
	}{
		{"too long", strings.NewReader(strings.Repeat("x", longest+1)), http.StatusRequestEntityTooLarge},
		{"of unknown length", io.MultiReader(strings.NewReader("{}")), http.StatusRequestEntityTooLarge},
		{"long", strings.NewReader(strings.Repeat("x", longest)), http.StatusBadGateway},
		{"and another long one", strings.NewReader(strings.Repeat("x", longest)), http.StatusTooManyRequests},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v1/chat/completions", tt.body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer key-of-alice")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("%s: %s, want %d", tt.name, resp.Status, tt.want)
		}
	}
}

// A customer who wants no stream, or a compressed one, pays too.
func TestNoAnswerIsFree(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/none" {
			panic(http.ErrAbortHandler)
		}
		body, kind := `{"choices": [{"message": {"content": "`+strings.Repeat("tail ", 2000)+`"}}]}`, "application/json"
		if r.URL.Path == "/v1/stream" {
			body, kind = strings.Repeat("data: tail\n\n", 2500), "text/event-stream"
		}
		w.Header().Set("Content-Type", kind)
		if r.Header.Get("Accept-Encoding") != "gzip" {
			_, _ = w.Write([]byte(body))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(body))
		_ = z.Close()
	}))
	defer api.Close()
	upstream, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, path, encoding string
		least, most          int
	}{
		{"an answer in one piece", "/", "", 2500, 2600},
		{"a compressed answer", "/", "gzip", 2500, 2600},
		{"a compressed stream", "/v1/stream", "gzip", 2500, 2500},
		{"no answer", "/v1/none", "", estimate, estimate},
	} {
		store := memorystore.New(nil)
		ctx := context.WithValue(t.Context(), customer{}, "alice")
		r := httptest.NewRequestWithContext(ctx, "POST", test.path, nil)
		r.Header.Set("Accept-Encoding", test.encoding)
		metered(store, proxy(upstream, "ours")).ServeHTTP(httptest.NewRecorder(), r)
		tokens := core.Must(core.New(store, core.MovingWindow(quota, time.Minute)))
		d, err := tokens.Peek(t.Context(), "alice", "tokens")
		if n := quota - d.Remaining; err != nil || n < test.least || n > test.most {
			t.Errorf("%s: %d tokens are charged, %v; want %d to %d", test.name, n, err, test.least, test.most)
		}
	}
}
