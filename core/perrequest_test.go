package core_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func TestALimiterPerRequestIsSaidOnce(t *testing.T) {
	build := func() *core.Limiter {
		return core.Must(core.New(memorystore.New(nil), core.FixedWindow(5, time.Minute)))
	}
	var keep sync.Map // by request
	var tenants sync.Map
	drop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { build() })
	server := func(h http.Handler) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			s := httptest.NewServer(h)
			t.Cleanup(s.Close)
			return func() {
				resp, err := s.Client().Get(s.URL)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
	}
	for _, tt := range []struct {
		name string
		ask  func(t *testing.T) func()
		gone int // how many are garbage in the end, at least
		said int
	}{
		{"at start-up", func(*testing.T) func() { return func() { build() } }, 0, 0},
		{"in a test that calls a handler", func(*testing.T) func() {
			return func() { drop.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) }
		}, 0, 0},
		{"at the first request of each tenant, and kept", server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			keep.Store(r, build())
		})), 0, 0},
		{"the same, with a ladder", server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			keep.Store(r, core.Must(build().With(core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{time.Minute}})))
		})), 0, 0},
		{"for one tenant by several requests at once, of which one is kept", server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, ok := tenants.Load("a"); !ok {
				build()
				tenants.LoadOrStore("a", build())
			}
		})), 1, 0},
		{"for each request", server(drop), 100, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core.ForgetBuilt()
			before := core.BuiltAndGone()
			var log bytes.Buffer
			old := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(old)
			ask := tt.ask(t)
			for range 300 {
				ask()
			}
			// Twice, since the last may be held still; cleanups run when they like.
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
				runtime.GC()
				runtime.GC()
				if core.BuiltAndGone()-before >= tt.gone {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%d limiters are garbage, not %d", core.BuiltAndGone()-before, tt.gone)
				}
			}
			for range 10 {
				ask()
			}
			if got := strings.Count(log.String(), "code=limiter-per-request"); got != tt.said {
				t.Errorf("said %d times, want %d: %s", got, tt.said, &log)
			}
		})
	}
	keep.Clear()
}
