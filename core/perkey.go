package core

// PerKey: limiters that are made when they are first used.

import "sync"

// mostKept bounds the limiters that a PerKey keeps.
const mostKept = 10_000

// PerKey returns a function that has one limiter for each key, such as a time zone or the day on which a customer
// has paid. It calls newLimiter when a key first comes, and keeps the limiter or the error. Of more than 10,000
// keys it drops one, and calls newLimiter again if that key comes back: the limiter goes on with the same state,
// which is in the store.
//
//	quotas := core.PerKey(func(day int) (*core.Limiter, error) {
//		return core.New(store, core.CalendarWindow(10_000, core.Month.From(day), nil))
//	})
//
// It is safe for use by many goroutines. newLimiter may be called more than once for a key that first comes on
// several of them.
func PerKey[K comparable](newLimiter func(key K) (*Limiter, error)) func(key K) (*Limiter, error) {
	type made struct {
		limiter *Limiter
		err     error
	}
	var mu sync.RWMutex
	kept := map[K]made{}
	return func(key K) (*Limiter, error) {
		mu.RLock()
		m, ok := kept[key]
		mu.RUnlock()
		if ok {
			return m.limiter, m.err
		}
		m.limiter, m.err = newLimiter(key)
		mu.Lock()
		defer mu.Unlock()
		if first, ok := kept[key]; ok {
			return first.limiter, first.err
		}
		if len(kept) >= mostKept {
			for old := range kept { // any one
				delete(kept, old)
				break
			}
		}
		kept[key] = m
		return m.limiter, m.err
	}
}
