package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A spread store has its users on two servers, by their names' first letters, of which
// those that are named fail.
type spread struct {
	core.Store
	mu      sync.Mutex
	failing string
	asked   map[string]int
}

func (s *spread) Part(user string) string { return user[:1] }

func (s *spread) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.mu.Lock()
	part := s.Part(c.User)
	s.asked[part]++
	failing := strings.Contains(s.failing, part)
	s.mu.Unlock()
	if failing {
		return core.Decision{}, nil, errDown
	}
	return s.Store.Take(ctx, c)
}

type wrapped struct{ core.Store }

func (w wrapped) Unwrap() core.Store { return w.Store }

// "If store consists of several servers"
// What one server of a store does concerns its users only: the others' decisions stay the
// store's, and its own pay no timeout for every call.
func TestBreakerPerPartOfAStore(t *testing.T) {
	wraps := map[string]func(core.Store) core.Store{
		"bare":    func(s core.Store) core.Store { return s },
		"Divide":  func(s core.Store) core.Store { return core.Divide(s, 2) },
		"Observe": func(s core.Store) core.Store { return core.Observe(s, func(context.Context, core.Observation) {}) },
		"another": func(s core.Store) core.Store { return wrapped{s} },
	}
	for name, decorate := range breakers {
		for inner, wrap := range wraps {
			t.Run(name+" of "+inner, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log := logs(t)
					store := &spread{Store: memorystore.New(nil), failing: "b", asked: map[string]int{}}
					down := map[string]bool{}
					observed := core.Observe(decorate(wrap(store)), note(down))
					users := core.Must(core.New(observed, plenty.Named("users")))
					ask := func(n int) {
						for i := range n {
							for _, part := range []string{"a", "b"} {
								d, err := users.Allow(t.Context(), fmt.Sprint(part, i%7), part)
								if err != nil || !d.Allowed || part == "a" && d.Source != core.SourceStore {
									t.Fatalf("a user of %s: %+v, %v", part, d, err)
								}
							}
						}
					}
					ask(100)
					if store.asked["a"] != 100 || store.asked["b"] != 3 || down["a"] || !down["b"] {
						t.Errorf("asked %v, down %v", store.asked, down)
					}
					if n := strings.Count(log.String(), "part=b"); n != 1 || strings.Count(log.String(), "\n") != 1 {
						t.Errorf("the log says:\n%s", log)
					}
					time.Sleep(time.Second)
					if ask(100); store.asked["a"] != 200 || store.asked["b"] != 4 {
						t.Errorf("after a probe: asked %v", store.asked)
					}
					store.failing = ""
					time.Sleep(time.Second)
					if ask(100); store.asked["a"] != 300 || store.asked["b"] != 104 || down["b"] {
						t.Errorf("when it is back: asked %v, down %v", store.asked, down)
					}
					time.Sleep(6 * time.Second)
					if ask(1); !strings.Contains(log.String(), "answers again") {
						t.Errorf("the log says:\n%s", log)
					}
				})
			})
		}
	}
}

// A part that nobody asks for any more, since another has taken over, is no outage for ever.
func TestBreakerForgetsARemovedPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logs(t)
		store := &spread{Store: memorystore.New(nil), failing: "b", asked: map[string]int{}}
		l := core.Must(core.New(core.FailOpen(store), plenty))
		for range 5 {
			_, _ = allowUser(l, "b")
		}
		for range 60 {
			time.Sleep(100 * time.Millisecond)
			_, _ = allowUser(l, "a")
		}
		if !strings.Contains(log.String(), "answers again") {
			t.Errorf("the log says:\n%s", log)
		}
		if _, _ = allowUser(l, "b"); store.asked["b"] != 4 {
			t.Errorf("the part that has gone is asked %d times", store.asked["b"])
		}
	})
}

// However many parts fail, the breaker stays small, and all of them are spared.
func TestBreakerBoundsItsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		store := &everyUser{}
		l := core.Must(core.New(core.FailOpen(store), plenty))
		for i := range 1000 {
			_, _ = allowUser(l, fmt.Sprint(i))
		}
		// 63 parts or so have a circuit each, which one failure does not open.
		if store.asked > 100 {
			t.Errorf("asked %d times, more than 100", store.asked)
		}
	})
}

type everyUser struct {
	core.Store
	asked int
}

func (*everyUser) Part(user string) string { return user }

func (s *everyUser) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	s.asked++
	return core.Decision{}, nil, errDown
}

// A brittle store is down, and panics for a long name.
type brittle struct{ everyUser }

func (*brittle) Part(user string) string { return "part"[:len(user)] }

func TestBreakerOutlivesAPartThatPanics(t *testing.T) {
	l := core.Must(core.New(core.FailOpen(&brittle{}), plenty))
	_, _ = allowUser(l, "longer")
	answered := make(chan error, 1)
	go func() {
		_, err := allowUser(l, "u")
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("another user's call hangs")
	}
}
