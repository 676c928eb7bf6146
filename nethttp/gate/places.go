package gate

import "sync"

// places are those of the requests that wait or are decided in a middleware with MaxWait.
type places struct {
	mu    sync.Mutex
	taken map[place]int
	all   int
}

// A place belongs to a user and an action.
type place struct{ user, action string }

// take takes a place if its user and action have fewer than are free. So one of them has at most
// half of the places, and leaves some to the others.
func (p *places) take(x place, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[x] >= most-p.all {
		return false
	}
	if p.taken == nil {
		p.taken = map[place]int{}
	}
	p.taken[x]++
	p.all++
	return true
}

func (p *places) leave(x place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.taken[x]--; p.taken[x] == 0 {
		delete(p.taken, x)
	}
}
