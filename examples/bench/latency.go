package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

// redisLatency is row 4: one caller, on a quiet machine and on one whose processors are all
// busy with something else.
func redisLatency(ctx context.Context, s settings) ([]table, error) {
	quiet, err := s.latencies(ctx, "quiet", 1.3)
	if err != nil {
		return nil, err
	}
	end, err := spin(ctx, runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	defer end()
	busy, err := s.latencies(ctx, "every processor busy", 0)
	return []table{quiet, busy}, err
}

// latencies measures one caller. The contenders take turns call by call, since the machine may be faster
// in one second than in the next. Their order is random, because the order makes a difference of 3 %. ns
// is the median of a round's latencies.
func (s settings) latencies(ctx context.Context, how string, incrTarget float64) (table, error) {
	keys := s.redis.keys(someKeys)
	ask, err := s.redis.tailcut(slow.funnel())
	if err != nil {
		return table{}, err
	}
	direct, err := s.redis.direct(keys)
	if err != nil {
		return table{}, err
	}
	scores := []score{{name: tailcut}, {name: "redis_rate"}, {name: "INCR"}, {name: "its command, sent by the client alone"}}
	asks := []decide{ask, s.redis.redisRate(slow), s.redis.incr, direct}
	for round := range s.rounds + 1 { // the first one does not count
		took := make([][]float64, len(asks))
		end := time.Now().Add(time.Duration(s.seconds * float64(len(asks)) * float64(time.Second)))
		for i := 0; i < 1000 || s.fixed == 0 && time.Now().Before(end); i++ {
			for _, j := range rand.Perm(len(asks)) {
				start := time.Now()
				if _, err := asks[j](keys[i%len(keys)]); err != nil {
					return table{}, fmt.Errorf("%s: %w", scores[j].name, err)
				}
				took[j] = append(took[j], float64(time.Since(start)))
			}
			if err := ctx.Err(); err != nil {
				return table{}, err
			}
		}
		for j := range scores {
			if round > 0 {
				scores[j].ns = append(scores[j].ns, median(took[j]))
			}
		}
	}
	t := table{head: []string{"1 goroutine, " + count(someKeys, "key") + ", " + how, "p50 µs", tailcut + " ÷ it", "target", "met"}}
	t.add(tailcut, few(median(scores[0].ns)/1000), "1", noPeer, noPeer)
	for i, sc := range scores[1:] {
		line := []string{sc.name, few(median(sc.ns) / 1000)}
		switch r := quotient(scores[0].ns, sc.ns); {
		case i == 0:
			line = append(line, atMost(r, 1)...)
		case i == 1 && incrTarget > 0:
			line = append(line, atMost(r, incrTarget)...)
		default:
			line = append(line, ratio(r), noPeer, noPeer)
		}
		t.add(line...)
	}
	return t, nil
}

// spin keeps so many processors busy until end, with processes that end by themselves too.
func spin(ctx context.Context, n int) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	var all []*exec.Cmd
	end = func() {
		cancel()
		for _, c := range all {
			_ = c.Wait()
		}
	}
	for range n {
		c := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			end()
			return nil, fmt.Errorf("a process that spins: %w", err)
		}
		all = append(all, c)
	}
	return end, nil
}

// direct sends the command that Tailcut sends for each of the keys, without Tailcut.
func (s *server) direct(keys []string) (decide, error) {
	var calls recorder
	rdb := redis.NewClient(s.rdb.Options())
	defer rdb.Close()
	rdb.AddHook(&calls)
	l, err := core.New(redisstore.New(rdb, &redisstore.Options{Timeout: time.Second}), slow.funnel())
	if err != nil {
		return nil, err
	}
	args := make(map[string][]any, len(keys))
	for _, key := range keys {
		if _, err := l.Allow(background, key, action); err != nil {
			return nil, err
		}
		args[key] = calls.last
	}
	return func(key string) (bool, error) { return true, s.rdb.Do(background, args[key]...).Err() }, nil
}

// A recorder keeps the last command that a client has sent.
type recorder struct{ last []any }

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.last = cmd.Args()
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
