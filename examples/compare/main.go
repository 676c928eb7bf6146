// Command compare runs Tailcut's limits, with the same quota, against the same traffic, and
// prints and draws what each makes of it.
//
//	go run ./examples/compare
//	go run ./examples/compare -redis 127.0.0.1:6379
//
// What a limit decides is found on a virtual clock and is the same everywhere. What it
// costs is measured on the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// settings are what a run can be told.
type settings struct {
	svg       string
	redis     string
	quotas    []int
	each      time.Duration // how long one in-process time is measured, each round
	keys      int           // of each limit and quota in process, to find their size
	decisions int           // of each limit and quota on Redis
}

func main() {
	s := settings{quotas: sizes, each: 4 * time.Millisecond, keys: 50_000, decisions: 1000}
	flag.StringVar(&s.svg, "svg", filepath.Join(os.TempDir(), "compare.svg"), "the file to draw the figure in")
	flag.StringVar(&s.redis, "redis", "", "host:port of a Redis to measure as well; the run's keys are removed again")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := compare(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func compare(ctx context.Context, s settings, out io.Writer) error {
	var redis *server
	if s.redis != "" {
		var err error
		if redis, err = connect(ctx, s.redis); err != nil {
			return err
		}
		defer redis.close()
	}
	if err := os.WriteFile(s.svg, []byte(figure()), 0o644); err != nil {
		return err
	}

	fmt.Fprintf(out, "Limits of %d a minute under the same requests: | passed, x refused. Drawn in %s\n", shown, s.svg)
	strips(out)
	fmt.Fprintf(out, "\nMeasured at max %d, beside what the articles say:\n\n%s", judged, judgements())
	fmt.Fprintf(out, "\nThe figures, on a virtual clock:\n\n%s", behaviours(s.quotas))

	costs := make([][]cost, len(s.quotas))
	for i, quota := range s.quotas {
		costs[i] = make([]cost, len(contenders))
		inProcess(costs[i], quota, s)
	}
	if redis != nil {
		if err := redis.measure(ctx, s.quotas, costs, s.decisions); err != nil {
			return fmt.Errorf("on the Redis at %s: %w", s.redis, err)
		}
	}
	fmt.Fprintf(out, "\nWhat it takes on this machine (%s, %d processors):\n\n%s", runtime.Version(), runtime.NumCPU(), costsTable(s.quotas, costs, redis != nil))
	if redis == nil {
		fmt.Fprintln(out, "\nNot measured on Redis: give -redis host:port.")
	}
	return nil
}
