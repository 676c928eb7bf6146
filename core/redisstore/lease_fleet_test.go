package redisstore_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

// leaseFleetEnv makes the test binary a process of a fleet with leases, on the server that it names.
const leaseFleetEnv = "TAILCUT_LEASE_FLEET"

// longEnv has the fleet run for a minute.
const longEnv = "TAILCUT_LONG"

const (
	leaseMax        = 10_000
	leasePeriod     = time.Second
	leaseGoroutines = 64
)

// leaseLimit admits 98 of 100 of what is declared: its window is a fiftieth longer.
func leaseLimit() core.Limit {
	return core.MovingWindow(leaseMax, leasePeriod).Leased(leasePeriod / 50)
}

// A leaseAction is an action that passed: when its call began and ended, in nanoseconds of the
// machine's clock, and 1 if a lease decided.
type leaseAction struct{ Start, End, Lease int64 }

// leaseProcess asks for one key until its input ends, and writes the actions that passed.
func leaseProcess(addr string) int {
	store := redisstore.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), nil)
	lim := core.Must(core.New(store, leaseLimit()))
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
			a := leaseAction{Start: time.Now().UnixNano()}
			d, err := lim.Allow(context.Background(), "everybody", "call")
			a.End = time.Now().UnixNano()
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

func startLeaseMember(t *testing.T, addr string) *leaseMember {
	t.Helper()
	m := &leaseMember{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	m.cmd.Env = append(os.Environ(), leaseFleetEnv+"="+addr)
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

// Four processes of 64 goroutines ask for one key on a real Redis. Connections are cut, one process is
// killed and another one takes its place: no interval has more actions than the limit.
func TestLeaseFleet(t *testing.T) {
	lasts := 4 * time.Second
	if os.Getenv(longEnv) != "" {
		lasts = time.Minute
	}
	server, proxy := proxied(t)
	var members []*leaseMember
	for range 4 {
		members = append(members, startLeaseMember(t, proxy.Addr))
	}
	begun := time.Now()
	const quiet = 2500 * time.Millisecond // at first nothing fails
	killed := false
	for time.Since(begun) < lasts {
		time.Sleep(300 * time.Millisecond)
		switch passed := time.Since(begun); {
		case passed < quiet:
		case !killed && passed > lasts/2:
			killed = true
			if err := members[0].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			members = append(members, startLeaseMember(t, proxy.Addr))
		default:
			proxy.HangUp()
		}
	}
	commands := calls(t, server.Do, "fcall")
	var actions []leaseAction
	byLease, calm := 0, 0
	for i, m := range members {
		m.end()
		own := 0
		for _, a := range m.actions {
			if byLease += int(a.Lease); a.Start > begun.Add(time.Second).UnixNano() && a.Start <= begun.Add(2*time.Second).UnixNano() {
				calm++
			}
			own++
		}
		t.Logf("process %d: %d actions", i, own)
		actions = append(actions, m.actions...)
	}
	most := crowded(actions, leasePeriod)
	t.Logf("%d actions in %s, %d of them by leases, %d calls of Redis; %d in a second without faults; at most %d in any second",
		len(actions), lasts, byLease, commands, calm, most)
	if most > leaseMax {
		t.Errorf("%d actions in one second, and the limit is %d", most, leaseMax)
	}
	if byLease < len(actions)/10 || most < leaseMax/4 { // far less than on an idle machine
		t.Errorf("%d of %d actions by leases, at most %d a second", byLease, len(actions), most)
	}
}

// The recount finds one action too many.
func TestCrowded(t *testing.T) {
	at := func(ms int64) int64 { return ms * int64(time.Millisecond) }
	tests := []struct {
		name    string
		actions []leaseAction
		want    int
	}{
		{"none", nil, 0},
		{"in one second", []leaseAction{{Start: at(0), End: at(1)}, {Start: at(500), End: at(501)}, {Start: at(990), End: at(999)}}, 3},
		{"a second apart", []leaseAction{{Start: at(0), End: at(1)}, {Start: at(999), End: at(1000)}}, 1},
		{"long calls may be apart", []leaseAction{{Start: at(0), End: at(600)}, {Start: at(500), End: at(1200)}}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if n := crowded(test.actions, time.Second); n != test.want {
				t.Errorf("%d, want %d", n, test.want)
			}
		})
	}
}
