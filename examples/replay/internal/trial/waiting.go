package trial

// The actions of the last hour, which are replayed when no earlier one can come any more.

import (
	"cmp"
	"slices"
)

// waiting holds actions until they are released: a list for each second. It takes 16 bytes an
// action.
type waiting struct {
	seconds [ring]list
	space   []*[chunk]waiter // in chunks, so that it never moves
	free    link
	oldest  int64 // the second from which on actions wait
	sorted  []waiter
}

const (
	ring  = 4096 // seconds: more than an hour has
	chunk = 4096
)

// A link is the number of a waiter in the space, from 1 on. 0 is none.
type link uint32

type list struct{ head, tail link }

type waiter struct {
	member uint32
	next   link
	micros uint32 // within the second
	cost   uint32
}

func (w *waiting) at(i link) *waiter { return &w.space[(i-1)/chunk][(i-1)%chunk] }

// add puts an action behind those of its second, which is within an hour of oldest.
func (w *waiting) add(m uint32, at int64, cost uint32) {
	if w.free == 0 {
		first := link(len(w.space)*chunk) + 1
		w.space = append(w.space, new([chunk]waiter))
		for i := first; i < first+chunk-1; i++ {
			w.at(i).next = i + 1
		}
		w.free = first
	}
	i := w.free
	x := w.at(i)
	w.free = x.next
	*x = waiter{member: m, micros: uint32(at % second), cost: cost}
	if l := &w.seconds[at/second%ring]; l.head == 0 {
		l.head, l.tail = i, i
	} else {
		w.at(l.tail).next = i
		l.tail = i
	}
}

// release calls do for all actions before the second end, in order of time. Those of one
// instant stay in the order of the log.
func (w *waiting) release(end int64, do func(m uint32, at int64, cost uint32)) {
	for full := w.oldest + ring; w.oldest < min(end, full); w.oldest++ {
		l := &w.seconds[w.oldest%ring]
		if l.head == 0 {
			continue
		}
		w.sorted = w.sorted[:0]
		for i := l.head; i != 0; i = w.at(i).next {
			w.sorted = append(w.sorted, *w.at(i))
		}
		w.at(l.tail).next, w.free = w.free, l.head
		*l = list{}
		earlier := func(a, b waiter) int { return cmp.Compare(a.micros, b.micros) }
		if !slices.IsSortedFunc(w.sorted, earlier) {
			slices.SortStableFunc(w.sorted, earlier)
		}
		for _, x := range w.sorted {
			do(x.member, w.oldest*second+int64(x.micros), x.cost)
		}
	}
	w.oldest = max(w.oldest, end)
}
