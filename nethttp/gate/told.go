package gate

// This file has what the headers and the problem tell the client. Each format of headers has its
// own file.

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tailcut/tailcut/core"
)

const (
	// retrySeconds is the Retry-After of a store failure.
	retrySeconds = 1

	// mostRetry is the longest Retry-After: 20 days, in seconds. A timer of JavaScript takes at
	// most 2^31-1 ms, which is 24.8 days, and a longer timer ends at once. Some clients add up to a
	// fifth to a Retry-After.
	mostRetry = 20 * 24 * 3600

	// soon is the wait for a slot of InFlight that a client is told. The true wait is unknown,
	// because an action may end long before its lease.
	soon = time.Second
)

// A told is a decision as the client is told it, in the headers and in the problem.
type told struct {
	core.Decision
	bound *core.Limit // the binding limit, or nil if it is not known
	whose string      // the action of the binding subject, if there are several subjects
}

// reset returns the time of the reset, in seconds since 1970 or from now, rounded up. Seconds since
// 1970 are by the clock of the process, as in the Date header.
//
// time.Now is a little later here than it was in the decision. So the boundary of a calendar
// window, which is a whole second, would be rounded up to the next second. reset returns the
// boundary itself.
func (t *told) reset(since1970 bool) int64 {
	if !since1970 {
		return secondsUp(0, t.ResetAfter)
	}
	now := time.Now()
	if t.bound != nil {
		if start, end := t.bound.PeriodAt(now); !end.IsZero() { // it is a CalendarWindow
			for _, boundary := range [...]time.Time{start, end} { // the start, if it has come after the decision
				if late := now.Add(t.ResetAfter).Sub(boundary); late >= 0 && late < time.Second {
					return boundary.Unix()
				}
			}
		}
	}
	return secondsUp(now.UnixNano(), t.ResetAfter)
}

// spread returns how many seconds to add to the wait that a client is told: a share of a tenth of
// the wait, in whole seconds. With each refusal of a user, the share grows by the golden ratio,
// modulo 1. Such shares are spread evenly, so over many refusals each number of seconds comes about
// equally often.
//
// Different users begin at different shares. The seed is secret: without it, a client that sees the
// waits of a hidden user could compute which user it is.
func spread(user string, wait time.Duration) time.Duration {
	const golden = 0x9e3779b97f4a7c15 // of 2^64
	hash := maphash.String(spreadSeed, user)
	share := hash + spreadOf[hash%uint64(len(spreadOf))].Add(1)*golden
	second, _ := bits.Mul64(share, uint64(wait/10/time.Second)+1)
	return time.Duration(second) * time.Second
}

var (
	spreadSeed = maphash.MakeSeed()
	spreadOf   [1024]atomic.Uint64 // the refusals of the users with the same hash, modulo the length
)

// A policy is what headers say of limits before any decision. It has the limits of all subjects.
type policy struct {
	limiters []*core.Limiter
	first    []int // the index of each limiter's first limit
	limits   []core.Limit
	names    []string // in quotes
	quotas   []string // in digits
	text     string   // RateLimit-Policy
}

func newPolicy(limiters []*core.Limiter) *policy {
	p := &policy{limiters: limiters}
	for _, l := range limiters {
		p.first = append(p.first, len(p.limits))
		p.limits = append(p.limits, l.Limits()...)
	}
	var items []string
	for i := range p.limits {
		l := &p.limits[i]
		name := p.unlike(cmp.Or(l.Name(), l.Identity()))
		quota := strconv.Itoa(l.Quota())
		item := name + ";q=" + quota
		// The draft has only whole seconds. The months of a calendar window have different
		// lengths. w is the longest, so a client that spreads q over w never sends too much.
		if period := l.Period(); l.TakesSlots() {
			item += `;qu="concurrent-requests"`
		} else if period >= time.Second {
			item += ";w=" + strconv.FormatInt(ceilSeconds(period), 10)
		}
		p.names, p.quotas, items = append(p.names, name), append(p.quotas, quota), append(items, item)
	}
	p.text = strings.Join(items, ", ")
	return p
}

// unlike returns name in quotes. If another limit has the name already, unlike adds a number. The
// draft wants different names, and limits of different kinds may have the same name.
func (p *policy) unlike(name string) string {
	quoted := `"` + name + `"`
	for n := 2; slices.Contains(p.names, quoted); n++ {
		quoted = `"` + name + "-" + strconv.Itoa(n) + `"`
	}
	return quoted
}

// bound returns the index in limits of the limit that binds. subject is an index of limiters, and
// binding is an index of the limits of that limiter.
func (p *policy) bound(subject, binding int) int {
	if subject > 0 && subject < len(p.first) {
		binding += p.first[subject]
	}
	if binding < 0 || binding >= len(p.limits) { // a store that is not ours may set any number
		return 0
	}
	return binding
}

// quota returns n in digits. If n is the quota of a limit, it does not allocate.
func (p *policy) quota(n int) string {
	for i := range p.limits {
		if p.limits[i].Quota() == n {
			return p.quotas[i]
		}
	}
	return strconv.Itoa(n) // core.Divide, for example, has changed it
}

// secondsUp returns now plus d, in seconds, rounded up. It does not overflow for any d. A negative
// d counts as 0.
func secondsUp(now int64, d time.Duration) int64 {
	return int64((uint64(now) + uint64(max(0, d)) + uint64(time.Second) - 1) / uint64(time.Second))
}

// ceilSeconds rounds d up to whole seconds. It returns at least 1, because with 0 a client would
// retry at once.
func ceilSeconds(d time.Duration) int64 { return max(1, secondsUp(0, d)) }

// A format is a form in which headers show a decision. To add a format, write a file that writes
// and reads it, and add its rows to headers.go.
type format struct {
	names []string // of its headers, as on the wire
	tells string   // the key of the header without which the others show nothing
	read  func(h http.Header) shown
}

// A set is a set of formats, with a bit for each. X-RateLimit has two bits, for the two ways in
// which it tells the reset.
type set uint8

// shown is what the headers of a response show already. They may have been set by a limit further
// out, by a function of this limit, such as a Cost that calls Allow, or by other middleware.
type shown struct {
	in               set
	limit, remaining int64 // limit is 0 if the headers do not tell it
	reset            int64 // in seconds
	since1970        bool  // reset is since 1970, and otherwise from now
}

// looser reports whether the headers show a looser decision than t: more remains, or the same
// remains and the reset is earlier.
func (s *shown) looser(t *told) bool {
	if remaining := int64(t.Remaining); remaining != s.remaining {
		return remaining < s.remaining
	}
	return t.reset(s.since1970) > s.reset
}

// number returns the number in a header that has one value.
func number(values []string) (int64, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}

// values has room for the values of three headers, and for the digits of two of them, in one
// allocation.
type values struct {
	of     [3]string
	digits [19 + 11]byte // of an int, and of 2^64 ns in seconds
}

// put sets value i to n in digits. end is the index after the last digit, and put returns the index
// of the first one. strconv would write the digits elsewhere first.
func (v *values) put(i, end int, n uint64) int {
	at := end - 1
	for ; n >= 10; at-- {
		tens := n / 10
		v.digits[at] = '0' + byte(n-10*tens)
		n = tens
	}
	v.digits[at] = '0' + byte(n)
	v.of[i] = unsafe.String(&v.digits[at], end-at) // the digits never change again
	return at
}
