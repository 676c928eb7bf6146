package gate

// What the client is told in headers, whatever their format: the limits, the decision, and the numbers.

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

	// mostRetry is the longest Retry-After, 20 days. A timer of JavaScript takes at most 2^31-1 ms, which is 24.8 days, and
	// a longer one ends at once. Clients add up to a fifth to what they are told.
	mostRetry = 20 * 24 * 3600

	// soon is when a slot of InFlight may be free again. Nobody knows when: the actions that have the
	// slots may take much less time than their leases.
	soon = time.Second
)

// A told is a decision as the client is told it, in the headers and in the problem.
type told struct {
	core.Decision
	bound *core.Limit // the limit that binds, or nil if it is not known
	whose string      // of several subjects, the action of the one that binds
}

// reset is when the limit is whole again, in seconds since 1970 or from now. Seconds since 1970 are by the process's
// clock, as in the Date header. Now is a little later than the decision, so a boundary of a calendar, a whole second,
// would be rounded up to the next one.
func (t *told) reset(since1970 bool) int64 {
	if !since1970 {
		return secondsUp(0, t.ResetAfter)
	}
	now := time.Now()
	if t.bound != nil {
		start, end := t.bound.PeriodAt(now)                   // zero for other limits than a CalendarWindow
		for _, boundary := range [...]time.Time{start, end} { // start, if it has passed since the decision
			if late := now.Add(t.ResetAfter).Sub(boundary); late >= 0 && late < time.Second {
				return boundary.Unix()
			}
		}
	}
	return secondsUp(now.UnixNano(), t.ResetAfter)
}

// spread returns by how many seconds a wait is told longer, from 0 to a tenth of it. Of the refusals of a user each of
// these seconds gets about as many: their shares are multiples of the golden ratio, which never come close to
// each other. A wait that is rounded up to a second is no longer than it would be.
//
// Users begin at different shares. Without the seed, who sees the waits of a user could tell which user it is.
func spread(user string, wait time.Duration) time.Duration {
	const golden = 0x9e3779b97f4a7c15 // of 2^64
	hash := maphash.String(spreadSeed, user)
	share := hash + spreadOf[hash%uint64(len(spreadOf))].Add(1)*golden
	second, _ := bits.Mul64(share, uint64(wait/10/time.Second)+1)
	return time.Duration(second) * time.Second
}

var (
	spreadSeed = maphash.MakeSeed()
	spreadOf   [1024]atomic.Uint64 // how many refusals the users of a class had
)

// A policy has the limits of the limiters of all subjects.
type policy struct {
	limiters []*core.Limiter
	first    []int // the first limit of each
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
		// The draft has whole seconds only. A calendar window's periods differ: with the longest, a
		// client that spreads q over w never sends too much.
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

// unlike returns name in quotes, with a number if another limit has it already. The draft wants
// distinct names, and limits of different kinds may have the same one.
func (p *policy) unlike(name string) string {
	quoted := `"` + name + `"`
	for n := 2; slices.Contains(p.names, quoted); n++ {
		quoted = `"` + name + "-" + strconv.Itoa(n) + `"`
	}
	return quoted
}

// bound is the index of the limit that binds: the one of that index of a subject's. Subjects are counted as core.All
// does.
func (p *policy) bound(subject, binding int) int {
	if subject > 0 && subject < len(p.first) {
		binding += p.first[subject]
	}
	if binding < 0 || binding >= len(p.limits) { // a foreign store may set any
		return 0
	}
	return binding
}

// quota is n in digits.
func (p *policy) quota(n int) string {
	for i := range p.limits {
		if p.limits[i].Quota() == n {
			return p.quotas[i]
		}
	}
	return strconv.Itoa(n) // of Allow, or of a store that has changed it
}

// secondsUp is the time d after now, in seconds and rounded up. It does not overflow for any
// d. A negative d counts as 0.
func secondsUp(now int64, d time.Duration) int64 {
	return int64((uint64(now) + uint64(max(0, d)) + uint64(time.Second) - 1) / uint64(time.Second))
}

// ceilSeconds rounds up, to at least 1: with 0 a client would retry at once.
func ceilSeconds(d time.Duration) int64 { return max(1, secondsUp(0, d)) }

// A format is a form in which headers show a decision. It is a file, which writes and reads it, and its rows in headers.go.
type format struct {
	names []string // of its headers
	tells string   // the one without which they show nothing, as http.Header keeps it
	read  func(h http.Header) shown
}

// A set is one of formats: each has a bit, or one for each way in which it says the reset.
type set uint8

// shown are the numbers of headers, which a limit further out has set, a function of this one such as a Cost that
// calls Allow, or other middleware.
type shown struct {
	in               set
	limit, remaining int64 // the limit is 0 if they do not tell
	reset            int64 // in seconds
	since1970        bool  // where these begin; else now
}

// looser reports whether what is shown is looser than a decision: more remains, or the same and for a
// shorter time.
func (s *shown) looser(t *told) bool {
	if remaining := int64(t.Remaining); remaining != s.remaining {
		return remaining < s.remaining
	}
	return t.reset(s.since1970) > s.reset
}

// number is the value of a header that has one.
func number(values []string) (int64, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}

// values are those of three headers, and the digits of two, in one allocation.
type values struct {
	of     [3]string
	digits [19 + 11]byte // of an int, and of 2^64 ns in seconds
}

// put makes value i of n. Its digits end at end, and put returns where they begin. strconv would write them
// elsewhere first.
func (v *values) put(i, end int, n uint64) int {
	at := end - 1
	for ; n >= 10; at-- {
		tens := n / 10
		v.digits[at] = '0' + byte(n-10*tens)
		n = tens
	}
	v.digits[at] = '0' + byte(n)
	v.of[i] = unsafe.String(&v.digits[at], end-at) // nobody changes the digits any more
	return at
}
