package core

// PerKey: a limiter for each key, made when the key is first used.

import "sync"

// maxCached bounds the limiters that a PerKey keeps.
const maxCached = 10_000

// PerKey returns a function that returns the limiter of a key. A key is, for example, a time zone
// or the day on which a customer has paid. If a key is new, the function calls newLimiter, and
// keeps the limiter or the error.
//
//	quotas := core.PerKey(func(day int) (*core.Limiter, error) {
//		return core.New(store, core.CalendarWindow(10_000, core.Month.From(day), nil))
//	})
//
// The function keeps at most 10,000 keys. After that it drops one key for each new key. If a
// dropped key comes again, the function calls newLimiter again. If newLimiter uses the same store,
// the counts do not start anew.
//
// The function is safe for concurrent use. If several goroutines use a new key at the same time,
// newLimiter may be called more than once for that key.
func PerKey[K comparable](newLimiter func(key K) (*Limiter, error)) func(key K) (*Limiter, error) {
	type made struct {
		limiter *Limiter
		err     error
	}
	var mu sync.RWMutex
	cached := map[K]made{}
	return func(key K) (*Limiter, error) {
		mu.RLock()
		m, ok := cached[key]
		mu.RUnlock()
		if ok {
			return m.limiter, m.err
		}
		m.limiter, m.err = newLimiter(key)
		mu.Lock()
		defer mu.Unlock()
		if first, ok := cached[key]; ok {
			return first.limiter, first.err
		}
		if len(cached) >= maxCached {
			for old := range cached { // any one
				delete(cached, old)
				break
			}
		}
		cached[key] = m
		return m.limiter, m.err
	}
}
