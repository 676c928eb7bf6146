package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// fleetEnv makes the test binary a process of a fleet, on the server that it names.
const fleetEnv = "TAILCUT_FLEET"

const (
	fleetProcesses  = 4
	fleetGoroutines = 250
	fleetQuota      = 100
)

func fleetLimits() [][]core.Limit {
	return [][]core.Limit{
		{core.SlidingWindow(fleetQuota, time.Hour)},
		{core.SlidingWindow(fleetQuota, time.Hour).CountRefused()},
		{core.MovingWindow(fleetQuota, time.Hour)},
		{core.FixedWindow(fleetQuota, time.Hour)},
		{core.ElasticWindow(fleetQuota, time.Hour)},
		{core.TokenBucket(fleetQuota, hourly)},
		{core.TokenBucket(2*fleetQuota, hourly).Initial(fleetQuota)},
		{core.Funnel(fleetQuota, hourly)},
		{core.InFlight(fleetQuota).Lease(time.Hour)},
		{core.SlidingWindow(fleetQuota+50, time.Hour), core.Funnel(fleetQuota, hourly), core.FixedWindow(fleetQuota+30, time.Hour)},
	}
}

// fleetProcess waits for a line for each limit, lets its goroutines loose and tells
// how many passed.
func fleetProcess(addr string) int {
	store := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}), &redisstore.Options{Timeout: patient})
	in := bufio.NewReader(os.Stdin)
	for i, limits := range fleetLimits() {
		if _, err := in.ReadString('\n'); err != nil {
			return 1
		}
		lim := core.Must(core.New(store, limits...))
		var passed, failed atomic.Int64
		together(fleetGoroutines, func(int) {
			d, err := lim.Allow(context.Background(), "one key", fmt.Sprint(i))
			switch {
			case err != nil:
				fmt.Fprintln(os.Stderr, err)
				failed.Add(1)
			case d.Allowed:
				passed.Add(1)
			}
		})
		_ = json.NewEncoder(os.Stdout).Encode([2]int64{passed.Load(), failed.Load()})
	}
	return 0
}

// Four processes of 250 goroutines on one key: exactly the limit passes, for every
// kind.
func TestFleet(t *testing.T) {
	server := redistest.Start(t)
	var ins []io.Writer
	var outs []*json.Decoder
	for range fleetProcesses {
		cmd, in, out := startProcess(t, fleetEnv+"="+server.Addr)
		t.Cleanup(func() {
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
		ins, outs = append(ins, in), append(outs, json.NewDecoder(out))
	}
	for _, limits := range fleetLimits() {
		for _, in := range ins {
			if _, err := io.WriteString(in, "go\n"); err != nil {
				t.Fatal(err)
			}
		}
		total, part := int64(0), 0
		for _, out := range outs {
			var n [2]int64
			if err := out.Decode(&n); err != nil {
				t.Fatal(err)
			}
			if total += n[0]; n[0] > 0 {
				part++
			}
			if n[1] != 0 {
				t.Errorf("%v: %d calls failed", limits, n[1])
			}
		}
		if total != fleetQuota {
			t.Errorf("%v: %d passed of %d, not %d", limits, total, fleetProcesses*fleetGoroutines, fleetQuota)
		}
		t.Logf("%v: %d passed, in %d processes", limits, total, part)
	}
}
