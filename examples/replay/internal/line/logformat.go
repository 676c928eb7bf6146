package line

// Lines of an nginx log_format, and of the servers whose lines are described as one.

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// A logFormat reads lines by the text of their log_format: the text between two variables ends the
// first one's value.
type logFormat struct {
	values
	parts   []part
	guessed bool // the line may have another format
}

// A part is a variable, and the text before it. The last part of a format has no variable.
type part struct {
	before   []byte
	variable *node // nil: it is not wanted
	unquoted bool  // its value holds no space
}

var logVariable = regexp.MustCompile(`\$(\w+|\{\w+\})`)

// logFormatOf is what makes the parser of a log_format. It returns an error if lines of the format are not requests
// of the users that are wanted.
func logFormatOf(text string) func(*Options, *addresses) (parser, error) {
	return func(o *Options, a *addresses) (parser, error) { return newLogFormat(o, text, a) }
}

func newLogFormat(o *Options, format string, a *addresses) (parser, error) {
	p, root := &logFormat{values: valuesOf(o, a), guessed: o.Format == FormatAuto}, o.tree()
	var found [fields]bool
	end := 0
	for _, at := range logVariable.FindAllStringIndex(format, -1) {
		if end > 0 && at[0] == end {
			return nil, fmt.Errorf("the format has no text between %s and the variable before it, so nothing tells their values apart", format[at[0]:at[1]])
		}
		name := strings.Trim(format[at[0]:at[1]], "${}")
		n := find(root, name)
		if n != nil && n.field >= 0 {
			found[n.field] = true
		}
		p.parts = append(p.parts, part{before: []byte(format[end:at[0]]), variable: n})
		end = at[1]
	}
	p.parts = append(p.parts, part{before: []byte(format[end:])})
	for i := range p.parts[:len(p.parts)-1] {
		n, next := p.parts[i].variable, p.parts[i+1].before
		spaces := n != nil && (n.field == fieldTime || n.field == fieldRequest || n.field == fieldID || n.field == fieldUser && o.User != UserAddress)
		p.parts[i].unquoted = !spaces && len(next) > 0 && next[0] == ' '
	}
	address := found[fieldUser] || found[fieldForwarded]
	switch {
	case !found[fieldTime] && !found[fieldDate]:
		return nil, fmt.Errorf("the format has no time, such as $time_local, $time_iso8601 or $msec; name its variable as the field time")
	case !found[fieldRequest] && !(found[fieldMethod] && found[fieldPath]):
		return nil, fmt.Errorf("the format has neither $request nor $request_method and $request_uri; name its variables as the fields request, or method and path")
	case !address && o.User == UserAddress:
		return nil, fmt.Errorf("the format has no address, such as $remote_addr; name its variable as the field address, or choose another user")
	case !found[fieldUser] && o.User != UserAddress:
		return nil, fmt.Errorf("the format has no variable for the user %s; compare the names, or choose another user", o.User)
	case !found[fieldID] && strings.HasPrefix(o.IDs, userField):
		return nil, fmt.Errorf("the format has no variable for the ids %s; compare the names, or choose others", o.IDs)
	}
	return p, nil
}

func (p *logFormat) parse(line []byte, r *Request) Outcome {
	o := p.read(line, r)
	if p.guessed && o.Lost() {
		return Unknown
	}
	return o
}

func (p *logFormat) read(line []byte, r *Request) Outcome {
	p.clear()
	rest, ok := bytes.CutPrefix(line, p.parts[0].before)
	if !ok {
		return Unknown
	}
	outcome := IsRequest
	for i, next := range p.parts[1:] {
		if n := p.parts[i].variable; n != nil && n.field == fieldDuration { // Squid pads it to a width
			rest = bytes.TrimLeft(rest, " ")
		}
		end := len(rest)
		if last := i == len(p.parts)-2; !last || len(next.before) > 0 {
			if end = valueEnd(rest, next.before); end < 0 || last && end+len(next.before) != len(rest) {
				return Unknown
			}
		}
		if p.parts[i].unquoted && spaced(rest[:end]) {
			outcome = Unfit
		}
		p.keep(p.parts[i].variable, value{text: rest[:end], quoted: true})
		rest = rest[min(len(rest), end+len(next.before)):]
	}
	if outcome != IsRequest {
		return outcome
	}
	if outcome = p.request(r); outcome == Message { // it has the texts of the format, but no request
		return NoTarget
	}
	return outcome
}

// spaced reports whether a value has a space, but for those in a list of addresses.
func spaced(b []byte) bool {
	for i, c := range b {
		if c == ' ' && i > 0 && b[i-1] != ',' {
			return true
		}
	}
	return false
}

// valueEnd is where the text after a value starts, or -1. Apache writes a quote within a quoted value
// after a backslash. A space behind a comma is within a list of addresses.
func valueEnd(b, text []byte) int {
	if text[0] != '"' {
		for end := 0; ; {
			i := bytes.Index(b[end:], text)
			if i < 0 {
				return -1
			}
			if end += i; text[0] != ' ' || end == 0 || b[end-1] != ',' {
				return end
			}
			end++
		}
	}
	end := closingQuote(b)
	if end < 0 || !bytes.HasPrefix(b[end:], text) {
		return -1
	}
	return end
}
