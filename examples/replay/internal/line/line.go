// Package line reads a line of an access log as a request.
package line

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
)

// The formats of a log. The text of an nginx log_format is one too.
const (
	FormatAuto     = "auto"     // each line by itself: JSON if it starts with a brace, else Combined
	FormatCombined = "combined" // Common or Combined Log Format
	FormatJSON     = "json"     // a JSON object on each line
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
	Format string // FormatAuto, also if empty, or another one
	User   string // UserAddress, also if empty, or another one
	Fields Fields

	// IDs says which user ids are counted behind a user: UserAuth, also if empty and users are
	// addresses, or a field. An address with many ids may be an office.
	IDs string
}

// Fields are the names of the fields of a JSON line, or of the variables of a log_format. If a name is
// empty, a Reader looks for the names that nginx, Caddy, Envoy, log/slog and zap use. "-" means that there is
// no such field. A name with dots leads into nested objects.
type Fields struct {
	// Time is the time of the request's end, as RFC 3339 (https://www.rfc-editor.org/rfc/rfc3339),
	// as in Common Log Format, or as a number of seconds, milliseconds, microseconds or
	// nanoseconds since 1970.
	Time string

	// Duration is how long the request took; the time less the duration is the instant of its
	// start. It is a text such as 1.5ms, or a number: in the unit that the field's name ends
	// with (_s, _ms, _us, _ns), else in seconds. If there is a field "time", whole numbers are
	// nanoseconds, as log/slog writes them.
	Duration string

	Address string // the client's address, with or without a port
	Method  string
	Path    string // the request's target, with or without a query
	Request string // both, as in "GET / HTTP/1.1"
	Cost    string // the action's cost: a whole number from 0 to 1,000,000,000; 1 if there is no such field
}

// A Reader reads lines. It is for one goroutine.
type Reader struct {
	format   string
	combined combined
	json     jsonLines
	nginx    *logFormat // nil: the format is not one
}

// New returns an error if the options cannot be.
func New(o Options) (*Reader, error) {
	o.User = cmp.Or(o.User, UserAddress)
	if o.User == UserAddress {
		o.IDs = cmp.Or(o.IDs, UserAuth)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	v := values{byAddress: o.User == UserAddress, addresses: new(addresses)}
	r := &Reader{
		format:   o.Format,
		combined: combined{user: originOf(o.User), id: originOf(o.IDs), addresses: v.addresses},
		json:     jsonLines{values: v, root: tree(o.Fields, o.User, o.IDs)},
	}
	switch o.Format {
	case "", FormatAuto, FormatCombined, FormatJSON:
		return r, nil
	}
	if !o.isLogFormat() {
		return nil, fmt.Errorf("format %q is unknown; use %s, %s or %s, or the text of an nginx log_format", o.Format, FormatAuto, FormatCombined, FormatJSON)
	}
	var err error
	r.nginx, err = newLogFormat(&o, v)
	return r, err
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
	return nil
}

// isLogFormat reports whether the format is the text of a log_format, which has variables.
func (o *Options) isLogFormat() bool { return strings.Contains(o.Format, "$") }

// Read reads a line without its end into r. It reports whether the line is a request.
func (w *Reader) Read(line []byte, r *Request) bool {
	switch {
	case w.nginx != nil:
		return w.nginx.parse(line, r)
	case w.format == FormatCombined:
		return w.combined.parse(line, r)
	case w.format == FormatJSON:
		return w.json.parse(line, r)
	}
	if start := bytes.TrimLeft(line, " \t"); len(start) > 0 && start[0] == '{' {
		return w.json.parse(start, r)
	}
	return w.combined.parse(line, r)
}
