package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The README's first program. Its port is taken, so that main returns once the route is there.
func TestFiveRepliesPassAndTheSixthIsRefused(t *testing.T) {
	if l, err := net.Listen("tcp", "localhost:8080"); err == nil {
		defer l.Close()
	}
	main()
	for i, want := range []int{200, 200, 200, 200, 200, 429} {
		w := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(w, httptest.NewRequest("POST", "/replies", nil))
		if w.Code != want {
			t.Errorf("reply %d: got %d, want %d", i+1, w.Code, want)
		}
	}
}
