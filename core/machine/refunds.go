package machine

import "slices"

// refunds has the last refunds of a meter, so that no time is given back twice. [Rule.Amend] says
// how a refund changes the debt. A refunds is immutable: add returns a new one.
//
// For example, a funnel drains one unit per second:
//
//   - At 0 s, action A takes 5 units. The TAT, the instant at which the funnel
//     will be empty, is 5 s.
//   - Then action B takes 3 units. The TAT is 8 s.
//   - The refund of A moves the TAT to 3 s. This refund is remembered.
//   - At 4 s the funnel is empty, and action C takes 5 units.
//   - The refund of B gives nothing back, because B's debt ended at 3 s, and not at the 8 s that
//     B's charge recorded.
type refunds struct {
	// All refunds are forgotten at the instant Until. By then everything that was charged before
	// the last refund has drained. Until is also higher than the number of the last refund, so that
	// a refund in a new list gets a higher number than all refunds before.
	Until int64

	After []refund // the oldest first; each has a later TAT than the one before
}

// A refund is the TAT of a meter just after a refund.
type refund struct {
	Number int64 // the instant of the refund, or one more than the last number if that is higher
	TAT    Span
}

// maxRefunds is the number of refunds that a meter remembers.
const maxRefunds = 8

// last returns the number of the last refund, or 0 if there is none.
func (f *refunds) last() int64 {
	if f == nil {
		return 0
	}
	return f.After[len(f.After)-1].Number
}

// limit returns the TAT up to which a charge can be given back. The argument after is the TAT just
// after the charge, and known is the number of the last refund before the charge.
func (f *refunds) limit(after Span, known int64) Span {
	if f == nil {
		return after
	}
	for i := range f.After {
		if f.After[i].Number > known { // the first refund after the charge has the lowest TAT
			if after.exceeds(f.After[i].TAT) {
				return f.After[i].TAT
			}
			break
		}
	}
	return after
}

// A given is what a refund gives back.
type given struct {
	time   Span  // the time that is given back
	before int64 // the TAT before the refund, rounded up
	after  Span  // the TAT after the refund
	known  int64 // the number of the last refund before the charge
}

// add returns the list with a refund added at the instant now. The refund gives back a charge. The
// earlier refunds that were made after that charge get lower TATs, by the time that is given back.
func (f *refunds) add(g given, parts, now int64) *refunds {
	next := &refunds{Until: g.before}
	if f != nil {
		next.Until, next.After = max(g.before, f.Until), make([]refund, 0, len(f.After)+1)
		for _, r := range f.After {
			if r.Number > g.known {
				r.TAT = r.TAT.sub(g.time, parts)
			}
			next.push(r, now)
		}
	}
	number := max(f.last()+1, now)
	next.Until = max(next.Until, number+1)
	next.push(refund{number, g.after}, now)
	if len(next.After) > maxRefunds {
		next.merge()
	}
	return next
}

// push appends a refund. It removes the earlier refunds whose TAT is not lower than the new TAT. If
// the new TAT is past, it removes all earlier refunds.
func (f *refunds) push(r refund, now int64) {
	n := len(f.After)
	for n > 0 && (r.TAT.Whole < now || !r.TAT.exceeds(f.After[n-1].TAT)) {
		n--
	}
	f.After = append(f.After[:n], r)
}

// merge replaces the two refunds with the nearest TATs by one, which has the number of the later
// refund and the TAT of the earlier one. For example, the TATs 1 s, 2 s and 5 s become 1 s and 5 s.
// A refund of a charge that was made between the first two refunds then counts from the TAT 1 s,
// and not from 2 s. So a merge can only lower what is given back.
func (f *refunds) merge() {
	gap := func(i int) int64 { return f.After[i+1].TAT.Whole - f.After[i].TAT.Whole }
	nearest := 0
	for i := range len(f.After) - 1 {
		if gap(i) < gap(nearest) {
			nearest = i
		}
	}
	f.After[nearest].Number = f.After[nearest+1].Number
	f.After = slices.Delete(f.After, nearest+1, nearest+2)
}

func loadRefunds(r *Rule, d *decoder) *refunds {
	f := &refunds{Until: d.int()}
	for len(d.rest) > 0 {
		x := refund{Number: d.int(), TAT: Span{d.instant(), int64(d.part())}}
		f.After, d.bad = append(f.After, x), d.bad || x.TAT.Part >= r.Parts
	}
	d.bad = d.bad || len(f.After) == 0 || len(f.After) > maxRefunds
	return f
}

func (f *refunds) save(b []byte) []byte {
	if f == nil {
		return b
	}
	b = appendInts(b, f.Until)
	for _, r := range f.After {
		b = appendUint(appendInts(b, r.Number, r.TAT.Whole), uint32(r.TAT.Part))
	}
	return b
}
