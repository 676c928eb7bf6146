package core

// PerKey: limiters that are made when they are first used.

import "sync"

// mostKept bounds the limiters that a PerKey keeps.
const mostKept = 10_000

// PerKey returns a function that returns the limiter of a key, such as a time zone or the day on
// which a customer has paid. When a key first comes, the function calls newLimiter, and keeps the
// limiter or the error.
//
//	quotas := core.PerKey(func(day int) (*core.Limiter, error) {
//		return core.New(store, core.CalendarWindow(10_000, core.Month.From(day), nil))
//	})
//
// It keeps at most 10,000 keys, and then drops one for each new key. If a dropped key comes back,
// it calls newLimiter again: the new limiter has the same state, because the store keeps it.
//
// The function is safe for use by many goroutines. If a new key comes on several of them,
// newLimiter may be called more than once for it.
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
