package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
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

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i, want := range []string{"2", "1", "0"} {
		resp := complete(t, ctx, srv.URL, "key-of-alice")
		if got := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != 200 || got != want {
			t.Errorf("stream %d: %s, %q remain, want %s", i+1, resp.Status, got, want)
		}
	}
	fourth := complete(t, ctx, srv.URL, "key-of-alice")
	body, _ := io.ReadAll(fourth.Body)
	if fourth.StatusCode != 429 || fourth.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), "#in-flight") {
		t.Errorf("the fourth stream: %s %v %s", fourth.Status, fourth.Header, body)
	}
	bobs, leaveBob := context.WithCancel(t.Context())
	defer leaveBob()
	if resp := complete(t, bobs, srv.URL, "key-of-bob"); resp.StatusCode != 200 {
		t.Errorf("another customer: %s", resp.Status)
	}
	if resp := complete(t, ctx, srv.URL, "made-up"); resp.StatusCode != 401 {
		t.Errorf("an unknown key: %s", resp.Status)
	}

	leave() // alice's clients close their connections
	again, leaveAgain := context.WithCancel(t.Context())
	defer leaveAgain()
	for end := time.Now().Add(10 * time.Second); complete(t, again, srv.URL, "key-of-alice").StatusCode != 200; {
		if time.Now().After(end) {
			t.Fatal("the streams of a client that has left are still taken")
		}
		time.Sleep(time.Second) // as Retry-After says
	}
}
