package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A target is a user of a limiter, under load.
type target struct {
	who    string
	limit  core.Limit
	lim    *core.Limiter
	passed int
	failed int  // calls without an answer
	over   bool // was refused last
}

// targets are n users for each kind of limit.
func targets(store core.Store, prefix string, n, quota int) (all []*target) {
	for _, l := range kindsOf(quota) {
		lim := core.Must(core.New(store, l))
		for i := range n {
			all = append(all, &target{who: fmt.Sprint(prefix, i), limit: l, lim: lim})
		}
	}
	return all
}

// A load is callers who charge at random, until stopped, and what they were told. A
// decision that the store did not make is a failure here, whoever stood in for it.
type load struct {
	t       testing.TB
	targets []*target
	end     chan struct{}
	ends    sync.Once
	callers sync.WaitGroup

	mu      sync.Mutex
	took    []time.Duration
	errs    int
	bad     time.Time // the last failure
	problem error     // its error, if any
	streak  int       // decisions since
}

func startLoad(t testing.TB, callers int, targets ...*target) *load {
	l := &load{t: t, targets: targets, end: make(chan struct{})}
	t.Cleanup(l.halt) // of a test that has failed
	for range callers {
		l.callers.Go(func() {
			for {
				select {
				case <-l.end:
					return
				case <-time.After(time.Millisecond):
					l.charge(targets[rand.IntN(len(targets))])
				}
			}
		})
	}
	return l
}

func (l *load) charge(to *target) {
	start := time.Now()
	d, err := to.lim.Allow(l.t.Context(), to.who, action)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, now.Sub(start))
	switch {
	case err == nil && d.Source == core.SourceStore:
		l.streak++
	case err != nil || d.Source != core.SourceCache: // which says nothing of Redis
		l.bad, l.problem, l.streak = now, err, 0
	}
	if err != nil {
		l.errs++
		to.failed++
		return
	}
	if to.over = !d.Allowed; d.Allowed {
		to.passed++
	}
}

// well reports whether the last n decisions were all the store's.
func (l *load) well(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streak >= n
}

// restart has well and usedUp begin from here.
func (l *load) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streak = 0
	for _, to := range l.targets {
		to.over = false
	}
}

// usedUp reports whether nobody was let pass when last asked.
func (l *load) usedUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.targets, func(to *target) bool { return !to.over })
}

// failures are how many calls had no answer, and when the last was that the store did
// not give.
func (l *load) failures() (n int, last time.Time, problem error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errs, l.bad, l.problem
}

func (l *load) halt() {
	l.ends.Do(func() { close(l.end) })
	l.callers.Wait()
}

// stop ends the load. It holds every decision to the time budget: all but one in a
// hundred, since the machine may be busy.
func (l *load) stop(budget time.Duration) {
	l.t.Helper()
	l.halt()
	slices.Sort(l.took)
	p99, worst := l.took[len(l.took)*99/100], l.took[len(l.took)-1]
	if p99 > budget+slack/4 || worst > budget+slack {
		l.t.Errorf("one decision in a hundred took %s and one %s, and the budget is %s", p99, worst, budget)
	}
	l.t.Logf("%d decisions, %d errors, p99 %s, at most %s", len(l.took), l.errs, p99.Round(time.Microsecond), worst.Round(time.Microsecond))
}

// atMost holds what passed to so many quotas for each user.
func (l *load) atMost(quotas int) {
	l.t.Helper()
	beyond := 0
	for _, to := range l.targets {
		quota := to.limit.Quota()
		if to.limit.Rule().ForgetAfter > 0 {
			quota /= 2 // it starts with half
		}
		if to.passed > quotas*quota {
			l.t.Errorf("%s: %d passed, above %d times %d", to.limit, to.passed, quotas, quota)
		}
		beyond += max(0, to.passed-quota)
	}
	l.t.Logf("%d passed beyond one quota, of %d users", beyond, len(l.targets))
}

// useUp charges all that there is to the targets.
func useUp(t testing.TB, targets ...*target) {
	t.Helper()
	for _, to := range targets {
		for to.over = false; !to.over; {
			d, err := to.lim.Allow(t.Context(), to.who, action)
			if err != nil {
				t.Fatal(err)
			}
			to.over = !d.Allowed
		}
	}
}

// level waits until the replica has all that the master has.
func level(t testing.TB, master, replica *redistest.Server) {
	t.Helper()
	within(t, "the replica is level", func() bool {
		_, offset, _ := strings.Cut(master.Do("INFO", "replication"), "master_repl_offset:")
		offset, _, _ = strings.Cut(offset, "\r")
		info := replica.Do("INFO", "replication")
		return strings.Contains(info, "master_link_status:up") && strings.Contains(info, "slave_repl_offset:"+offset+"\r")
	})
}
