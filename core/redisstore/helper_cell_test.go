package redisstore_test

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A module is a miniredis with CL.THROTTLE, as redis-cell 0.5.0 has it: to the
// nanosecond, with its truncations.
type module struct {
	*miniredis.Miniredis

	mu      sync.Mutex
	now     int64            // Unix nanoseconds
	expires map[string]int64 // Unix milliseconds
}

func startModule(t testing.TB) *module {
	m := &module{Miniredis: newMini(t), expires: map[string]int64{}}
	m.ClockTTL(true)
	m.set(epoch.UnixNano())
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if err := m.Server().Register("CL.THROTTLE", m.throttle); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *module) set(now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
	m.SetTime(time.Unix(0, now).UTC())
}

func (m *module) throttle(c *server.Peer, _ string, args []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const say = "Cell error: Store error: "
	if len(args) != 4 && len(args) != 5 {
		c.WriteError(say + "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
		return
	}
	n := [4]int64{3: 1}
	for i, a := range args[1:] {
		v, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			c.WriteError(say + "Couldn't parse as integer: " + a)
			return
		}
		n[i] = v
	}
	reply, err := m.decide(args[0], n[0], n[1], n[2], n[3])
	if err != nil {
		c.WriteError(say + err.Error())
		return
	}
	c.WriteLen(5)
	for _, v := range reply {
		c.WriteInt(int(v))
	}
}

// saturate is Rust's conversion of a float.
func saturate(f float64) int64 {
	switch {
	case f != f:
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	}
	return int64(f)
}

func wholeSeconds(d int64) int64 {
	s := d / 1e9
	if d > 0 && d%1e9 >= 1e6 {
		s++
	}
	return s
}

func (m *module) tat(key string) (int64, bool) {
	if end, ok := m.expires[key]; ok && m.now/1e6 > end {
		m.Del(key)
		delete(m.expires, key)
	}
	text, err := m.Get(key)
	if err != nil {
		return 0, false
	}
	tat, err := strconv.ParseInt(text, 10, 64)
	return tat, err == nil
}

func (m *module) decide(key string, burst, count, period, quantity int64) (reply [5]int64, err error) {
	var interval int64
	if count != 0 && period != 0 {
		interval = saturate(float64(period*1e9) / float64(count))
	}
	if interval == 0 {
		return reply, errors.New("Zero rates are not supported")
	}
	limit := burst + 1 // Go wraps around as the module does
	tolerance, increment := interval*limit, interval*quantity
	tat, ok := m.tat(key)
	if !ok {
		tat = m.now
	}
	newTAT := max(tat, m.now) + increment
	slack := m.now - (newTAT - tolerance)
	limited, retry, ttl := int64(1), int64(-1e9), tat-m.now
	if slack >= 0 {
		limited, ttl = 0, newTAT-m.now
		_ = m.Set(key, strconv.FormatInt(newTAT, 10))
		delete(m.expires, key)
		if ttl/1e6 < -1 {
			return reply, errors.New("Error while setting key expire")
		}
		m.expires[key] = m.now/1e6 + ttl/1e6
	} else if increment <= tolerance {
		retry = -slack
	}
	remaining := int64(0)
	if room := tolerance - ttl; room > -interval {
		remaining = saturate(float64(room/1e3) / float64(interval/1e3))
	}
	return [5]int64{limited, limit, remaining, wholeSeconds(retry), wholeSeconds(ttl)}, nil
}
