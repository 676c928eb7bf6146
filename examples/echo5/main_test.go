package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestFiveRepliesPassAndTheSixthIsRefused(t *testing.T) {
	srv := httptest.NewServer(routes())
	defer srv.Close()
	for i := 1; i <= 6; i++ {
		resp, err := http.Post(srv.URL+"/posts/1/replies", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		want, retry := http.StatusCreated, false
		if i == 6 {
			want, retry = http.StatusTooManyRequests, true
		}
		if resp.StatusCode != want || (resp.Header.Get("Retry-After") != "") != retry {
			t.Errorf("reply %d: status %d, Retry-After %q; want %d", i, resp.StatusCode, resp.Header.Get("Retry-After"), want)
		}
		if got := resp.Header.Get("X-RateLimit-Limit"); got != "5" {
			t.Errorf("reply %d: X-RateLimit-Limit %q, want 5", i, got)
		}
	}
}
