package machine

import (
	"math"
	"math/bits"
)

// A Span is a time: Whole microseconds and the fraction Part/Parts of one. Parts is the rule's.
// Part is from 0 to Parts-1. So a rate of 7 per second is exact.
type Span struct{ Whole, Part int64 }

func (a Span) add(b Span, parts int64) Span {
	a.Whole += b.Whole
	if a.Part += b.Part; a.Part >= parts {
		a.Whole++
		a.Part -= parts
	}
	return a
}

func (a Span) sub(b Span, parts int64) Span {
	a.Whole -= b.Whole
	if a.Part -= b.Part; a.Part < 0 {
		a.Whole--
		a.Part += parts
	}
	return a
}

func (a Span) exceeds(b Span) bool {
	return a.Whole > b.Whole || a.Whole == b.Whole && a.Part > b.Part
}

// Ceil is the span in microseconds, rounded up.
func (a Span) Ceil() int64 { return a.Whole + min(a.Part, 1) }

// beyond stands for all spans that are too long for a valid rule.
const beyond = math.MaxInt64 / 4

// Time returns the time that n units take at the rule's rate, at most 2^61 microseconds.
func (r *Rule) Time(n int64) Span {
	if n == 1 {
		return r.Emission
	}
	return spanOf(r.pace, n, r.Parts)
}

// spanOf is pace*n/parts microseconds.
func spanOf(pace, n, parts int64) Span {
	hi, lo := bits.Mul64(uint64(pace), uint64(n))
	if hi < uint64(parts) {
		if whole, part := bits.Div64(hi, lo, uint64(parts)); whole < beyond {
			return Span{int64(whole), int64(part)}
		}
	}
	return Span{beyond, 0}
}

// units is how many whole units fit between two spans, or 0 if b is the longer one.
func (r *Rule) units(a, b Span) int64 {
	if a = a.sub(b, r.Parts); a.Whole < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a.Whole), uint64(r.Parts))
	lo, carry := bits.Add64(lo, uint64(a.Part), 0)
	pace := uint64(r.pace)
	if hi += carry; hi > 0 {
		n, _ := bits.Div64(hi, lo, pace)
		return int64(n)
	}
	n, _ := bits.Mul64(lo, r.inverse) // at most 1 too low; a division takes ten times as long
	if lo-n*pace >= pace {
		n++
	}
	return int64(n)
}
