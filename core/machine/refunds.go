package machine

import "slices"

// refunds is what a meter remembers of refunds, so that it gives no time back twice: [Rule.Amend]
// has the rule. It is replaced, never changed.
//
// For example, a funnel drains a unit a second. At 0 s the action A takes 5 units, so the TAT is 5
// s. Then B takes 3 units: the TAT is 8 s. The refund of A makes it 3 s, which is remembered. At 4
// s this debt has drained, and C takes 5 units. The refund of B then gives nothing back, because
// B's debt ended at 3 s, and not at the 8 s that B's charge recorded.
type refunds struct {
	// Until is the instant at which all refunds are forgotten: when everything charged before the
	// last refund has drained, and not before a refund in a new, empty list would get a higher
	// number.
	Until int64

	After []refund // oldest first, each TAT later than the one before
}

// A refund is the debt of a meter just after a refund.
type refund struct {
	Number int64 // a later refund has a higher one
	TAT    Span
}

// maxRefunds is how many refunds a meter remembers.
const maxRefunds = 8

func (f *refunds) last() int64 {
	if f == nil {
		return 0
	}
	return f.After[len(f.After)-1].Number
}

// limit returns the TAT up to which a charge may be given back. after is the TAT just after the
// charge, and known is the number of the last refund before it.
func (f *refunds) limit(after Span, known int64) Span {
	if f == nil {
		return after
	}
	for i := range f.After {
		if f.After[i].Number > known { // the first such entry has the least TAT
			if after.exceeds(f.After[i].TAT) {
				return f.After[i].TAT
			}
			break
		}
	}
	return after
}

// A given is the time that a refund gives back. The charge knew of the refunds up to known.
type given struct {
	time   Span
	before int64 // the TAT before it, rounded up
	after  Span  // the TAT after it
	known  int64
}

// add adds a refund at the instant now. For each earlier refund since the charge, the TAT becomes
// what it would have been without the charge.
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

// push appends a refund. It replaces earlier ones with no lower TAT, and all earlier ones if its TAT is past.
func (f *refunds) push(r refund, now int64) {
	n := len(f.After)
	for n > 0 && (r.TAT.Whole < now || !r.TAT.exceeds(f.After[n-1].TAT)) {
		n--
	}
	f.After = append(f.After[:n], r)
}

// merge makes one of the two refunds with the nearest TATs. The result has the number of the later
// refund and the TAT of the earlier one. For example, 1 s, 2 s and 5 s become 1 s and 5 s. A charge
// between the first two is then given back up to 1 s instead of 2 s: less, and never more.
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
