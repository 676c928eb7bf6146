// Package gatetest tests adapters of package gate: see [Run]. It also has helpers for their other tests.
package gatetest

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// A Store remembers what it was asked.
type Store struct {
	core.Store
	mu      sync.Mutex
	charges []core.Charge
}

// NewStore returns a Store over s, or over a new memorystore if s is nil.
func NewStore(s core.Store) *Store {
	if s == nil {
		s = memorystore.New(nil)
	}
	return &Store{Store: s}
}

// Memory returns a Store over a new memorystore.
func Memory() *Store { return NewStore(nil) }

// Take remembers the charge and asks the store behind.
func (s *Store) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.mu.Lock()
	s.charges = append(s.charges, c)
	s.mu.Unlock()
	return s.Store.Take(ctx, c)
}

// Unwrap returns the store behind, so that core finds its optional methods.
func (s *Store) Unwrap() core.Store { return s.Store }

// Charges returns what was asked so far.
func (s *Store) Charges() []core.Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.charges)
}

// Actions returns the user and the action of each charge, such as "alice reply".
func (s *Store) Actions() []string {
	var actions []string
	for _, c := range s.Charges() {
		actions = append(actions, c.User+" "+c.Action)
	}
	return actions
}

// Five returns a limiter of 5 actions a minute.
func Five(s core.Store) *core.Limiter {
	return core.Must(core.New(s, core.FixedWindow(5, time.Minute)))
}

// One returns a limiter of 1 action a minute.
func One(s core.Store) *core.Limiter { return core.Must(core.New(s, core.FixedWindow(1, time.Minute))) }

// Do sends a request to h. header is names and values in turns.
func Do(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Want holds a response to its status and what remains, and a refusal to its body.
func Want(t *testing.T, w *httptest.ResponseRecorder, status int, remaining string) {
	t.Helper()
	if got := w.Header().Get("X-RateLimit-Remaining"); w.Code != status || got != remaining {
		t.Errorf("got %d, remaining %q; want %d, %q", w.Code, got, status, remaining)
	}
	if status == http.StatusTooManyRequests && (w.Header().Get("Content-Type") != "application/problem+json" || !strings.HasSuffix(w.Body.String(), "}\n")) {
		t.Errorf("not a problem: %v %q", w.Header(), w.Body)
	}
}

// WantFiveReplies holds a server to a limit of five: five POSTs to path are 201, and the sixth is 429.
func WantFiveReplies(t *testing.T, h http.Handler, path string) {
	t.Helper()
	for i := range 6 {
		w, want := Do(h, "POST", path), http.StatusCreated
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if w.Code != want || w.Header().Get("X-RateLimit-Limit") != "5" || (w.Header().Get("Retry-After") != "") != (i == 5) {
			t.Errorf("reply %d: %d, %v; want %d", i+1, w.Code, w.Header(), want)
		}
	}
}

// Ran counts how often a handler ran, and fails the test if it is not as often as wanted.
type Ran struct {
	mu sync.Mutex
	n  int
}

// NewRan returns a Ran that is checked when the test ends.
func NewRan(t *testing.T, want int) *Ran {
	r := &Ran{}
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.n != want {
			t.Errorf("the handler ran %d times, want %d", r.n, want)
		}
	})
	return r
}

// Now notes that the handler runs.
func (r *Ran) Now() {
	r.mu.Lock()
	r.n++
	r.mu.Unlock()
}

// A Discard is a ResponseWriter that can be used again.
type Discard http.Header

// Header returns the header, to be cleared between requests.
func (d Discard) Header() http.Header { return http.Header(d) }

// Write discards b.
func (d Discard) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader does nothing.
func (d Discard) WriteHeader(int) {}

// Benchmark measures what a middleware adds to a route that answers POST /likes with 204: limit=none is the route
// alone, and limited is the route behind a limit by X-User-ID.
func Benchmark(b *testing.B, adapter string, route http.Handler, limited func(keep bool, hs gate.Headers, l *core.Limiter) http.Handler) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	never := core.Funnel(1, core.Per(1, 100*24*time.Hour))
	by := func(l core.Limit, keep bool, hs gate.Headers) http.Handler {
		return limited(keep, hs, core.Must(core.New(memorystore.New(nil), l)))
	}
	for _, c := range []struct {
		name string
		h    http.Handler
	}{
		{"limit=funnel/keys=1", by(plenty, false, 0)},
		{"limit=funnel/keys=1/ietf=on", by(plenty, false, gate.XRateLimitAndIETF)},
		{"limit=funnel/keys=1/keep=on", by(plenty, true, 0)},
		{"limit=funnel/keys=1/verdict=refused", by(never, false, 0)},
		{"limit=none", route},
	} {
		b.Run("adapter="+adapter+"/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("POST", "/likes", nil)
			r.Header.Set("X-User-ID", "alice")
			w := Discard{}
			for b.Loop() {
				clear(w)
				c.h.ServeHTTP(w, r)
			}
		})
	}
}

// A Log is what goes to slog.Default, a line each, without stacks.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Capture collects the log until the test ends.
func Capture(t *testing.T) *Log {
	l := &Log{}
	before, w, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(l))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(w) // SetDefault has turned package log to slog
		log.SetFlags(flags)
	})
	return l
}

// Enabled, WithAttrs, WithGroup and Handle make a Log a slog.Handler.
func (l *Log) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs returns l.
func (l *Log) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns l.
func (l *Log) WithGroup(string) slog.Handler { return l }

// Handle writes level, message and the first line of each attribute's value.
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text, _, _ := strings.Cut(a.Value.String(), "\n")
		line += " | " + text
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// Take returns the lines so far, with the adapter of that name called "adapter". It
// leaves out what RemoteIP, memorystore and core say once in a process, and what First returns.
func (l *Log) Take(name string) []string {
	return slices.DeleteFunc(l.First(name), func(s string) bool { return strings.Contains(s, "| keyless-request |") })
}

// First is Take with the first request of each limit that had no user or action.
func (l *Log) First(name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.DeleteFunc(l.lines, func(s string) bool {
		return strings.HasSuffix(s, "| forwarded-untrusted") || strings.HasSuffix(s, "| store-dropped") || strings.HasSuffix(s, "| slot-outlived")
	})
	l.lines = nil
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], name+":", "adapter:")
	}
	return lines
}
