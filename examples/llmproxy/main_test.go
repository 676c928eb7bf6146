package main

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core/memorystore"
)

// complete asks for a stream, and returns the response when its first word has come.
func complete(t *testing.T, ctx context.Context, url, key string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode == 200 {
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data: the\n" {
			t.Fatalf("the stream begins with %q, %v", line, err)
		}
	}
	return resp
}

func TestThreeStreamsACustomer(t *testing.T) {
	api := httptest.NewServer(standIn(time.Minute))
	defer api.Close()
	upstream, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(routes(memorystore.New(nil), upstream, "ours"))
	defer srv.Close()

	ctx, leave := context.WithTimeout(t.Context(), 30*time.Second)
	defer leave()
	for i, want := range []string{"2", "1", "0"} {
		resp := complete(t, ctx, srv.URL, "key-of-alice")
		if got := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != 200 || got != want {
			t.Errorf("stream %d: %s, %q remain, want %s", i+1, resp.Status, got, want)
		}
	}
	fourth := complete(t, ctx, srv.URL, "key-of-alice")
	body, err := io.ReadAll(fourth.Body)
	if err != nil || fourth.StatusCode != 429 || fourth.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), "#in-flight") {
		t.Errorf("the fourth stream: %s %v %s, %v", fourth.Status, fourth.Header, body, err)
	}
	bobs, leaveBob := context.WithTimeout(t.Context(), 30*time.Second)
	defer leaveBob()
	if resp := complete(t, bobs, srv.URL, "key-of-bob"); resp.StatusCode != 200 {
		t.Errorf("another customer: %s", resp.Status)
	}
	if resp := complete(t, ctx, srv.URL, "made-up"); resp.StatusCode != 401 {
		t.Errorf("an unknown key: %s", resp.Status)
	}

	leave() // alice's clients close their connections
	again, leaveAgain := context.WithTimeout(t.Context(), 30*time.Second)
	defer leaveAgain()
	for end := time.Now().Add(10 * time.Second); complete(t, again, srv.URL, "key-of-alice").StatusCode != 200; {
		if time.Now().After(end) {
			t.Fatal("the streams of a client that has left are still taken")
		}
		time.Sleep(time.Second) // as Retry-After says
	}
}

// Whatever a customer sends along does not reach the upstream: not another organization, which is billed,
// and no address that it would trust. And the customer sees nothing of our account.
func TestOnlyKnownHeadersPass(t *testing.T) {
	seen := make(chan *http.Request, 1)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		for _, name := range []string{"Set-Cookie", "OpenAI-Organization", "X-RateLimit-Remaining", "X-RateLimit-Remaining-Tokens", "Server"} {
			w.Header().Set(name, "ours")
		}
		w.Header().Set("X-Request-Id", "r1")
		_, _ = io.WriteString(w, "data: the\n")
	}))
	defer api.Close()
	upstream, err := url.Parse(api.URL + "/base?version=2")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(routes(memorystore.New(nil), upstream, "ours"))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v1/chat/completions?version=3&organization=mine", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"OpenAI-Organization", "OpenAI-Project", "Cookie", "X-Real-Ip", "X-Forwarded-For", "Forwarded", "X-Api-Key", "Api-Key",
		"User-Agent", "Upgrade", "Te", "X-Http-Method-Override", "Proxy-Authorization", "Expect-Ct",
	} {
		req.Header.Set(name, "mine")
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Authorization", "Bearer key-of-alice")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := <-seen
	want := http.Header{
		"Authorization": {"Bearer ours"}, "Content-Type": {"application/json"}, "Content-Length": {"31"}, // {"max_completion_tokens":4000}
		"Accept-Encoding": {"gzip"}, // the transport unpacks it
	}
	if !reflect.DeepEqual(r.Header, want) || r.URL.String() != "/base/v1/chat/completions?version=2" {
		t.Errorf("%s %v reaches the upstream, want %v", r.URL, r.Header, want)
	}
	for name, values := range resp.Header {
		if values[0] == "ours" {
			t.Errorf("%s: %s reaches the customer", name, values)
		}
	}
	if resp.Header.Get("X-Request-Id") != "r1" {
		t.Errorf("the customer gets %v", resp.Header)
	}
}

// A customer who hangs up again and again, or whose upstream is broken, fills no log.
func TestTheLogHasALimit(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	for _, api := range []http.HandlerFunc{
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		ask := upstream(t, memorystore.New(nil), api)
		for range 20 {
			ask(chat, `{"max_tokens":1}`, true)
		}
	}
	if n := strings.Count(logged.String(), "\n"); n > 1 {
		t.Errorf("%d lines, such as %.100s", n, logged.String())
	}
}
