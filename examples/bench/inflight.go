package main

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// slots is how many requests a user may have at the same time.
const slots = 3

// semaphores is a semaphore for each user who has a request in progress. It has no leases, shares
// nothing with another process, and tells the client nothing.
type semaphores struct {
	mu    sync.Mutex
	users map[string]*shared
}

type shared struct {
	*semaphore.Weighted
	requests int // that use it
}

func (s *semaphores) of(user string) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[user]
	if u == nil {
		u = &shared{semaphore.NewWeighted(slots), 0}
		s.users[user] = u
	}
	u.requests++
	return u
}

func (s *semaphores) leave(user string, u *shared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.requests--; u.requests == 0 {
		delete(s.users, user)
	}
}

func (s *semaphores) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get(userHeader)
		u := s.of(user)
		defer s.leave(user, u)
		if !u.TryAcquire(1) {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		defer u.Release(1)
		next.ServeHTTP(w, r)
	})
}

// inFlight is row 14.
func inFlight(ctx context.Context, s settings) ([]table, error) {
	next := http.HandlerFunc(bare)
	ours := func(limits ...core.Limit) (http.Handler, error) {
		l, err := core.New(memorystore.New(nil), limits...)
		if err != nil {
			return nil, err
		}
		return nethttp.Limit(l, keyfuncs.Header(userHeader), keyfuncs.Action(action))(next), nil
	}
	alone, err := ours(core.InFlight(slots))
	if err != nil {
		return nil, err
	}
	beside, err := ours(core.InFlight(slots), plenty.funnel())
	if err != nil {
		return nil, err
	}
	const peer = 1 // in entries
	entries := []mounted{
		{"bare handler", next, true},
		{"x/sync/semaphore in a map", (&semaphores{users: map[string]*shared{}}).limit(next), true},
		{tailcut, alone, false},
		{tailcut + ", and a Funnel", beside, false},
	}
	var contenders []contender
	for _, m := range entries {
		contenders = append(contenders, serving("net/http", m))
	}
	s.turns = 25 // as in row 9
	scores, err := s.compete(ctx, 0, contenders...)
	if err != nil {
		return nil, err
	}
	added := scores[0].added(scores)
	t := table{head: []string{"", "ns added", "allocs added", "÷ " + entries[peer].name}}
	t.add(scores[0].name, "("+few(median(scores[0].ns))+")", "("+few(median(scores[0].allocs))+")", noPeer)
	for _, a := range added[1:] {
		t.add(a.name, whole(median(a.ns)), few(median(a.allocs)), ratio(quotient(a.ns, added[peer].ns)))
	}
	t.note("One goroutine, one user, at most %d requests at the same time. The semaphore has no lease and no renewal, and sends no headers.", slots)
	return []table{t}, nil
}

// added is what each score adds to that of the bare handler, in each round.
func (bare score) added(scores []score) []score {
	added := make([]score, len(scores))
	for i, sc := range scores {
		added[i].name = sc.name
		for round := range sc.ns {
			added[i].ns = append(added[i].ns, sc.ns[round]-bare.ns[round])
			added[i].allocs = append(added[i].allocs, sc.allocs[round]-bare.allocs[round])
		}
	}
	return added
}
