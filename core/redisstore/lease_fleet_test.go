package redisstore_test

import (
	"errors"
	"math"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Four processes of 64 goroutines ask for one key on a real Redis that keeps an append-only file.
// Connections are cut, processes are stopped for longer than a lease while they decide, one is killed and
// another one takes its place, Redis is killed and starts with its data, and at last without them. No interval has more actions than the limit, and
// one across the last start at most twice as many. TAILCUT_LONG=1 lasts a minute, the times of day of
// the processes are apart and step, and while Redis is up nearly all of the limit is used, by few commands.
func TestLeaseFleet(t *testing.T) {
	t.Parallel()
	redistest.Need(t, false)
	tests := []struct {
		name    string
		limit   core.Limit
		lease   time.Duration
		crowded func([]leaseAction) int // at most leaseMax
	}{
		// A window is longer by a lease, so it admits 98 of 100 of what is declared.
		{"window", core.MovingWindow(leaseMax, leasePeriod), leasePeriod / 50, func(a []leaseAction) int { return crowded(a, leasePeriod) }},
		// A funnel's burst is smaller, and its rate is whole.
		{"funnel", core.Funnel(leaseMax, core.Per(leaseMax, leasePeriod)), leasePeriod / 20, aboveRate},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			leaseFleet(t, test.limit.Leased(test.lease), test.lease, test.crowded)
		})
	}
}

func leaseFleet(t *testing.T, limit core.Limit, lease time.Duration, crowded func([]leaseAction) int) {
	long := os.Getenv(longEnv) != ""
	lasts, program, apart := 5*time.Second, os.Args[0], make([]time.Duration, 5)
	if long {
		lasts, program = time.Minute, buildApart(t)
		apart = []time.Duration{0, -24 * time.Hour, time.Second, time.Hour, -time.Minute}
	}
	dir := t.TempDir()
	server := redistest.Start(t, "appendonly yes", "appendfsync always", "dir "+dir)
	proxy := redistest.StartProxy(t, server.Addr)
	var members []*leaseMember
	start := func() {
		members = append(members, startLeaseMember(t, limit, program, proxy.Addr, apart[len(members)]))
	}
	for range 4 {
		start()
	}
	const quiet = 2 * time.Second // at first nothing fails
	settled := lasts / 20         // after a start: a window that was empty is full again
	commands, mostCommands := 0, 0
	var sent []sample // since the last start of Redis
	sampled := func() {
		now := sample{nanotime(), calls(t, server.Do, "fcall")}
		sent = slices.DeleteFunc(append(sent, now), func(s sample) bool { return s.at <= now.at-int64(time.Second) })
		mostCommands = max(mostCommands, now.calls-sent[0].calls)
	}
	var up []interval
	restart := func(before func()) (down interval) {
		sampled()
		commands, sent = commands+sent[len(sent)-1].calls, nil
		down.from = nanotime()
		server.Kill()
		down.to = nanotime()
		before()
		server.Run()
		up[len(up)-1].to = down.from
		up = append(up, interval{from: nanotime() + int64(settled)})
		return down
	}
	var emptied interval
	faults := []func(){
		func() {
			if err := members[0].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			start()
		},
		func() { restart(func() {}) },
		func() {
			emptied = restart(func() {
				if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
					t.Fatal(err)
				}
			})
		},
	}
	begun := time.Now()
	up = []interval{{from: nanotime() + int64(settled)}}
	for next, round := 0, 0; time.Since(begun) < lasts; round++ {
		time.Sleep(200 * time.Millisecond)
		sampled()
		switch passed := time.Since(begun); {
		case passed < quiet:
		case next < len(faults) && passed > quiet+(lasts-quiet)*time.Duration(next)/time.Duration(len(faults)):
			faults[next]()
			next++
		case round%2 == 0:
			stopped := members[1+round/2%3].cmd.Process // the first one is killed
			if err := stopped.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * lease)
			if err := stopped.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		default:
			proxy.HangUp()
		}
	}
	sampled()
	commands += sent[len(sent)-1].calls
	up[len(up)-1].to = nanotime()
	for _, m := range members {
		_ = m.in.Close()
	}
	byLease, asked := 0, int64(0)
	var actions, before, after []leaseAction
	now := time.Now().UnixNano() - nanotime()
	for i, m := range members {
		m.end()
		own, off := int64(0), time.Duration(math.MaxInt64)
		for _, a := range m.actions {
			byLease += int(a.Lease)
			own = max(own, a.Asked)
			off = min(off, time.Duration(a.Day-a.End-now).Abs())
			if a.End < emptied.from {
				before = append(before, a)
			}
			if a.Start > emptied.to+lease.Nanoseconds() {
				after = append(after, a)
			}
		}
		t.Logf("process %d: %d actions of %d asked for, its time of day %s off or more", i, len(m.actions), own, off.Round(time.Second))
		if off < apart[i].Abs()-time.Second/2 {
			t.Errorf("the time of day of process %d is not %s off", i, apart[i])
		}
		asked += own
		actions = append(actions, m.actions...)
	}
	most, across := max(crowded(before), crowded(after)), crowded(actions)
	used := share(actions, up)
	perProcess := float64(commands) / 4 / lasts.Seconds()
	may := 4 * 40 * int(50*time.Millisecond/min(lease, 50*time.Millisecond)) // in a second
	t.Logf("%d actions of %d asked for in %s, %d of them by leases, %d calls of Redis, %.1f a second and process, at most %d in a second; at most %d too close together, %d across the start without data; %.2f %% of the limit used, %.2f %% while Redis was up",
		len(actions), asked, lasts, byLease, commands, perProcess, mostCommands, most, across, 100*float64(len(actions))/leaseMax/lasts.Seconds(), 100*used)
	if most > leaseMax {
		t.Errorf("%d actions too close together, and the limit is %d", most, leaseMax)
	}
	if long && mostCommands > may { // to a busy machine Redis is now and then far away, and is asked directly
		t.Errorf("%d calls of Redis in a second, and %d are allowed", mostCommands, may)
	}
	if across > 2*leaseMax {
		t.Errorf("%d actions too close together across a start without data, and the limit is %d", across, leaseMax)
	}
	if byLease < len(actions)/10 || most < leaseMax/4 { // far less than on an idle machine
		t.Errorf("%d of %d actions by leases, at most %d a second", byLease, len(actions), most)
	}
	if long && used < 0.97 {
		t.Errorf("%.2f %% of the limit used while Redis was up", 100*used)
	}
}

