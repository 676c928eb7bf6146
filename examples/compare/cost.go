package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// cost is what a limit takes, on this machine. 0 is what was not measured.
type cost struct {
	nanos      float64 // an in-process decision
	bytes      float64 // a key in process, when its quota is used up
	micros     float64 // a decision on Redis, as its caller sees it
	redisBytes float64 // a key on Redis, when its quota is used up
}

// portion is the most that one call charges while a key is filled.
const portion = 10_000

// rounds is how often a time is measured. The best counts: other programs of the machine
// only add to it.
const rounds = 25

// inProcess measures every limit of a quota. The limits take turns, so that a busy moment
// of the machine meets all of them.
func inProcess(costs []cost, quota int, s settings) {
	ready := make([]func(), len(contenders))
	for i := range contenders {
		if contenders[i].takes(quota) {
			ready[i] = decide(contenders[i].limit(quota), quota)
		}
	}
	runtime.GC() // not while the time is measured
	for range rounds {
		for i, one := range ready {
			if one == nil {
				continue
			}
			if took := nanos(one, s.each); costs[i].nanos == 0 || took < costs[i].nanos {
				costs[i].nanos = took
			}
		}
	}
	for i := range contenders {
		if ready[i] != nil {
			costs[i].bytes = heapPerKey(&contenders[i], quota, s.keys)
		}
	}
}

// decide returns a function that makes one decision on a key whose quota was used up until
// that instant, so that it passes, but for an ElasticWindow: the store's clock is the
// machine's, and goes an even gap further for each decision.
func decide(limit core.Limit, quota int) func() {
	gap := period / time.Duration(quota)
	var ahead time.Duration
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return time.Now().Add(ahead) }})
	l := core.Must(core.New(store, limit))
	ctx := context.Background()
	one := func() {
		ahead += gap
		must(l.Allow(ctx, "alice", "reply"))
	}
	for range quota {
		one()
	}
	return one
}

// nanos is how long one call of f takes, measured for about that long.
func nanos(f func(), about time.Duration) float64 {
	const batch = 256
	start := time.Now()
	for n := batch; ; n += batch {
		for range batch {
			f()
		}
		if took := time.Since(start); took >= about {
			return float64(took.Nanoseconds()) / float64(n)
		}
	}
}

// heapPerKey is what a key with a used-up quota keeps alive.
func heapPerKey(c *contender, quota, keys int) float64 {
	if c.queues {
		keys = min(keys, max(1, 4_000_000/quota)) // some 35 MB
	}
	store := memorystore.New(nil)
	l := core.Must(core.New(store, c.limit(quota)))
	before := heap()
	for k := range keys {
		must(0, fill(context.Background(), l, fmt.Sprintf("user%09d", k), quota))
	}
	took := heap() - before
	runtime.KeepAlive(store)
	return float64(took) / float64(keys)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fill charges a user with n actions.
func fill(ctx context.Context, l *core.Limiter, user string, n int) error {
	for ; n > 0; n -= portion {
		if _, err := l.AllowN(ctx, user, "reply", min(n, portion)); err != nil {
			return err
		}
	}
	return nil
}

// median is the middle one, and 0 of none.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}
