package redisstore

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// After so many answers a store asks about the policy, and again when so many more have
// come and so much time has passed. By then its connections are open and there is more
// to lose than a try.
const (
	policyAfter = 100
	policyEvery = 10 * time.Minute
)

// checkPolicy asks a server that answers, aside, whether it may evict limits, and says so
// in the log if it may. A user who may not ask is told nothing.
func (s *Store) checkPolicy() {
	if s.answered.Add(1)%policyAfter != 0 {
		return
	}
	now := time.Since(s.base)
	if at := s.policyAt.Load(); now < time.Duration(at) || !s.policyAt.CompareAndSwap(at, int64(now+policyEvery)) {
		return
	}
	go func() {
		defer func() { _ = recover() }() // of a hook of the client's
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		cmd := newCommand(ctx, "info", "memory")
		if s.rdb.Process(ctx, cmd) != nil {
			return
		}
		info, _ := cmd.Val().(string)
		evicts := infoField(info, "maxmemory_policy")
		if evicts == "" || evicts == "noeviction" || infoField(info, "maxmemory") == "0" {
			s.evicts.Store(false)
			return
		}
		if !s.evicts.Swap(true) {
			slog.Default().Warn("redisstore: Redis may evict limits when its memory is full, and an evicted user is forgiven; give the limits a server with maxmemory-policy noeviction",
				"code", "redis-evicts", "maxmemory_policy", evicts)
		}
	}()
}

// infoField is what a line of INFO says of name, "" if there is none.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