// A sample is how many calls Redis had got at an instant.
type sample struct {
	at    int64
	calls int
}

// An interval is by nanotime.
type interval struct{ from, to int64 }

// share returns which share of the limit the actions in the intervals have used.
func share(actions []leaseAction, in []interval) float64 {
	used, whole := 0, 0.0
	for _, i := range in {
		for _, a := range actions {
			if i.from <= a.End && a.End < i.to {
				used++
			}
		}
		whole += leaseMax * time.Duration(max(0, i.to-i.from)).Seconds() / leasePeriod.Seconds()
	}
	return float64(used) / whole
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

// So does the recount of a rate, here 10 in a millisecond.
func TestAboveRate(t *testing.T) {
	at := func(ms int64) int64 { return ms * int64(time.Millisecond) }
	burst := func(n int, start, end int64) (a []leaseAction) {
		for range n {
			a = append(a, leaseAction{Start: start, End: end})
		}
		return a
	}
	tests := []struct {
		name    string
		actions []leaseAction
		want    int
	}{
		{"a burst", burst(100, at(5), at(6)), 90},
		{"what the rate has paid", append(burst(100, at(5), at(6)), burst(50, at(10), at(11))...), 90},
		{"two bursts", append(burst(100, at(5), at(6)), burst(70, at(10), at(11))...), 110},
		{"a pause before it pays nothing", append(burst(1, at(0), at(0)), burst(100, at(500), at(501))...), 90},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if n := aboveRate(test.actions); n != test.want {
				t.Errorf("%d, want %d", n, test.want)
			}
		})
	}
}
