// Command bench measures Tailcut beside its peers on the same work, in one run,
// and prints Markdown tables with the ratios.
//
//	go run .
//	go run . -only 1,2,9 -rounds 9 -seconds 1
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A row is one thing that is measured.
type row struct {
	number int
	title  string
	redis  bool
	run    func(context.Context, settings) ([]table, error)
}

var rows = []row{
	{1, "One in-process decision", false, inProcess},
	{2, "Memory per key, in process", false, memory},
	{3, "One decision in Redis, 10,000 keys", true, redisDecision},
	{4, "One decision in Redis, one caller", true, redisLatency},
	{5, "One decision in Redis, one hot key", true, redisHotKey},
	{6, "A user far over the limit", true, redisAbuse},
	{7, "Three limits in one decision", true, redisThree},
	{8, "A moving window of 1,000,000 actions", true, movingWindow},
	{9, "What the middleware adds to a bare handler", false, middleware},
	{10, "A second processor", false, secondProcessor},
	{11, "Each limit on Redis, 10,000 keys", true, redisEach},
	{12, "Returning users, in process", false, returning},
	{13, "Windows in process, 10,000 keys", false, windows},
	{14, "What InFlight adds to a bare handler", false, inFlight},
	{15, "A user and their organization in one decision", true, redisSubjects},
}

// settings are what a run can be told.
type settings struct {
	rounds  int
	turns   int           // of a contender in a round; 0 is 1
	seconds float64       // about how long one measurement takes
	fixed   int           // in tests: decisions a measurement, whatever it takes
	million int           // in tests fewer
	abuse   time.Duration // how long row 6 takes
	redis   *server
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string, out io.Writer) error {
	s := settings{million: 1_000_000, abuse: 10 * time.Second}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "the rows to measure, such as 1,2,9; empty is all")
	flags.IntVar(&s.rounds, "rounds", 5, "how often each contender is measured")
	flags.Float64Var(&s.seconds, "seconds", 0.2, "about how long one measurement takes")
	addr := flags.String("redis", "", "host:port of a Redis that holds nothing else and may keep the run's keys; empty starts one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.rounds < 1 || s.seconds <= 0 || flags.NArg() > 0 {
		return errors.New("give at least one round, a positive number of seconds and no arguments")
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	var noRedis error
	if slices.ContainsFunc(chosen, func(r row) bool { return r.redis }) {
		if s.redis, noRedis = connect(ctx, *addr); noRedis == nil {
			defer s.redis.close()
		}
	}
	fmt.Fprintf(out, "%s\n\n%s\n", machine(s), peers())
	var failed error
	for _, r := range chosen {
		fmt.Fprintf(out, "\n## %d. %s\n", r.number, r.title)
		if r.redis && noRedis != nil {
			fmt.Fprintf(out, "\nNot measured: %s.\n", noRedis)
			continue
		}
		tables, err := r.run(ctx, s)
		if err != nil {
			fmt.Fprintf(out, "\nNot measured: %s.\n", err)
			failed = errors.Join(failed, fmt.Errorf("row %d: %w", r.number, err))
		}
		if ctx.Err() != nil {
			return failed
		}
		for _, t := range tables {
			t.print(out)
		}
		debug.FreeOSMemory()
	}
	return failed
}

func choose(only string) ([]row, error) {
	if only == "" {
		return rows, nil
	}
	var chosen []row
	for word := range strings.SplitSeq(only, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > len(rows) {
			return nil, fmt.Errorf("-only: there is no row %q; they are 1 to %d", word, len(rows))
		}
		chosen = append(chosen, rows[n-1])
	}
	return chosen, nil
}

// machine says on what the figures were measured.
func machine(s settings) string {
	parts := []string{cpu(), fmt.Sprintf("GOMAXPROCS %d", runtime.GOMAXPROCS(0)), runtime.Version()}
	if s.redis != nil {
		parts = append(parts, "Redis "+s.redis.version)
	}
	return strings.Join(append(parts, fmt.Sprintf("%d rounds of %g s", s.rounds, s.seconds)), ", ")
}

func cpu() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(info) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(name)) == "model name" {
			return string(bytes.TrimSpace(value))
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

// peers says which versions were measured.
func peers() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var versions []string
	for _, m := range info.Deps {
		for _, name := range []string{
			"sethvargo/go-limiter", "throttled/throttled", "go-chi/httprate", "ulule/limiter", "didip/tollbooth",
			"JGLTechnologies/gin-rate-limit", "redis_rate", "golang.org/x/time", "golang.org/x/sync", "redis/go-redis", "gin-gonic/gin", "labstack/echo",
		} {
			if strings.Contains(m.Path, name) {
				versions = append(versions, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
			}
		}
	}
	return strings.Join(versions, ", ")
}

// A table is printed as Markdown. The first column is text, the others are figures.
type table struct {
	head  []string
	lines [][]string
	notes []string
}

func (t *table) add(cells ...string) { t.lines = append(t.lines, cells) }

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func (t *table) print(out io.Writer) {
	fmt.Fprintf(out, "\n| %s |\n|---%s|\n", strings.Join(t.head, " | "), strings.Repeat("|--:", len(t.head)-1))
	for _, line := range t.lines {
		fmt.Fprintf(out, "| %s |\n", strings.Join(line, " | "))
	}
	for _, n := range t.notes {
		fmt.Fprintf(out, "\n%s\n", n)
	}
}

// met says whether a figure is within its target.
func met(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

func atMost(figure, target float64) []string {
	return []string{ratio(figure), "≤ " + plain(target), met(figure <= target)}
}

func atLeast(figure, target float64) []string {
	return []string{ratio(figure), "≥ " + plain(target), met(figure >= target)}
}

func ratio(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
func whole(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }

// few is a small number to one decimal, if it is not 0.
func few(f float64) string { return plain(math.Round(f*10)/10 + 0) } // + 0: not -0

// thousands is 97k for 97,012.
func thousands(f float64) string { return strconv.FormatFloat(f/1000, 'f', 1, 64) + "k" }
