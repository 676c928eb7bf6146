package lease

// How many units a holding takes, and how often it may send a command.

import (
	"math"
	"time"
)

const (
	maxUnits = 1 << 18 // the most units of a fetch: it bounds how long the server is busy
	growth   = 16      // a lease is expected to use at most so many times what was used since the last command

	// The budget of a holding allows burst commands at once, and after that one command every pace.
	// If a lease is 50 ms or longer, the budget allows at most 40 commands in a second. If a lease
	// is shorter, the pace is a little more than half of the lease.
	burst = 4
	pace  = 27500 * time.Microsecond
)

// A demand says how many units are used.
type demand struct {
	lease   time.Duration
	since   time.Time // when the last command began, or when age began to count anew
	used    int64     // how many units were used since then
	want    int64     // how many units a lease was expected to use at that time
	waiting int64     // the sum of the costs of callers who wait
}

// plan returns how many units the next command should take, if enough remain.
func (d *demand) plan(cost int64, now time.Time) int64 {
	want := d.expect(now)
	if now.Sub(d.since) < d.lease {
		want -= want / 8 // so that the units are used up before the lease ends, and none must be given back
	}
	return min(max(want, d.waiting+cost), maxUnits)
}

// expect returns how many units a lease would use, at the rate since the last command.
func (d *demand) expect(now time.Time) int64 {
	past := now.Sub(d.since)
	rate := float64(d.used) * float64(d.lease) / float64(min(max(past, d.lease/growth), d.lease))
	return max(d.want>>min(62, past/d.lease), int64(math.Ceil(min(rate, maxUnits))))
}

// lately returns how many units were used since d.since. If d.since is a lease ago or longer, lately
// returns 0.
func (d *demand) lately(now time.Time) int64 {
	if now.Sub(d.since) >= d.lease {
		return 0
	}
	return d.used
}

// age begins to count anew if the last command was a lease ago or longer.
func (d *demand) age(now time.Time) {
	if now.Sub(d.since) >= d.lease {
		d.since, d.used, d.want = now, 0, d.expect(now)
	}
}

// A budget bounds the commands for a holding. Each command costs a pace of time, as in a leaky
// bucket.
type budget struct {
	pace time.Duration
	paid time.Time // when all commands so far have been paid for
}

// delay returns the time until a command may be sent. If few commands were sent lately, it is 0.
// kept is how many commands of the burst are left for other callers.
func (b *budget) delay(now time.Time, kept time.Duration) time.Duration {
	return max(0, b.paid.Sub(now.Add((burst-1-kept)*b.pace)))
}

// owe pays for a command that is sent after the delay.
func (b *budget) owe(now time.Time) {
	if b.paid.Before(now) {
		b.paid = now
	}
	b.paid = b.paid.Add(b.pace)
}

// pay pays for a command that is sent now. If there is a delay, pay does nothing.
func (b *budget) pay(now time.Time) {
	if b.delay(now, 0) == 0 {
		b.owe(now)
	}
}
