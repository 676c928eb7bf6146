package redisstore

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// The store checks the policy after policyAfter answers, and again after as many more and
// policyEvery. By then its connections are open and the limits have state to lose.
const (
	policyAfter = 100
	policyEvery = 10 * time.Minute
)

// checkPolicy reads, in the background, whether the server may evict limits, and logs a warning
// if it may. If the ACL does not allow INFO, nothing is logged.
func (s *Store) checkPolicy() {
	if s.answered.Add(1)%policyAfter != 0 {
		return
	}
	now := time.Since(s.base)
	if at := s.policyAt.Load(); now < time.Duration(at) || !s.policyAt.CompareAndSwap(at, int64(now+policyEvery)) {
		return
	}
	go func() {
		defer func() { _ = recover() }() // a hook of the client may panic
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		cmd := newCommand(ctx, "info", "memory")
		if s.rdb.Process(ctx, cmd) != nil {
			return
		}
		info, _ := cmd.Val().(string)
		evicts := infoField(info, "maxmemory_policy")
		if evicts == "" || evicts == "noeviction" || infoField(info, "maxmemory") == "0" {
			s.evictsLogged.Store(false)
			return
		}
		if !s.evictsLogged.Swap(true) {
			slog.Default().Warn("redisstore: Redis may evict limits when its memory is full, and an evicted user has the full quota again; give the limits a server with maxmemory-policy noeviction",
				"code", "redis-evicts", "maxmemory_policy", evicts)
		}
	}()
}

// infoField is the value of name in the reply of INFO, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
