package redisstore

import (
	"context"
	"log/slog"
	"strings"
)

// policyAfter is how many commands a store has had answered when it asks: by
// then its connections are open and there is more to lose than a try.
const policyAfter = 100

// checkPolicy asks a server that answers, once and aside, whether it may evict limits,
// and says so in the log if it may. A user who may not ask is told nothing.
func (s *Store) checkPolicy() {
	if s.answered.Load() >= policyAfter || s.answered.Add(1) != policyAfter {
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
		if evicts := infoField(info, "maxmemory_policy"); evicts != "" && evicts != "noeviction" && infoField(info, "maxmemory") != "0" {
			slog.Default().Warn("redisstore: Redis may evict limits when its memory is full, and whoever is evicted is forgiven; give the limits a server with maxmemory-policy noeviction",
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
