package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	limitermemory "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

const (
	tailcut  = "Tailcut"
	floor    = "a clock, a keyed hash, a lock and a slot"
	noPeer   = "–"
	action   = "reply"
	someKeys = 10_000
)

// A quota is so many actions in so long. A funnel, and only it, forgets a key as soon
// as it is whole again: after one action that is per/n. For the same work as the
// others' it must be longer than a key waits for its next action, and n be more than
// all its actions, so that they are admitted.
type quota struct {
	n   int
	per time.Duration
}

var (
	usual  = quota{1000, time.Minute}             // 60 ms an action: for 10,000 keys
	slow   = quota{1000, 24 * time.Hour}          // 86 s an action: for 1,000,000 keys, and for Redis
	plenty = quota{1_000_000_000, 24 * time.Hour} // 86 µs an action: for one key
)

func (q quota) String() string {
	per := "a minute"
	if q.per > time.Minute {
		per = "a day"
	}
	return grouped(q.n) + " " + per
}

// perSecond is the quota as x/time/rate has it.
func (q quota) perSecond() float64 { return float64(q.n) / q.per.Seconds() }

func (q quota) funnel() core.Limit { return core.Funnel(q.n, core.Per(q.n, q.per)) }

var background = context.Background()

// A maker makes a limiter of a quota, and says how to end it.
type maker struct {
	name string
	make func(q quota) (ask decide, end func(), err error)
}

func nothing() {}

func asks(l *core.Limiter) decide {
	return func(key string) (bool, error) {
		d, err := l.Allow(background, key, action)
		return d.Allowed, err
	}
}

func makeTailcut(q quota) (decide, func(), error) {
	l, err := core.New(memorystore.New(nil), q.funnel())
	return asks(l), nothing, err
}

// inProcessPeers are the limiters with a store in memory, each as its documentation
// sets it up, without a bound on its keys where that is faster.
var inProcessPeers = []maker{
	{"go-limiter", func(q quota) (decide, func(), error) {
		store, err := limitermemory.New(&limitermemory.Config{Tokens: uint64(q.n), Interval: q.per})
		if err != nil {
			return nil, nil, err
		}
		return func(key string) (bool, error) {
			_, _, _, ok, err := store.Take(background, key)
			return ok, err
		}, func() { _ = store.Close(background) }, nil
	}},
	{"x/time/rate in a sync.Map", func(q quota) (decide, func(), error) {
		var limiters sync.Map
		return func(key string) (bool, error) {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, rate.NewLimiter(rate.Limit(q.perSecond()), q.n))
			}
			return l.(*rate.Limiter).Allow(), nil
		}, nothing, nil
	}},
	{"throttled", func(q quota) (decide, func(), error) {
		l, err := makeThrottled(q)
		return func(key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(background, key, 1)
			return !limited, err
		}, nothing, err
	}},
	{"httprate", func(q quota) (decide, func(), error) {
		// What its OnLimit does, under such a lock as OnLimit holds, less the headers.
		counter := httprate.NewLocalLimitCounter(q.per)
		l := httprate.NewRateLimiter(q.n, q.per, httprate.WithLimitCounter(counter))
		var mu sync.Mutex
		return func(key string) (bool, error) {
			window := time.Now().UTC().Truncate(q.per)
			mu.Lock()
			defer mu.Unlock()
			_, count, err := l.Status(key)
			if err != nil || int(math.Round(count))+1 > q.n {
				return false, err
			}
			return true, counter.IncrementBy(key, window, 1)
		}, nothing, nil
	}},
	{"ulule", func(q quota) (decide, func(), error) {
		l := limiter.New(ululememory.NewStore(), limiter.Rate{Period: q.per, Limit: int64(q.n)})
		return func(key string) (bool, error) {
			c, err := l.Get(background, key)
			return !c.Reached, err
		}, nothing, nil
	}},
	{"tollbooth", func(q quota) (decide, func(), error) {
		l := tollbooth.NewLimiter(q.perSecond(), nil).SetBurst(q.n)
		return func(key string) (bool, error) {
			return tollbooth.LimitByKeys(l, []string{key}) == nil, nil
		}, nothing, nil
	}},
}

