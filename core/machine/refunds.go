package machine

import "slices"

// Refunds is what a meter remembers of refunds, so that no time is given back twice. It is
// replaced, never changed.
type Refunds struct {
	Until int64    // when all that was charged before the last refund has drained
	After []Refund // oldest first, each TAT later than the one before
}

// A Refund is the debt of a meter just after a refund.
type Refund struct {
	Number int64 // a later refund has a higher one
	TAT    int64
	Part   uint32
}

// maxRefunds is how many refunds a meter remembers.
const maxRefunds = 8

func (f *Refund) at() Span { return Span{f.TAT, int64(f.Part)} }

func (f *Refunds) last() int64 {
	if f == nil {
		return 0
	}
	return f.After[len(f.After)-1].Number
}

// limit is the TAT up to which a charge may be given back. The charge knew of the refunds up
// to known, and the TAT was after just after it.
func (f *Refunds) limit(after Span, known int64) Span {
	if f == nil {
		return after
	}
	for i := range f.After {
		if f.After[i].Number > known { // the first such entry has the least TAT
			if at := f.After[i].at(); after.exceeds(at) {
				return at
			}
			break
		}
	}
	return after
}

// add adds a refund at the instant now: gave is the time that it gave back, at and before
// are the TAT after it and before it. The charge knew of the refunds up to known. Without
// the charge, the TAT after each later refund would have been less by gave.
//
// A refund replaces earlier ones with no lower TAT, and all earlier ones if its TAT is past.
// If there are too many, the two with the nearest TATs become one, with the lower TAT.
func (f *Refunds) add(at, gave Span, before, known, parts, now int64) *Refunds {
	next := &Refunds{Until: before}
	push := func(number int64, at Span) {
		for n := len(next.After); n > 0 && !at.exceeds(next.After[n-1].at()); n-- {
			next.After = next.After[:n-1]
		}
		if at.Whole < now {
			next.After = next.After[:0]
		}
		next.After = append(next.After, Refund{number, at.Whole, uint32(at.Part)})
	}
	if f != nil {
		next.Until, next.After = max(before, f.Until), make([]Refund, 0, len(f.After)+1)
		for i := range f.After {
			left := f.After[i].at()
			if f.After[i].Number > known {
				left = left.sub(gave, parts)
			}
			push(f.After[i].Number, left)
		}
	}
	push(max(f.last()+1, now), at)
	if n := len(next.After); n > maxRefunds {
		nearest := 0
		for i := range n - 1 {
			if next.After[i+1].TAT-next.After[i].TAT < next.After[nearest+1].TAT-next.After[nearest].TAT {
				nearest = i
			}
		}
		next.After[nearest].Number = next.After[nearest+1].Number
		next.After = slices.Delete(next.After, nearest+1, nearest+2)
	}
	return next
}

func loadRefunds(d *decoder) *Refunds {
	f := &Refunds{Until: d.int()}
	for len(d.rest) > 0 {
		f.After = append(f.After, Refund{Number: d.int(), TAT: d.instant(), Part: d.part()})
	}
	d.bad = d.bad || len(f.After) == 0 || len(f.After) > maxRefunds
	return f
}

func (f *Refunds) save(b []byte) []byte {
	if f == nil {
		return b
	}
	b = appendInts(b, f.Until)
	for _, after := range f.After {
		b = appendUint(appendInts(b, after.Number, after.TAT), after.Part)
	}
	return b
}
