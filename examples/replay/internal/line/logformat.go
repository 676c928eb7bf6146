package line

// Lines of an nginx log_format.

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
	parts []part
}

// A part is a variable, and the text before it. The last part of a format has no variable.
type part struct {
	before   []byte
	variable *node // nil: it is not wanted
}

var logVariable = regexp.MustCompile(`\$(\w+|\{\w+\})`)

// newLogFormat returns an error if lines of the format are not requests of the users that are wanted.
func newLogFormat(o *Options, v values) (*logFormat, error) {
	p, format, root := &logFormat{values: v}, o.Format, tree(o.Fields, o.User, o.IDs)
	var found [fields]bool
	end := 0
	for _, at := range logVariable.FindAllStringIndex(format, -1) {
		if end > 0 && at[0] == end {
			return nil, fmt.Errorf("the format has no text between %s and the variable before it, so nothing tells their values apart", format[at[0]:at[1]])
		}
		n := root.below[strings.Trim(format[at[0]:at[1]], "${}")]
		if n != nil && n.field >= 0 {
			found[n.field] = true
		}
		p.parts = append(p.parts, part{[]byte(format[end:at[0]]), n})
		end = at[1]
	}
	p.parts = append(p.parts, part{before: []byte(format[end:])})
	switch {
	case !found[fieldTime]:
		return nil, fmt.Errorf("the format has no time, such as $time_local, $time_iso8601 or $msec; name its variable as the field time")
	case !found[fieldRequest] && !(found[fieldMethod] && found[fieldPath]):
		return nil, fmt.Errorf("the format has neither $request nor $request_method and $request_uri; name its variables as the fields request, or method and path")
	case !found[fieldUser] && o.User == UserAddress:
		return nil, fmt.Errorf("the format has no address, such as $remote_addr; name its variable as the field address, or choose another user")
	case !found[fieldUser]:
		return nil, fmt.Errorf("the format has no variable for the user %s; compare the names, or choose another user", o.User)
	case !found[fieldID] && strings.HasPrefix(o.IDs, userField):
		return nil, fmt.Errorf("the format has no variable for the ids %s; compare the names, or choose others", o.IDs)
	}
	return p, nil
}

func (p *logFormat) parse(line []byte, r *Request) bool {
	p.clear()
	rest, ok := bytes.CutPrefix(line, p.parts[0].before)
	if !ok {
		return false
	}
	for i, next := range p.parts[1:] {
		end := len(rest)
		if last := i == len(p.parts)-2; !last || len(next.before) > 0 {
			if end = valueEnd(rest, next.before); end < 0 || last && end+len(next.before) != len(rest) {
				return false
			}
		}
		p.keep(p.parts[i].variable, value{text: rest[:end], quoted: true})
		rest = rest[min(len(rest), end+len(next.before)):]
	}
	return p.request(r)
}

// valueEnd is where the text after a value starts, or -1. Apache writes a quote within a quoted value
// after a backslash.
func valueEnd(b, text []byte) int {
	if text[0] != '"' {
		return bytes.Index(b, text)
	}
	end := closingQuote(b)
	if end < 0 || !bytes.HasPrefix(b[end:], text) {
		return -1
	}
	return end
}