func makeThrottled(q quota) (*throttled.GCRARateLimiterCtx, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(q.n, q.per), MaxBurst: q.n - 1})
	if err == nil {
		l.SetMaxCASAttemptsLimit(1_000_000) // after 10, the default, it fails on a hot key
	}
	return l, err
}

// newFloor is not a limiter: it is what Tailcut's store does besides deciding. It reads the clock,
// hashes the key so that nobody can forge it, and writes a slot of a table under the slot's own
// lock.
func newFloor(keys int) decide {
	type slot struct {
		lock, state int64
		_           [24]byte // as large as Tailcut's, with its key
	}
	slots := make([]slot, keys*6/5)
	seeds, base := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, time.Now()
	return func(key string) (bool, error) {
		h, low := maphash.String(seeds[0], key), maphash.String(seeds[1], key)
		at, _ := bits.Mul64(h, uint64(len(slots)))
		s := &slots[at]
		now := int64(time.Since(base) / time.Microsecond)
		for !atomic.CompareAndSwapInt64(&s.lock, 0, 1) {
			runtime.Gosched()
		}
		s.state = now ^ int64(low)
		atomic.StoreInt64(&s.lock, 0)
		return true, nil
	}
}

func onProcs(n int, do func() error) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	return do()
}

// inProcess is row 1.
func inProcess(ctx context.Context, s settings) ([]table, error) {
	t := table{head: []string{"ns a decision"}}
	var lines [][]string
	results := [][]string{{tailcut + " ÷ the fastest peer"}, {"target"}, {"met"}}
	var allocs [][]float64
	for i, keys := range []int{1, min(someKeys, s.million), s.million} {
		target := [...]float64{1.6, 1.3, 1}[i]
		all, err := s.decideOn(ctx, keys)
		if err != nil {
			return nil, err
		}
		for procs, scores := range all {
			t.head = append(t.head, fmt.Sprintf("%s, %s", count(keys, "key"), count(procs+1, "proc")))
			for i, sc := range scores {
				if len(lines) == i {
					lines, allocs = append(lines, []string{sc.name}), append(allocs, nil)
				}
				lines[i] = append(lines[i], whole(median(sc.ns)))
				allocs[i] = append(allocs[i], sc.allocs...)
			}
			peer := fastest(scores[1 : len(scores)-1]) // the last is the floor
			r := quotient(scores[0].ns, peer.ns)
			results[0] = append(results[0], fmt.Sprintf("%s (%s)", ratio(r), peer.name))
			results[1] = append(results[1], "≤ "+plain(target))
			results[2] = append(results[2], met(r <= target))
			t.noteRefused(scores[:len(scores)-1])
		}
	}
	t.head = append(t.head, "allocs")
	for i, line := range lines {
		t.add(append(line, few(median(allocs[i])))...)
	}
	ours := median(allocs[0])
	for i, cell := range []string{few(ours), "0", met(ours < 0.05)} {
		t.add(append(results[i], cell)...)
	}
	t.note("Limits of %s with 1 key, %s with %s, %s with %s: all is admitted, and no key is whole again before its next action. With 2 procs, time passed ÷ decisions of both.",
		s.quotaOf(1), usual, count(someKeys, "key"), slow, count(s.million, "key"))
	return []table{t}, nil
}

// quotaOf is the quota that fits that many keys.
func (s settings) quotaOf(keys int) quota {
	switch keys {
	case 1:
		return plenty
	case s.million:
		return slow
	}
	return usual
}

// most is how many decisions two measurements a round may make without a refusal.
func (s settings) most(q quota, keys int) int { return q.n * keys / 10 * 9 / (2 * (s.rounds + 2)) }

