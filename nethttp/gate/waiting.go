package gate

// How many requests may wait: MaxWaiting.

import "sync"

// waiting counts the requests that wait or are decided in a middleware with MaxWait.
type waiting struct {
	mu  sync.Mutex
	of  map[[2]string]int // a user and an action
	all int
}

// enter counts a request if its user and action have fewer requests here than places are free. So one user and
// action get at most half of the places, rounded up.
func (w *waiting) enter(user, action string, places int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]string{user, action}
	if w.of[key] >= places-w.all {
		return false
	}
	w.of[key]++
	w.all++
	return true
}

func (w *waiting) leave(user, action string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]string{user, action}
	w.all--
	if w.of[key]--; w.of[key] == 0 {
		delete(w.of, key)
	}
}
