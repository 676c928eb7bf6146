package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
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
			for ; n > 0 && r.Context().Err() == nil; n -= second / 10 {
				_, _ = w.Write(chunk)
				time.Sleep(100 * time.Millisecond)
			}
			_, _ = w.Write([]byte("data: [DONE]\n\n"))
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

// A client that disconnects pays for the tokens that it got, and gets back the rest of the estimate.
func TestAClientThatLeavesPaysForWhatPassed(t *testing.T) {
	api := httptest.NewServer(standIn(time.Minute))
	defer api.Close()
	upstream, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	store := memorystore.New(nil)
	srv := httptest.NewServer(routes(store, upstream, "ours"))
	defer srv.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer key-of-alice")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data: the\n" {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	tokens := core.Must(core.New(store, core.MovingWindow(quota, time.Minute)))
	left := func() int {
		d, err := tokens.Peek(t.Context(), "alice", "tokens")
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	if n := left(); n != quota-estimate {
		t.Errorf("%d tokens are left while the answer streams", n)
	}
	leave()
	for end := time.Now().Add(10 * time.Second); left() != quota-1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d tokens are left, want all but one", left())
		}
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
		if c.tokens != 3 {
			t.Errorf("in parts of %d bytes: %d tokens", size+1, c.tokens)
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
		if r.Header.Get("Stream") != "" {
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
		name, path, stream, encoding string
		least, most                  int
	}{
		{"an answer in one piece", "/", "", "", 2500, 2600},
		{"a compressed answer", "/", "", "gzip", 2500, 2600},
		{"a compressed stream", "/", "yes", "gzip", 2500, 2500},
		{"no answer", "/v1/none", "", "", 0, 0},
	} {
		store := memorystore.New(nil)
		ctx := context.WithValue(t.Context(), customer{}, "alice")
		r := httptest.NewRequestWithContext(ctx, "POST", test.path, nil)
		r.Header.Set("Accept-Encoding", test.encoding)
		r.Header.Set("Stream", test.stream)
		metered(store, proxy(upstream, "ours")).ServeHTTP(httptest.NewRecorder(), r)
		tokens := core.Must(core.New(store, core.MovingWindow(quota, time.Minute)))
		d, err := tokens.Peek(t.Context(), "alice", "tokens")
		if n := quota - d.Remaining; err != nil || n < test.least || n > test.most {
			t.Errorf("%s: %d tokens are charged, %v; want %d to %d", test.name, n, err, test.least, test.most)
		}
	}
}
