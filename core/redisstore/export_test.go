package redisstore

import "github.com/tailcut/tailcut/core"

const (
	MaxCalls    = maxCalls
	ManyFlights = manyFlights
	Source      = "redisstore.go" // has the package's documentation
)

// Key is the key of a limit's state.
func (s *Store) Key(user, action string, limit core.Limit) string {
	return s.keys(user, action, []core.Limit{limit})[0]
}

// SetCalls replaces the bound on calls that wait.
func (s *Store) SetCalls(n int) { s.line.most = n }

// Calls is how many wait or are under way, and the bound.
func (s *Store) Calls() (n, bound int) {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	return len(s.line.calls) + s.line.flying + s.line.alone, s.line.most
}
