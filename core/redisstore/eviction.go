package redisstore

// Whether Redis may evict the states of limits.

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// The store reads the eviction policy in Connect. It also reads the policy at every checkAfter-th
// answer of Redis, but at most once in checkEvery. After checkAfter answers the connections are
// open, and the limits have states that Redis could evict.
const (
	checkAfter = 100
	checkEvery = 10 * time.Minute
)

// An evictionCheck says when to read the eviction policy.
type evictionCheck struct {
	answers atomic.Uint64
	mu      sync.Mutex
	next    time.Time // it is not read before
	logged  bool      // whether redis-evicts was logged
}

// checkServer counts an answer of Redis. At every checkAfter-th answer, but at most once in
// checkEvery, it checks the client, the eviction policy and the prefix, in the background.
func (w *wire) checkServer() {
	p := &w.eviction
	if p.answers.Add(1)%checkAfter > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); !now.Before(p.next) {
		p.next = now.Add(checkEvery)
		go func() {
			w.checkClient()
			_ = w.batches.Ask("", w.readEviction)
			w.checkPrefix(context.Background())
		}()
	}
}

// readEviction logs a warning if the server may evict limits. If the ACL does not allow INFO,
// readEviction logs nothing.
func (w *wire) readEviction(send batch.Send) error {
	reply, err := send([]any{"info", "memory"}, 0)
	if len(reply) != 1 {
		return err
	}
	info, _ := reply[0].(string)
	evicts := infoField(info, "maxmemory_policy")
	safe := evicts == "" || evicts == "noeviction" || infoField(info, "maxmemory") == "0"
	p := &w.eviction
	p.mu.Lock()
	defer p.mu.Unlock()
	if !safe && !p.logged {
		slog.Default().Warn("redisstore: Redis may evict limits when its memory is full, and an evicted user has the full quota again; give the limits a server with maxmemory-policy noeviction",
			"code", "redis-evicts", "maxmemory_policy", evicts)
	}
	p.logged = !safe
	return nil
}

// infoField returns the value of a field in the reply of INFO. It returns "" if there is no such
// field.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
