package gate

// What headers show in any format. A format is a file, which writes and reads it, and its rows in headers.go.

import (
	"net/http"
	"strconv"
	"unsafe"
)

// A format is a form in which headers show a decision.
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
	if remaining := int64(t.remaining); remaining != s.remaining {
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
