// Package line reads a line of an access log as a request.
//
// The readers by format are fast and strict about what a request needs, an instant, a method and a path, and
// take anything in the fields that nobody asked for. A line may have a prefix, such as that of syslog or
// Kubernetes, or be the text of a field of a JSON line: see prefix.go.
package line

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The users of a log. "field:NAME" reads a field of a JSON line or a variable of a log_format, and
// "field:NUMBER" a field of a line in Combined Log Format, where the address is field 1. In JSON,
// request.user is the field user of the object request.
const (
	UserAddress = "address"  // the client's address, IPv6 by /64 as in package keyfuncs
	UserAuth    = "authuser" // the name that the client has authenticated itself with
	userField   = "field:"
)

// MaxCost is the highest cost of an action. A line with a higher one is no request.
const MaxCost = 1_000_000_000

// Options say what a line has. With the zero value a Reader reads every format, and a user is an address.
type Options struct {
	Format string // one of Formats, or the text of an nginx log_format; FormatAuto if empty
	User   string // UserAddress, also if empty, or another one
	Fields Fields

	// IDs says which user ids are counted behind a user: UserAuth, also if empty and users are
	// addresses, or a field. An address with many ids may be an office.
	IDs string

	// Unit is that of a duration whose field does not tell it: ns, us, ms or s. If it is empty, such a
	// duration is not used.
	Unit string

	// Zone is the zone of times without one; nil is UTC.
	Zone *time.Location
}

// Fields are the names of the fields of a JSON line, or of the variables of a log_format. If a name is
// empty, a Reader looks for the names that the usual servers and libraries use. "-" means that there is
// no such field. A name with dots leads into nested objects.
type Fields struct {
	// Time is the time of the request's end. If its name has "start" in it, it is the start.
	Time string

	// Duration is how long the request took; the time less the duration is the instant of its
	// start. It is a text such as 1.5ms, or a number in the unit that the field's name ends
	// with (_s, _ms, _us, _ns), else in Options.Unit.
	Duration string

	Address string // the client's address, with or without a port, or a list of X-Forwarded-For
	Method  string
	Path    string // the request's target, with or without a query
	Request string // both, as in "GET / HTTP/1.1"
	Cost    string // the action's cost: a whole number from 0 to 1,000,000,000; 1 if there is no such field
}

// An Outcome says what a line is.
type Outcome uint8

// The outcomes. From Unknown on a request may be lost.
const (
	IsRequest Outcome = iota
	Part              // of a line that goes on in the next one
	Blank
	Message   // a line that is known to be no request: a comment, an error, a program's message
	NoRequest // a connection that sent no request
	Unknown
	Broken
	NoTime
	NoTarget
	BadCost
	Unfit
	TooLong // a Reader never gets such a line
	Outcomes
)

var outcomes = [Outcomes]struct{ key, text, remedy string }{
	Part:      {"part", "parts of a line that goes on", ""},
	Blank:     {"blank", "blank", ""},
	Message:   {"message", "messages, comments or errors", ""},
	NoRequest: {"no_request", "connections without a request", ""},
	Unknown:   {"unknown", "in a format that is not known", "Describe it with -format, such as '$remote_addr [$time_local] \"$request\" $rest'."},
	Broken:    {"broken", "cut off, or broken JSON", "nginx writes JSON that is none without escape=json in its log_format."},
	NoTime:    {"no_time", "without a time that can be read", "Name its field with -field time=NAME."},
	NoTarget:  {"no_target", "without a method and a path", "Name their fields with -field method=NAME and -field path=NAME, or -field request=NAME."},
	BadCost:   {"bad_cost", "with a cost that is no whole number up to 1,000,000,000", ""},
	Unfit:     {"unfit", "not as -format says, since a value without quotes holds a space", "Compare the format with the line."},
	TooLong:   {"too_long", "of 1 MiB or more", ""},
}

// Key is the outcome in JSON.
func (o Outcome) Key() string { return outcomes[o].key }

// String says what lines with the outcome are.
func (o Outcome) String() string { return outcomes[o].text }

// Remedy says which flag may help, or nothing.
func (o Outcome) Remedy() string { return outcomes[o].remedy }

// Lost reports whether a line with the outcome may be a request that was not read.
func (o Outcome) Lost() bool { return o >= Unknown }

// A Reader reads lines. It is for one goroutine.
type Reader struct {
	zone      zone
	addresses *addresses
	json      *jsonLines // nil if no line is JSON
	parsers   []parser   // of the other formats, which are tried in turn
	last      int        // the one that read the last line
	parts     parts
	inner     *Reader // of texts within JSON
	bare      []byte  // a line without its colours

	numbered bool // each line has its number in front
}

