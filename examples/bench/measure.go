package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A contender does the same work as the others of its table.
type contender struct {
	name string
	// run makes n decisions, the first of them on the from-th key.
	run func(from, n int) (sample, error)
}

// A sample is what one measurement found.
type sample struct {
	ns      float64 // a decision
	refused int
}

// A score is what a contender's rounds found.
type score struct {
	name       string
	ns, allocs []float64 // a decision, by round
	bytes      []float64 // allocated for a decision, by round
	refused    float64   // the share of all decisions
}

// compete measures the contenders in turn, A B C A B C, after one round that does not
// count. All make the same number of decisions: as many as take the contenders
// settings.seconds on average, and no more than most, if that is not 0. A contender makes those
// of a round in settings.turns turns.
func (s settings) compete(ctx context.Context, most int, contenders ...contender) ([]score, error) {
	n, from, err := s.work(ctx, most, contenders)
	if err != nil {
		return nil, err
	}
	scores, turns := make([]score, len(contenders)), max(1, s.turns)
	for round := range s.rounds + 1 {
		runtime.GC()
		measured := make([]measurement, len(contenders))
		for turn := range turns {
			lo, hi := turn*n/turns, (turn+1)*n/turns
			for i, c := range contenders {
				if err := measured[i].add(c, from+lo, hi-lo); err != nil {
					return nil, fmt.Errorf("%s: %w", c.name, err)
				}
				if err := ctx.Err(); err != nil {
					return nil, err
				}
			}
		}
		for i, c := range contenders {
			if round == 0 {
				scores[i].name = c.name
				continue
			}
			scores[i].ns = append(scores[i].ns, measured[i].ns/float64(n))
			scores[i].allocs = append(scores[i].allocs, float64(measured[i].allocs)/float64(n))
			scores[i].bytes = append(scores[i].bytes, float64(measured[i].bytes)/float64(n))
			scores[i].refused += float64(measured[i].refused) / float64(n*s.rounds)
		}
		from += n
	}
	return scores, nil
}

// A measurement is what a contender's turns of a round took.
type measurement struct {
	ns            float64
	allocs, bytes uint64
	refused       int
}

func (m *measurement) add(c contender, from, n int) error {
	if n == 0 {
		return nil
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, err := c.run(from, n)
	runtime.ReadMemStats(&after)
	m.ns += found.ns * float64(n)
	m.allocs += after.Mallocs - before.Mallocs
	m.bytes += after.TotalAlloc - before.TotalAlloc
	m.refused += found.refused
	return err
}

// work finds the number of decisions of a measurement, and the key to go on from.
func (s settings) work(ctx context.Context, most int, contenders []contender) (n, from int, err error) {
	if s.fixed > 0 {
		return s.fixed, 0, nil
	}
	const try = 20 * time.Millisecond
	total := 0.0 // ns of one decision of each
	for _, c := range contenders {
		for n := 256; ; n *= 2 {
			start := time.Now()
			if _, err := c.run(0, n); err != nil {
				return 0, 0, fmt.Errorf("%s: %w", c.name, err)
			}
			if took := time.Since(start); took > try || most > 0 && 2*n > most {
				total += float64(took) / float64(n)
				break
			}
			if err := ctx.Err(); err != nil {
				return 0, 0, err
			}
			from = max(from, n)
		}
	}
	n = max(1000, int(s.seconds*1e9*float64(len(contenders))/total))
	if most > 0 {
		n = min(n, most)
	}
	return n, from, nil
}

// spread times n calls, shared out among workers: each does those from lo to hi.
func spread(workers, n int, do func(lo, hi int) (refused int, err error)) (sample, error) {
	refused, errs := make([]int, workers), make([]error, workers)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { refused[w], errs[w] = do(w*n/workers, (w+1)*n/workers) })
	}
	wg.Wait()
	found := sample{ns: float64(time.Since(start)) / float64(n)}
	for _, r := range refused {
		found.refused += r
	}
	return found, errors.Join(errs...)
}

// decide asks whether the user of that key may act.
type decide func(key string) (allowed bool, err error)

// among is a contender whose workers go through the keys, each through its share.
func among(keys []string, workers int, name string, ask decide) contender {
	return contender{name, func(from, n int) (sample, error) {
		return spread(workers, n, func(lo, hi int) (refused int, err error) {
			at := (from + lo) % len(keys)
			for range hi - lo {
				allowed, err := ask(keys[at])
				if err != nil {
					return refused, err
				}
				if !allowed {
					refused++
				}
				if at++; at == len(keys) {
					at = 0
				}
			}
			return refused, nil
		})
	}}
}

// manyKeys are n keys of 17 bytes, numbered from first, in random order. They lie in
// that order in memory of their own, so that to read them costs little and the
// limiters' work shows.
func manyKeys(first, n int, seed uint64) []string {
	const size = 17
	blob := make([]byte, 0, n*size)
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(n) {
		blob = fmt.Appendf(blob, "user-%012d", first+i)
	}
	all := string(blob)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = all[i*size : (i+1)*size]
	}
	return keys
}

// live is how many bytes of the heap are in use, once finalizers have run.
func live() float64 {
	for last := math.Inf(1); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := float64(m.HeapAlloc)
		if last-now < 64<<10 {
			return now
		}
		last = now
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quotient is the median of a's rounds, each divided by b's.
func quotient(a, b []float64) float64 {
	quotients := make([]float64, len(a))
	for i := range a {
		quotients[i] = a[i] / b[i]
	}
	return median(quotients)
}

// fastest is the score with the least time.
func fastest(scores []score) score {
	return slices.MinFunc(scores, func(a, b score) int {
		if median(a.ns) < median(b.ns) {
			return -1
		}
		return 1
	})
}

// noteRefused says who refused more than a hundredth, whose work then was another.
func (t *table) noteRefused(scores []score) {
	for _, sc := range scores {
		if sc.refused > 0.01 {
			t.note("%s refused %.0f %% of the decisions.", sc.name, 100*sc.refused)
		}
	}
}
