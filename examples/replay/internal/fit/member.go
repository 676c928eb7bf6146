package fit

// For each member, who is a user of one action, the fit keeps the most units within any window
// of a few periods, and the most debt in a funnel of a few rates.

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/tailcut/tailcut/core"
)

const (
	second = int64(time.Second / time.Microsecond)
	hour   = 3600 * second
	day    = 24 * hour
)

// The periods of the fit in microseconds, the longest one last.
var fitPeriods = [...]int64{60 * second, 600 * second, hour, day}

// The rates of the fit, the slowest one last.
var fitRates = [...]struct {
	core.Rate
	emission int64 // the time of one unit, in microseconds
}{
	{core.Every(time.Second), second},
	{core.Per(30, time.Minute), 2 * second},
	{core.Per(10, time.Minute), 6 * second},
	{core.Every(time.Minute), 60 * second},
}

const (
	nPeriods = len(fitPeriods)
	nRates   = len(fitRates)
)

// Peaks are the most units in any half-open window of each period, and the least capacity of
// a funnel of each rate that admits all.
type Peaks struct {
	window [nPeriods]int64
	funnel [nRates]int64
}

// A Member needs little memory until it has acted twice within a day. Instants are in microseconds.
type Member struct {
	Peaks
	recent *recent // nil: all that may still count are once units at last
	last   int64
	once   uint32
}

// Act counts an action, which is not before the last one.
func (m *Member) Act(at int64, cost uint32) {
	if cost == 0 {
		return
	}
	if m.recent == nil {
		if m.once == 0 || m.forgotten(at) {
			m.last, m.once = at, cost
			m.raise(int64(cost))
			return
		}
		m.recent = newRecent(m.last, m.once)
	}
	m.recent.act(at, cost, &m.Peaks)
	m.last = at
}

// raise is act for a member that has nothing counted.
func (m *Member) raise(cost int64) {
	for i := range m.window {
		m.window[i] = max(m.window[i], cost)
	}
	for i := range m.funnel {
		m.funnel[i] = max(m.funnel[i], cost)
	}
}

// Sweep lets go of what no longer counts at an instant.
func (m *Member) Sweep(at int64) {
	if m.recent != nil && m.forgotten(at) {
		m.recent, m.once = nil, 0
	}
}

// forgotten reports whether none of the member's actions still counts.
func (m *Member) forgotten(at int64) bool {
	slowest := fitRates[nRates-1].emission
	if m.recent == nil {
		return at-m.last >= max(day, int64(m.once)*slowest)
	}
	return at-m.last >= day && m.recent.funnels[nRates-1].drained(at, slowest)
}

// recent is what a member did within the longest period: a queue of instants and units,
// two to five bytes each, and for each period how much of it is past.
type recent struct {
	last    int64 // the newest instant, not in the queue yet
	units   uint32
	queued  int64 // the newest instant in the queue
	funnels [nRates]funnel
	windows [nPeriods]window
	queue   []byte
}

// A funnel had so many whole units at an instant, and has leaked since. The instant at which it is
// empty could overflow.
type funnel struct{ at, units int64 }

// drained reports whether the funnel is empty.
func (f *funnel) drained(at, emission int64) bool { return (at-f.at)/emission >= f.units }

// add leaks until at, and adds units. Rounded up, the funnel then holds f.units.
func (f *funnel) add(at, units, emission int64) {
	if f.drained(at, emission) {
		*f = funnel{at, units}
		return
	}
	leaked := (at - f.at) / emission
	f.at += leaked * emission
	f.units += units - leaked
}

// A window holds count units. What the queue has before pos is past: made at or before at.
type window struct {
	at    int64
	count int64
	pos   int
}

func newRecent(at int64, units uint32) *recent {
	r := &recent{last: at, units: units, queued: at}
	for i := range r.funnels {
		r.funnels[i] = funnel{at, int64(units)}
	}
	for i := range r.windows {
		r.windows[i] = window{at: at, count: int64(units)}
	}
	return r
}

func (r *recent) act(at int64, cost uint32, p *Peaks) {
	if at > r.last || uint64(r.units)+uint64(cost) > math.MaxUint32 {
		r.enqueue()
		r.last, r.units = at, 0
	}
	r.units += cost
	for i := range r.windows {
		w := &r.windows[i]
		r.expire(w, at-fitPeriods[i])
		w.count += int64(cost)
		p.window[i] = max(p.window[i], w.count)
	}
	for i := range r.funnels {
		f := &r.funnels[i]
		f.add(at, int64(cost), fitRates[i].emission)
		p.funnel[i] = max(p.funnel[i], f.units)
	}
	r.compact()
}

// An entry of the queue is a distance to the one before, in the largest unit that it is whole
// in. Before it stands how many units it has, if not one.
const (
	inSeconds = iota
	inMillis
	inMicros
	withUnits
)

func (r *recent) enqueue() {
	if r.units != 1 {
		r.queue = binary.AppendUvarint(r.queue, uint64(r.units)<<2+withUnits)
	}
	d := uint64(r.last - r.queued)
	switch {
	case d%uint64(second) == 0:
		d = d/uint64(second)<<2 + inSeconds
	case d%1000 == 0:
		d = d/1000<<2 + inMillis
	default:
		d = d<<2 + inMicros
	}
	r.queue = binary.AppendUvarint(r.queue, d)
	r.queued = r.last
}

// expire drops from the window what was made until end.
func (r *recent) expire(w *window, end int64) {
	for w.pos < len(r.queue) {
		pos, units := w.pos, uint64(1)
		v, n := r.varint(pos)
		pos += n
		if v&3 == withUnits {
			units = v >> 2
			v, n = r.varint(pos)
			pos += n
		}
		at := w.at
		switch d := int64(v >> 2); v & 3 {
		case inSeconds:
			at += d * second
		case inMillis:
			at += d * 1000
		default:
			at += d
		}
		if at > end {
			return
		}
		w.at, w.pos = at, pos
		w.count -= int64(units)
	}
}

func (r *recent) varint(pos int) (uint64, int) {
	if b := r.queue[pos]; b < 0x80 {
		return uint64(b), 1
	}
	return binary.Uvarint(r.queue[pos:])
}

// compact drops the start of the queue, which is past for the longest period, when it is half
// of all.
func (r *recent) compact() {
	past := r.windows[nPeriods-1].pos
	if past < 32 || past < len(r.queue)/2 {
		return
	}
	r.queue = append(r.queue[:0], r.queue[past:]...)
	for i := range r.windows {
		r.windows[i].pos -= past
	}
}
