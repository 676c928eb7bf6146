package gatetest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp"
)

const lease = 30 * time.Second

// A slotStore is a memorystore that remembers releases and renewals, and can fail.
type slotStore struct {
	*memorystore.Store
	slow time.Duration // how long a release or renewal takes
	late time.Duration // how long after a charge its answer comes

	mu                 sync.Mutex
	down               bool
	renewals, releases int // asked for
}

var errDown = errors.New("down")

func newSlotStore() *slotStore { return &slotStore{Store: memorystore.New(nil)} }

func (s *slotStore) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if s.isDown() {
		return core.Decision{}, nil, errDown
	}
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	if s.late > 0 && c.Mode != machine.ModePeek {
		select {
		case <-time.After(s.late):
		case <-ctx.Done():
			return core.Decision{}, nil, ctx.Err()
		}
	}
	return d, r, err
}

func (s *slotStore) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	s.mu.Lock()
	switch a.Verb {
	case machine.VerbRenew:
		s.renewals++
	case machine.VerbRelease:
		s.releases++
	}
	s.mu.Unlock()
	time.Sleep(s.slow)
	if s.isDown() {
		return false, errDown
	}
	return s.Store.Amend(ctx, r, a)
}

func (s *slotStore) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *slotStore) fail(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// asked returns how many renewals and releases were asked for since the last call.
func (s *slotStore) asked() [2]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := [2]int{s.renewals, s.releases}
	s.renewals, s.releases = 0, 0
	return n
}

// free is what remains of each limit of alice's reply.
func free(t *testing.T, l *core.Limiter) (remaining []int) {
	t.Helper()
	s, err := l.Status(context.Background(), "alice", "reply")
	if err != nil {
		t.Error(err)
	}
	for i := range s.Limits {
		remaining = append(remaining, s.Limits[i].Remaining)
	}
	return remaining
}

func wantFree(t *testing.T, when string, l *core.Limiter, want ...int) {
	t.Helper()
	if got := free(t, l); !slices.Equal(got, want) {
		t.Errorf("%s %d remain, want %d", when, got, want)
	}
}

// slotted is the one route POST /replies/{id} behind the limiter.
func slotted(l *core.Limiter, cfg *nethttp.Config, h func(http.ResponseWriter, *http.Request)) App {
	return App{Routes: []Route{{
		Limits:  []Limit{{Limiter: l, Config: cfg}},
		Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) { h(w, r) },
	}}}
}

// visiting is a request of alice without a network, whose client leaves with ctx.
func visiting(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
	r.Header.Set("X-User-ID", "alice")
	w := httptest.NewRecorder()
	catches(h).ServeHTTP(w, r)
	return w
}
