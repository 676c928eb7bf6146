package machine

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrBinary is the error of UnmarshalBinary for bytes that are not a state.
var ErrBinary = errors.New("machine: the bytes are not a state")

// The first byte of a binary state is the format's version. The second byte says which
// machine the state belongs to. Numbers are varints, and instants after the first are
// differences. A clock that steps back moves a state with it, so an instant may be negative.
const binaryVersion = 1

const (
	binaryMeter byte = iota + 1
	binaryCounter
	binaryTrail
	binaryBans
)

// MarshalBinary returns the state in a format that UnmarshalBinary reads, in this and in
// later versions. If the state does not exist, it returns no bytes. The error is nil.
func (s *State) MarshalBinary() ([]byte, error) {
	switch {
	case !s.Exists:
		return nil, nil
	case s.Trail.Len() > 0:
		return s.Trail.append([]byte{binaryVersion, binaryTrail}), nil
	case s.Bans != nil:
		return s.Bans.append([]byte{binaryVersion, binaryBans}), nil
	case s.Counter != Counter{}:
		b := binary.AppendVarint([]byte{binaryVersion, binaryCounter}, s.Counter.Count)
		return binary.AppendVarint(b, s.Counter.End), nil
	}
	return s.Meter.append([]byte{binaryVersion, binaryMeter}), nil
}

func (m *Meter) append(b []byte) []byte {
	b = binary.AppendVarint(b, m.TAT)
	b = binary.AppendUvarint(b, uint64(m.Part))
	b = binary.AppendVarint(b, m.Forget)
	b = binary.AppendVarint(b, m.Turns)
	if m.Refunds == nil {
		return b
	}
	b = binary.AppendVarint(b, m.Refunds.Until)
	for _, f := range m.Refunds.After {
		b = binary.AppendVarint(b, f.Number)
		b = binary.AppendVarint(b, f.TAT)
		b = binary.AppendUvarint(b, uint64(f.Part))
	}
	return b
}

func (t *Trail) append(b []byte) []byte {
	last := int64(0)
	for i := range t.Len() {
		at := t.At(i)
		b = binary.AppendVarint(b, at-last)
		last = at
	}
	return b
}

func (r *Bans) append(b []byte) []byte {
	b = binary.AppendVarint(b, r.Last)
	b = binary.AppendVarint(b, r.Until)
	b = binary.AppendVarint(b, int64(r.Level))
	last := int64(0)
	for _, at := range r.Refusals {
		b = binary.AppendVarint(b, at-last)
		last = at
	}
	return b
}

// UnmarshalBinary replaces the state with the one that MarshalBinary returned as b. It does
// not keep b. Its error is [ErrBinary].
func (s *State) UnmarshalBinary(b []byte) error {
	*s = State{}
	if len(b) == 0 {
		return nil
	}
	if len(b) < 2 || b[0] != binaryVersion {
		return ErrBinary
	}
	d := decoder{rest: b[2:]}
	read := State{Exists: true}
	switch b[1] {
	case binaryMeter:
		d.meter(&read.Meter)
	case binaryCounter:
		read.Counter = Counter{Count: d.int(), End: d.int()}
		d.bad = d.bad || read.Counter == Counter{}
	case binaryTrail:
		instants := d.instants()
		for _, at := range instants {
			read.Trail.push(at, len(instants))
		}
		d.bad = d.bad || len(instants) == 0
	case binaryBans:
		read.Bans = &Bans{Last: d.int(), Until: d.int(), Level: int(d.uint32(d.int()))}
		read.Bans.Refusals = d.instants()
	default:
		return ErrBinary
	}
	if d.bad || len(d.rest) > 0 {
		return ErrBinary
	}
	*s = read
	return nil
}

type decoder struct {
	rest []byte
	bad  bool
}

// int reads a number that is not negative.
func (d *decoder) int() int64 {
	v := d.instant()
	d.bad = d.bad || v < 0
	return v
}

func (d *decoder) instant() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 || v < -math.MaxInt64/4 || v > math.MaxInt64/4 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) uint32(v int64) uint32 {
	d.bad = d.bad || v > math.MaxInt32
	return uint32(v)
}

func (d *decoder) part() uint32 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > math.MaxUint32 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return uint32(v)
}

func (d *decoder) meter(m *Meter) {
	*m = Meter{TAT: d.int(), Part: d.part(), Forget: d.int(), Turns: d.int()}
	if len(d.rest) == 0 {
		return
	}
	m.Refunds = &Refunds{Until: d.int()}
	for len(d.rest) > 0 {
		m.Refunds.After = append(m.Refunds.After, Refund{Number: d.int(), TAT: d.instant(), Part: d.part()})
	}
	d.bad = d.bad || len(m.Refunds.After) == 0 || len(m.Refunds.After) > maxRefunds
}

// instants reads instants, each no earlier than the one before, to the end.
func (d *decoder) instants() []int64 {
	all := make([]int64, 0, len(d.rest))
	if len(d.rest) == 0 {
		return nil
	}
	last := d.instant()
	all = append(all, last)
	for len(d.rest) > 0 {
		last += d.int()
		d.bad = d.bad || last > math.MaxInt64/4
		all = append(all, last)
	}
	return all
}
