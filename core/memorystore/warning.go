package memorystore

// A warning for a program that makes a store for every request. Such a store limits no user.

import (
	"log/slog"
	"sync"
	"time"
	"weak"
)

const manyStores = 100

// watched has stores that New has made. A store leaves it when it is garbage-collected. If the
// program keeps its stores, they fill watched, and later stores are not added.
var watched struct {
	sync.Mutex
	stores [manyStores]weak.Pointer[Store]
	next   int
	got    int       // how many stores were added since the instant since: at most the last manyStores are not dropped
	since  time.Time // at most an hour before the last store was added
}

// watch logs once that the program has made and dropped many stores within an hour.
func watch(s *Store) {
	w, logs := &watched, false
	w.Lock()
	place := &w.stores[w.next]
	w.next = (w.next + 1) % manyStores
	if place.Value() == nil && w.got < 2*manyStores {
		if time.Since(w.since) > time.Hour {
			w.got, w.since = 0, time.Now()
		}
		*place = weak.Make(s)
		w.got++
		logs = w.got == 2*manyStores
	}
	w.Unlock() // before logging, because the log's handler may make a store
	if logs {
		slog.Default().Warn("memorystore: the program makes stores and drops them, and a store that is made for each request limits no user; make the store and its limiters once, at start-up, and keep them",
			"code", "store-dropped")
	}
}
