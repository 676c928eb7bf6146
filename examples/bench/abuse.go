package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// redisAbuse is row 6: a user who has spent five actions a minute goes on at 10,000 a
// second.
func redisAbuse(ctx context.Context, s settings) ([]table, error) {
	const workers, every = 16, time.Second / 10_000
	ask, err := s.redis.tailcut(quota{5, time.Minute}.funnel())
	if err != nil {
		return nil, err
	}
	user := fmt.Sprintf("abuse-%d", time.Now().UnixNano())
	for allowed := true; allowed; {
		if allowed, err = ask(user); err != nil {
			return nil, err
		}
	}
	before, err := s.redis.commands(ctx)
	if err != nil {
		return nil, err
	}
	attempts := int(s.abuse / every)
	start := time.Now()
	found, err := spread(workers, attempts, func(lo, hi int) (refused int, err error) {
		for i := range hi - lo {
			time.Sleep(time.Until(start.Add(time.Duration(i) * workers * every)))
			allowed, err := ask(user)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return refused, err
			}
			if !allowed {
				refused++
			}
		}
		return refused, nil
	})
	took := time.Since(start).Seconds()
	if err != nil {
		return nil, err
	}
	after, err := s.redis.commands(ctx)
	if err != nil {
		return nil, err
	}
	sent := after - before
	t := table{head: []string{tailcut + ", 1 key, 1 process", "attempts/s", "refused", "commands/s", "commands an attempt", "target", "met"}}
	t.add(fmt.Sprintf("%.0f s", took), whole(float64(attempts)/took), grouped(found.refused), few(sent/took),
		ratio(sent/float64(attempts)), "≤ 2 commands/s", met(sent/took <= 2))
	t.note("A funnel of five a minute, already full: one attempt in 12 s passes. Commands by INFO commandstats, those within scripts not counted.")
	return []table{t}, nil
}

// commands is how many of the commands that can decide the server has been sent.
func (s *server) commands(ctx context.Context) (float64, error) {
	info, err := s.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	total := 0.0
	for line := range strings.Lines(info) {
		name, stats, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if slices.Contains([]string{"evalsha", "eval", "evalsha_ro", "eval_ro", "fcall", "fcall_ro", "cl.throttle"}, name) {
			calls, _, _ := strings.Cut(stats, ",")
			n, err := strconv.ParseFloat(calls, 64)
			if err != nil {
				return 0, fmt.Errorf("INFO commandstats: %q", line)
			}
			total += n
		}
	}
	return total, nil
}
