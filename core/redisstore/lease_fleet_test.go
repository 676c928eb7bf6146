package redisstore_test

import (
	"errors"
	"os"
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
// one across the last start at most twice as many.
func TestLeaseFleet(t *testing.T) {
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
		t.Run(test.name, func(t *testing.T) { leaseFleet(t, test.limit.Leased(test.lease), test.lease, test.crowded) })
	}
}

func leaseFleet(t *testing.T, limit core.Limit, lease time.Duration, crowded func([]leaseAction) int) {
	const lasts = 5 * time.Second
	dir := t.TempDir()
	server := redistest.Start(t, "appendonly yes", "appendfsync always", "dir "+dir)
	proxy := redistest.StartProxy(t, server.Addr)
	var members []*leaseMember
	start := func() { members = append(members, startLeaseMember(t, limit, proxy.Addr)) }
	for range 4 {
		start()
	}
	const quiet = 2 * time.Second // at first nothing fails
	var killed, gone int64        // when Redis lost its data
	faults := []func(){
		func() {
			if err := members[0].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			start()
		},
		func() { server.Kill(); server.Run() },
		func() {
			killed = nanotime()
			server.Kill()
			gone = nanotime()
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			server.Run()
		},
	}
	begun := time.Now()
	for next, round := 0, 0; time.Since(begun) < lasts; round++ {
		time.Sleep(200 * time.Millisecond)
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
	for _, m := range members {
		_ = m.in.Close()
	}
	byLease, asked := 0, int64(0)
	var actions, before, after []leaseAction
	for i, m := range members {
		m.end()
		own := int64(0)
		for _, a := range m.actions {
			byLease += int(a.Lease)
			own = max(own, a.Asked)
			if a.End < killed {
				before = append(before, a)
			}
			if a.Start > gone+lease.Nanoseconds() {
				after = append(after, a)
			}
		}
		t.Logf("process %d: %d actions of %d asked for", i, len(m.actions), own)
		asked += own
		actions = append(actions, m.actions...)
	}
	most, across := max(crowded(before), crowded(after)), crowded(actions)
	t.Logf("%d actions of %d asked for in %s, %d of them by leases; at most %d too close together, %d across the start without data", len(actions), asked, lasts, byLease, most, across)
	if most > leaseMax {
		t.Errorf("%d actions too close together, and the limit is %d", most, leaseMax)
	}
	if across > 2*leaseMax {
		t.Errorf("%d actions too close together across a start without data, and the limit is %d", across, leaseMax)
	}
	if byLease == 0 || most < leaseMax/100 { // far less than on an idle machine
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
