package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// The limits are per route: what one route's limit refuses, another's lets pass.
func TestEachRouteHasItsLimit(t *testing.T) {
	h := routes()
	for _, tt := range []struct {
		name, method, path string
		admits             int
	}{
		{"replies, together for all posts", "POST", "/posts/1/replies", 5},
		{"another post has no more of them", "POST", "/posts/2/replies", 0},
		{"likes have their own limit", "POST", "/posts/1/likes", 15},
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

// logged returns what f logs.
func logged(f func()) string {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	f()
	return log.String()
}

// A router's own middleware runs before chi has matched the route. The log says what to do.
func TestRouteInUseIsAnError(t *testing.T) {
	r := chi.NewRouter()
	r.Use(nethttp.Limit(core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour))), keyfuncs.RemoteIP, keyfuncs.Route))
	r.Get("/posts", created)
	said := logged(func() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/posts", nil))
		if w.Code != http.StatusInternalServerError {
			t.Errorf("status %d", w.Code)
		}
	})
	if !strings.Contains(said, "chi: With or Group, not Use") {
		t.Errorf("the log says %q", said)
	}
}

var warned bool // whether this process has logged it; go test -count runs a test again

// chi's RealIP believes any client's header. The log says so, once.
func TestRealIPIsWarnedAbout(t *testing.T) {
	//lint:ignore SA1019 RealIP is deprecated for what this test shows.
	h := middleware.RealIP(routes())
	said := logged(func() {
		for range 10 {
			r := httptest.NewRequest("POST", "/posts/1/likes", nil)
			r.Header.Set("X-Real-IP", "203.0.113.9")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	})
	want := 1
	if warned {
		want = 0
	}
	warned = true
	if strings.Count(said, "code=forwarded-untrusted") != want || strings.Count(said, "such as chi's RealIP") != want {
		t.Errorf("the log says %q", said)
	}
}