// New returns an error if the options cannot be.
func New(o Options) (*Reader, error) {
	o.Format, o.User = cmp.Or(o.Format, FormatAuto), cmp.Or(o.User, UserAddress)
	if o.User == UserAddress {
		o.IDs = cmp.Or(o.IDs, UserAuth)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	w, err := o.reader()
	if err == nil && w.json != nil {
		w.inner, err = o.reader()
	}
	return w, err
}

func (o *Options) reader() (*Reader, error) {
	w := &Reader{zone: zone{in: o.Zone}, addresses: new(addresses)}
	for _, f := range o.formats() {
		p, err := f.parser(o, w.addresses)
		if err != nil && o.Format != FormatAuto {
			return nil, err
		}
		if j, ok := p.(*jsonLines); ok {
			w.json = j
		} else if err == nil {
			w.parsers = append(w.parsers, p)
		}
	}
	if len(w.parsers) == 0 && w.json == nil {
		return nil, fmt.Errorf("format %q is unknown; use %s, or the text of an nginx log_format", o.Format, strings.Join(Formats(), ", "))
	}
	return w, nil
}

func (o *Options) validate() error {
	if field, ok := strings.CutPrefix(o.User, userField); o.User != UserAddress && o.User != UserAuth && (!ok || field == "") {
		return fmt.Errorf("user %q is unknown; use %s, %s, field:NAME or field:NUMBER", o.User, UserAddress, UserAuth)
	}
	switch field, ok := strings.CutPrefix(o.IDs, userField); {
	case o.IDs != "" && o.IDs != UserAuth && (!ok || field == ""):
		return fmt.Errorf("ids %q are unknown; use %s, field:NAME or field:NUMBER", o.IDs, UserAuth)
	case o.IDs == o.User:
		return fmt.Errorf("user and ids are both %s; leave the ids out, or choose others", o.User)
	}
	if o.Unit != "" && units[o.Unit] == 0 {
		return fmt.Errorf("unit %q is unknown; use ns, us, ms or s", o.Unit)
	}
	return nil
}

// Header gives the line #Fields: that is in force where the next line stands.
func (w *Reader) Header(text []byte) {
	for _, p := range w.parsers {
		if p, ok := p.(*w3c); ok {
			p.header(text)
		}
	}
}

// Read reads a line without its end into r.
func (w *Reader) Read(b []byte, r *Request) Outcome {
	if w.numbered {
		b = unnumbered(b)
	}
	o := w.read(withoutBOM(b), r, Instant{})
	if o == IsRequest && r.zoneless {
		shift := w.zone.offset(r.End) * second
		r.At, r.End = r.At-shift, r.End-shift
		if r.End < firstInstant || r.End >= lastInstant {
			return NoTime
		}
		if !r.ok() {
			r.At = r.End
		}
	}
	return o
}

func (w *Reader) read(b []byte, r *Request, outer Instant) Outcome {
	if bytes.IndexByte(b, '\x1b') >= 0 {
		w.bare = uncoloured(w.bare[:0], b)
		b = w.bare
	}
	for len(b) > 0 && (b[len(b)-1] == '\r' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	start := 0
	for start < len(b) && (b[start] == ' ' || b[start] == '\t') {
		start++
	}
	if start == len(b) {
		return Blank
	}
	if b[start] == '{' && w.json != nil {
		return w.object(b[start:], r, outer)
	}
	best, whole := Unknown, b
	if !w.parts.open() && !isPart(b) {
		if best = w.try(b, r); !best.Lost() {
			return best
		}
	}
	rest, p := unwrap(b, 0)
	switch {
	case p.part:
		return w.parts.add(rest, p.stream)
	case p.at.At > 0:
		outer = p.at
	}
	if len(rest) < len(b) || w.parts.open() {
		if b = w.parts.whole(rest, p.stream); len(b) == 0 {
			return Blank
		}
		if b[0] == '{' && w.json != nil {
			return w.object(b, r, outer)
		}
		if o := w.timed(b, r, outer); o != Unknown {
			best = o
		}
	}
	if !best.Lost() {
		return best
	}
	if i := bytes.Index(b, []byte(`{"`)); i > 0 && w.json != nil && b[len(b)-1] == '}' {
		return w.object(b[i:], r, outer)
	}
	if message(whole) {
		return Message
	}
	return best
}

// timed tries a line that is in an envelope with a time, which the line may lack.
func (w *Reader) timed(b []byte, r *Request, outer Instant) Outcome {
	o := w.try(b, r)
	if o == NoTime && outer.At > 0 {
		return r.stamp(outer)
	}
	return o
}

// try asks the parsers, first the one that could read the last line.
func (w *Reader) try(b []byte, r *Request) Outcome {
	for i := range w.parsers {
		n := w.last + i
		if n >= len(w.parsers) {
			n -= len(w.parsers)
		}
		if o := w.parsers[n].parse(b, r); o != Unknown {
			if o == IsRequest {
				w.last = n
			}
			return o
		}
	}
	return Unknown
}

// object reads a JSON line, or the line within one.
func (w *Reader) object(b []byte, r *Request, outer Instant) Outcome {
	o := w.json.parse(b, r)
	switch {
	case o == NoTime && outer.At > 0:
		return r.stamp(outer)
	case (o == Message || o == NoTarget) && w.inner != nil:
		text := bytes.TrimRight(w.json.text(fieldInner), "\n")
		if len(text) == 0 {
			return o
		}
		at, ok := w.json.instant()
		if !ok {
			at = outer
		}
		if inner := w.inner.read(text, r, at); inner != Unknown {
			return inner
		}
	}
	return o
}

// Learn looks at the first lines of a log, for what a line alone does not tell, and returns what is to be
// known of it. Pass it on with As.
func (w *Reader) Learn(sample []byte) (notes []string) {
	w.numbered = numbered(sample)
	readers := []*Reader{w}
	if w.inner != nil {
		readers = append(readers, w.inner)
	}
	for _, one := range readers {
		one.addresses.seen = new(seen)
	}
	for text := range bytes.Lines(sample) {
		var r Request
		w.Read(bytes.TrimSuffix(text, []byte{'\n'}), &r)
	}
	for _, one := range readers {
		pick, note := one.addresses.seen.pick()
		if note != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
		one.addresses.seen, one.addresses.pick = nil, pick
	}
	if w.numbered {
		notes = append(notes, "Each line has its number in front, which is left out.")
	}
	return notes
}

// As takes over what another Reader with the same options has learned.
func (w *Reader) As(other *Reader) {
	w.numbered = other.numbered
	w.addresses.pick = other.addresses.pick
	if w.inner != nil {
		w.inner.addresses.pick = other.inner.addresses.pick
	}
}
