package machine

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrBinary is the error of Unmarshal if the bytes are not a state of the rule.
var ErrBinary = errors.New("machine: the bytes are not a state of the rule")

// The first byte of a binary state is the version of the format. The second byte is the state's
// Form. Then come numbers, as varints. In a list of instants, each instant after the first is
// written as the difference to the one before. An instant may be negative, because a state moves
// back with the clock.
const binaryVersion = 1

// Marshal returns a state as bytes. Unmarshal of this or a later version of the package reads them.
// For the zero State, Marshal returns nil.
func (r *Rule) Marshal(s State) []byte {
	if s == (State{}) {
		return nil
	}
	return r.machine.save(r, []byte{binaryVersion, byte(r.Kind.Form())}, s)
}

// Unmarshal returns the state of bytes that Marshal has made. Marshal must have been called on this
// rule, or on a rule that shares the state. If the bytes cannot be a state of the rule, the error
// is [ErrBinary]. If b is empty, Unmarshal returns the zero State. Unmarshal does not keep b.
func (r *Rule) Unmarshal(b []byte) (State, error) {
	if len(b) == 0 {
		return State{}, nil
	}
	if len(b) < 2 || b[0] != binaryVersion || b[1] != byte(r.Kind.Form()) {
		return State{}, ErrBinary
	}
	d := decoder{rest: b[2:]}
	s := r.machine.load(r, &d)
	if d.bad || len(d.rest) > 0 {
		return State{}, ErrBinary
	}
	return s, nil
}

func appendInts(b []byte, ns ...int64) []byte {
	for _, n := range ns {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func appendUint(b []byte, n uint32) []byte { return binary.AppendUvarint(b, uint64(n)) }

// appendInstants appends n instants. The first one is written as it is, and each other one as the
// difference to the one before.
func appendInstants(b []byte, n int, at func(i int) int64) []byte {
	last := int64(0)
	for i := range n {
		b = binary.AppendVarint(b, at(i)-last)
		last = at(i)
	}
	return b
}

// A decoder reads the numbers of a binary state. After an error, bad is set, and the numbers mean
// nothing.
type decoder struct {
	rest []byte
	bad  bool
}

// int reads a number that must not be negative.
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

// instants reads all remaining numbers as instants, each no earlier than the one before.
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
