package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// The limits are per route: what one route's limit refuses, another's lets pass.
func TestEachRouteHasItsLimit(t *testing.T) {
	h := routes()
	for _, tt := range []struct {
		name, method, path string
		admits             int
	}{
		{"replies, together for all posts", "POST", "/posts/1/replies", 5},
		{"no more of them for another post", "POST", "/posts/2/replies", 0},
		{"likes have a limit of their own", "POST", "/posts/1/likes", 15},
		{"together for all posts", "POST", "/posts/2/likes", 0},
		{"to take a like back is another route", "DELETE", "/posts/1/likes", 15},
	} {
		for i := range tt.admits + 1 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
			want := http.StatusCreated
			if i == tt.admits {
				want = http.StatusTooManyRequests
			}
			if w.Code != want || w.Header().Get("X-RateLimit-Limit") == "" {
				t.Errorf("%s: request %d: status %d, headers %v; want %d", tt.name, i+1, w.Code, w.Header(), want)
			}
		}
	}
}
