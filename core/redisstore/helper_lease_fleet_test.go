package redisstore_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

// leaseFleetEnv makes the test binary a process of a fleet with leases, on the server that it names.
const leaseFleetEnv = "TAILCUT_LEASE_FLEET"

// leaseLimitEnv is the text of its limit.
const leaseLimitEnv = "TAILCUT_LEASE_LIMIT"

const (
	leaseMax        = 10_000
	leasePeriod     = time.Second
	leaseGoroutines = 64
)

// nanotime is the machine's monotonic clock. Its processes share it, whatever their time of day is.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// A leaseAction is an action that passed: when its call began and ended by nanotime, 1 if a lease decided, and how many actions the process has asked for.
type leaseAction struct{ Start, End, Lease, Asked int64 }

// leaseProcess asks for one key until its input ends, and writes the actions that passed.
func leaseProcess(addr string) int {
	store := redisstore.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), nil)
	limit, err := core.ParseLimit(os.Getenv(leaseLimitEnv))
	if err != nil {
		panic(err)
	}
	lim := core.Must(core.New(store, limit))
	var asked atomic.Int64
	var mu sync.Mutex
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	flush := func() {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Flush()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go func() {
		for ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
			flush()
		}
	}()
	together(leaseGoroutines, func(int) {
		for ctx.Err() == nil {
			a := leaseAction{Start: nanotime(), Asked: asked.Add(1)}
			d, err := lim.Allow(context.Background(), "everybody", "call")
			a.End = nanotime()
			if err == nil && d.Allowed {
				if d.Source == core.SourceLease {
					a.Lease = 1
				}
				mu.Lock()
				_ = binary.Write(out, binary.LittleEndian, a)
				mu.Unlock()
			}
			time.Sleep(8 * time.Millisecond)
		}
	})
	flush()
	return 0
}

// A leaseMember is a running process of the fleet, and what it has passed.
type leaseMember struct {
	cmd     *exec.Cmd
	in      io.Closer
	read    sync.WaitGroup
	actions []leaseAction
}

func startLeaseMember(t *testing.T, limit core.Limit, addr string) *leaseMember {
	t.Helper()
	m := &leaseMember{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	m.cmd.Env = append(os.Environ(), leaseFleetEnv+"="+addr, leaseLimitEnv+"="+limit.String())
	m.cmd.Stderr = os.Stderr
	in, err := m.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.in = in
	m.read.Go(func() {
		r := bufio.NewReaderSize(out, 1<<20)
		for {
			var a leaseAction
			if err := binary.Read(r, binary.LittleEndian, &a); err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, os.ErrClosed) {
					t.Error(err)
				}
				return
			}
			m.actions = append(m.actions, a)
		}
	})
	t.Cleanup(func() { m.end(); _ = m.cmd.Process.Kill() })
	return m
}

// end ends a process, and waits until all that it has passed is read.
func (m *leaseMember) end() {
	_ = m.in.Close()
	m.read.Wait()
	_ = m.cmd.Wait()
}

// crowded returns the most actions that surely lie in one interval of a period: their calls began
// and ended in it.
func crowded(actions []leaseAction, period time.Duration) (most int) {
	var starts, ends []int64
	for _, a := range actions {
		if a.End-a.Start < int64(period) {
			starts, ends = append(starts, a.Start), append(ends, a.End)
		}
	}
	slices.Sort(starts)
	slices.Sort(ends)
	ended := 0
	for i, start := range starts {
		for ended < len(ends) && ends[ended] < start+int64(period) {
			ended++
		}
		most = max(most, ended-i) // less those that began before
	}
	return most
}

// aboveRate returns by how many actions an interval surely has more than the rate, leaseMax in a period, for
// its length.
func aboveRate(actions []leaseAction) (most int) {
	var starts, ends []int64
	for _, a := range actions {
		starts, ends = append(starts, a.Start), append(ends, a.End)
	}
	slices.Sort(starts)
	slices.Sort(ends)
	paid := func(at int64) int64 { return int64(float64(at-starts[0]) * leaseMax / float64(leasePeriod)) }
	best, begun := int64(math.MinInt64), 0 // of all starts so far
	for i, end := range ends {
		for ; begun < len(starts) && starts[begun] <= end; begun++ {
			best = max(best, paid(starts[begun])-int64(begun)) // less those that began before
		}
		most = max(most, int(int64(i+1)-paid(end)+best))
	}
	return most
}
