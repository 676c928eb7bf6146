package plans

// A reader reads the JSON of a document. It knows the position of each value, so that errors can
// name a line and a column.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
)

// A DocumentError lists the errors of a document. It matches [core.ErrConfig]. It contains names of
// plans, actions and fields, and values, but no names of users from the fields users and zones.
type DocumentError struct {
	Problems []Problem // from 1 to 100, sorted by position
	More     bool      // reading stopped before the end of the document, so there may be more
}

// A Problem is one error of a document. Line and Column are its position. They count from 1, and
// Column counts characters, not bytes.
type Problem struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"` // such as: plan "free", action "reply": SlidingWindow(0, 1m): max 0 is not within 1 to 10000
}

// Error returns one line for each problem.
func (e *DocumentError) Error() string {
	var lines []string
	for _, p := range e.Problems {
		lines = append(lines, fmt.Sprintf("plans: line %d, column %d: %s", p.Line, p.Column, p.Text))
	}
	if e.More {
		lines = append(lines, "plans: reading stopped here; there may be more")
	}
	return strings.Join(lines, "\n")
}

// Is reports whether target is [core.ErrConfig].
func (e *DocumentError) Is(target error) bool { return target == core.ErrConfig }

const mostProblems = 100

// A reader reads a document whose JSON is valid. It goes on after a problem, so that it finds
// several. It stops at mostProblems, or if the document has too many users or limiters.
type reader struct {
	text     []byte
	at       int // the position of the next byte
	problems []Problem
	stopped  bool
}

// stopReading is the value with which stop panics.
type stopReading struct{}

// stop ends the call of read in which it is called.
func (r *reader) stop() {
	r.stopped = true
	panic(stopReading{})
}

// read calls f, and returns when f returns or calls stop.
func (r *reader) read(f func()) {
	defer func() {
		if v := recover(); v != nil && v != any(stopReading{}) {
			panic(v)
		}
	}()
	f()
}

// newReader returns a reader for a document. If the document is too long, not valid JSON or not
// valid UTF-8, newReader adds a problem.
func newReader(document []byte) *reader {
	r := &reader{text: bytes.TrimPrefix(document, []byte("\uFEFF"))}
	if len(document) > maxDocument {
		r.problem(0, "the document has %d bytes, and %d are the most", len(document), maxDocument)
		return r
	}
	if !json.Valid(r.text) {
		at, err, syntax := 0, json.Unmarshal(r.text, new(json.RawMessage)), (*json.SyntaxError)(nil)
		if errors.As(err, &syntax) {
			at = max(0, int(syntax.Offset)-1)
		}
		r.problem(at, "the document is not JSON: %s", err)
	} else if !utf8.Valid(r.text) {
		at, valid := 0, bytes.ToValidUTF8(r.text, nil)
		for at < len(valid) && valid[at] == r.text[at] {
			at++
		}
		r.problem(at, "the document is not valid UTF-8")
	}
	return r
}

// err returns the problems so far as an error, or nil if there are none.
func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return &DocumentError{r.problems, r.stopped}
}

// problem adds a problem at a position of the text.
func (r *reader) problem(at int, format string, args ...any) {
	for at > 0 && at < len(r.text) && !utf8.RuneStart(r.text[at]) {
		at-- // go to the first byte of the character
	}
	before := r.text[:at]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
	if r.problems = append(r.problems, Problem{line, column, fmt.Sprintf(format, args...)}); len(r.problems) == mostProblems {
		r.stop()
	}
}

// shown returns a text as people should see it. It quotes a text that has characters that a
// terminal would not print.
func shown(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// next skips white space, and returns the first byte of the next value.
func (r *reader) next() byte {
	for bytes.IndexByte([]byte(" \t\r\n"), r.text[r.at]) >= 0 {
		r.at++
	}
	return r.text[r.at]
}

// raw skips the next value, and returns its text.
func (r *reader) raw() []byte {
	r.next()
	start, depth := r.at, 0
	for {
		switch r.text[r.at] {
		case '"':
			for r.at++; r.text[r.at] != '"'; r.at++ {
				if r.text[r.at] == '\\' {
					r.at++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ' ', '\t', '\r', '\n', ',', ':':
		default: // a number or a word
			for r.at+1 < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,]}"), r.text[r.at+1]) < 0 {
				r.at++
			}
		}
		if r.at++; depth == 0 {
			return r.text[start:r.at]
		}
	}
}

// unquoted skips the next value, which must be a string, and returns that string.
func (r *reader) unquoted() string {
	raw := r.raw()
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // it is valid
	return s
}

// is reports whether the next value starts with the byte first. If not, it adds a problem and skips
// the value.
func (r *reader) is(first byte, what, kind string) bool {
	if r.next() == first {
		return true
	}
	r.problem(r.at, "%s is %s; write %s", what, cmp.Or(kinds[r.next()], "a number"), kind)
	r.raw()
	return false
}

// kinds describes a value by its first byte. A value with a first byte that is not in kinds is a
// number. A problem shows the kind instead of the value, because the value may be a user's name.
var kinds = map[byte]string{'{': "an object", '[': "a list", '"': "a text", 't': "true", 'f': "false", 'n': "null"}

// entries reads an object. For each name it calls read, with the reader at the value of that name.
// read must read or skip the value.
func (r *reader) entries(what string, read func(name string, at int)) {
	if !r.is('{', what, "an object in braces") {
		return
	}
	r.at++
	for r.next() != '}' {
		if r.text[r.at] == ',' {
			r.at++
			r.next()
		}
		at := r.at
		name := r.unquoted()
		r.next()
		r.at++ // the colon
		r.next()
		read(name, at)
	}
	r.at++
}

// fields skips an object, and returns the position of each field's value. It adds a problem for an
// unknown field and for a field that is given twice.
func (r *reader) fields(what string, known ...string) map[string]int {
	fields := map[string]int{}
	r.entries(what, func(name string, at int) {
		switch _, twice := fields[name]; {
		case twice:
			r.problem(at, "%s: %q is given twice; remove one", what, name)
		case !slices.Contains(known, name):
			r.problem(at, "%s: %.40q is not a field; the fields are %s", what, name, strings.Join(known, ", "))
		default:
			fields[name] = r.at
		}
		r.raw()
	})
	return fields
}

// list reads an array, and calls read at each value.
func (r *reader) list(what string, read func()) {
	if !r.is('[', what, "a list in brackets") {
		return
	}
	r.at++
	for r.next() != ']' {
		if r.text[r.at] == ',' {
			r.at++
			r.next()
		}
		read()
	}
	r.at++
}

// string reads a string. If the next value is not a string or is empty, it adds a problem and
// returns "".
func (r *reader) string(what string) string {
	if !r.is('"', what, "a text in quotes") {
		return ""
	}
	at := r.at
	s := r.unquoted()
	if s == "" {
		r.problem(at, "%s is empty", what)
	}
	return s
}

func (r *reader) duration(what string) time.Duration {
	at := r.at
	s := r.string(what)
	d, err := time.ParseDuration(s)
	if s != "" && err != nil {
		r.problem(at, "%s: %.40q is not a duration; write one such as 500ms, 1m or 24h", what, s)
	}
	return d
}

// value reads a number or a boolean. If the next value has another type, it adds a problem.
func value[T any](r *reader, what, kind string) (v T) {
	r.next()
	at := r.at
	raw := r.raw()
	if json.Unmarshal(raw, &v) != nil || string(raw) == "null" {
		r.problem(at, "%s is %s; write %s", what, shown(fmt.Sprintf("%.40s", raw)), kind)
	}
	return v
}