// decideOn measures that many keys on one and on two processors.
func (s settings) decideOn(ctx context.Context, keys int) (all [2][]score, err error) {
	makers := append([]maker{{tailcut, makeTailcut}}, inProcessPeers...)
	// Filled from one array of keys and asked with another: a server never has the
	// very string that the limiter keeps.
	fill, walk := manyKeys(0, keys, 1), manyKeys(0, keys, 2)
	q := s.quotaOf(keys)
	asks := make([]decide, len(makers))
	for i, m := range makers {
		ask, end, err := m.make(q)
		if err != nil {
			return all, fmt.Errorf("%s: %w", m.name, err)
		}
		defer end()
		for _, key := range fill {
			if _, err := ask(key); err != nil {
				return all, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		asks[i] = ask
	}
	least := newFloor(keys)
	for procs := range all {
		var contenders []contender
		for i, m := range makers {
			contenders = append(contenders, among(walk, procs+1, m.name, asks[i]))
		}
		contenders = append(contenders, among(walk, procs+1, floor, least))
		err := onProcs(procs+1, func() error {
			all[procs], err = s.compete(ctx, s.most(q, keys), contenders...)
			return err
		})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// memory is row 2. Every key is a string of its own, which lives only if the limiter
// keeps it.
func memory(ctx context.Context, s settings) ([]table, error) {
	t := table{head: []string{fmt.Sprintf("at %s", count(s.million, "key")), "bytes per key", tailcut + " ÷ it", "target", "met"}}
	ours := 0.0
	all := append([]maker{{tailcut, makeTailcut}, makeLimit(core.SlidingWindow(5, time.Hour))}, inProcessPeers...)
	most := []float64{64, 120}
	for i, m := range all {
		before := live()
		ask, end, err := m.make(slow)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		for k := range s.million {
			if _, err := ask(fmt.Sprintf("user-%012d", k)); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		bytes := (live() - before) / float64(s.million)
		runtime.KeepAlive(ask)
		end()
		if i == 0 {
			ours = bytes
		}
		if i < len(most) {
			t.add(m.name, whole(bytes), ratio(ours/bytes), fmt.Sprintf("≤ %s bytes", whole(most[i])), met(bytes <= most[i]))
		} else {
			t.add(m.name, whole(bytes), ratio(ours/bytes), noPeer, noPeer)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	t.note("The key of 17 bytes included, where the limiter keeps it. A limit of %s, so that all keys are live. A SlidingWindow(5) takes the same room for one instant and for five.", slow)
	return []table{t}, nil
}

// secondProcessor is row 10.
func secondProcessor(ctx context.Context, s settings) ([]table, error) {
	keys := manyKeys(0, min(someKeys, s.million), 3)
	makers := append([]maker{{tailcut, makeTailcut}}, inProcessPeers...)
	makers = append(makers, maker{floor, func(quota) (decide, func(), error) { return newFloor(len(keys)), nothing, nil }})
	var contenders []contender
	for _, m := range makers {
		ask, end, err := m.make(usual)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		defer end()
		for procs := 1; procs <= 2; procs++ {
			c := among(keys, procs, m.name, ask)
			contenders = append(contenders, contender{c.name, func(from, n int) (found sample, err error) {
				err = onProcs(procs, func() error {
					found, err = c.run(from, n)
					return err
				})
				return found, err
			}})
		}
	}
	scores, err := s.compete(ctx, s.most(usual, len(keys)), contenders...)
	if err != nil {
		return nil, err
	}
	t := table{head: []string{"decisions/s, " + count(len(keys), "key"), "1 proc", "2 procs", "÷ those of 1 proc", "target", "met"}}
	for i := 0; i < len(scores); i += 2 {
		one, two := scores[i], scores[i+1]
		line := []string{one.name, thousands(1e9 / median(one.ns)), thousands(1e9 / median(two.ns))}
		if r := quotient(one.ns, two.ns); i == 0 {
			t.add(append(line, atLeast(r, 1.5)...)...)
		} else {
			t.add(append(line, ratio(r), noPeer, noPeer)...)
		}
	}
	t.noteRefused(scores)
	return []table{t}, nil
}

// count is "1 key" or "10,000 keys".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return grouped(n) + " " + what
}

func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
