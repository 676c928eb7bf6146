package core

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A limiter that is built for every request limits nobody if its store is built with
// it, and costs time in any case. It shows in two marks that nothing else has both of:
// it is built on a goroutine on which net/http serves a request, and it is garbage soon
// after. At start-up, in tests that call a handler themselves, and where tenants' limiters
// are made at their first request and kept, there is not one of such; a hundred in a
// minute are what is said.
const (
	manyBuilt   = 100
	builtWithin = time.Minute
	servesHTTP  = "net/http.serverHandler.ServeHTTP"
)

var built struct {
	mu    sync.Mutex
	since time.Time // when the count below was taken
	gone  int64
	said  bool
}

var builtAndGone atomic.Int64

// watchBuilt notes a limiter that is being built.
func watchBuilt(l *Limiter) {
	if !serving() {
		return
	}
	runtime.AddCleanup(l, func(gone *atomic.Int64) { gone.Add(1) }, &builtAndGone)
	built.mu.Lock()
	defer built.mu.Unlock()
	gone, now := builtAndGone.Load(), time.Now()
	if !built.said && gone-built.gone >= manyBuilt {
		built.said = true
		slog.Default().Warn("core: limiters are built while requests are served and dropped again; one that is built for each request, with its store, limits nobody: build both once, at start-up, and use them for all",
			"code", "limiter-per-request")
	}
	if now.Sub(built.since) > builtWithin {
		built.since, built.gone = now, gone
	}
}

// serving is whether net/http serves a request on this goroutine.
func serving() bool {
	var buf [64]uintptr
	for skip := 0; ; skip += len(buf) {
		n := runtime.Callers(skip, buf[:])
		if n == 0 {
			return false
		}
		for frames := runtime.CallersFrames(buf[:n]); ; {
			f, more := frames.Next()
			if f.Function == servesHTTP {
				return true
			}
			if !more {
				break
			}
		}
		if n < len(buf) {
			return false
		}
	}
}
