package line

// Lines whose fields a line #Fields: names, as IIS and CloudFront write them
// (https://www.w3.org/TR/WD-logfile.html). Their times are in UTC.

import (
	"bytes"
)

type w3c struct {
	values
	options *Options
	root    *node  // of the names that the options give; nil before the first header
	names   []byte // the header in force
	fields  []*node
}

func newW3C(o *Options, a *addresses) (parser, error) {
	return &w3c{values: valuesOf(o, a), options: o}, nil
}

// w3cNames are the names that the other formats do not have.
var w3cNames = map[string]node{
	"date":                {field: fieldDate, unit: unitSecond},
	"time":                {field: fieldTime, unit: unitSecond},
	"cs-method":           {field: fieldMethod},
	"cs-uri-stem":         {field: fieldPath},
	"cs-uri":              {field: fieldPath, rank: 1},
	"c-ip":                {field: fieldUser},
	"x-forwarded-for":     {field: fieldForwarded},
	"X-Forwarded-For":     {field: fieldForwarded},
	"cs(X-Forwarded-For)": {field: fieldForwarded},
}

func (p *w3c) header(line []byte) {
	if bytes.Equal(line, p.names) {
		return
	}
	p.names = bytes.Clone(line)
	o := p.options
	if p.root == nil {
		p.root = o.tree()
	}
	names := bytes.Fields(bytes.TrimPrefix(line, []byte("#Fields:")))
	iis := bytes.Contains(line, []byte("sc-win32-status")) || bytes.Contains(line, []byte("s-sitename"))
	p.fields = p.fields[:0]
	for _, name := range names {
		n := find(p.root, name)
		known, ok := w3cNames[string(name)]
		switch {
		case n != nil && n.given:
		case string(name) == "time-taken" && o.Fields.Duration == "":
			known = node{field: fieldDuration, unit: unitNginx} // CloudFront: seconds with a fraction
			if iis {
				known.unit = unitMilli
			}
			n = &known
		case string(name) == "cs-username" && o.User == UserAuth:
			n = &node{field: fieldUser}
		case string(name) == "cs-username" && o.IDs == UserAuth:
			n = &node{field: fieldID}
		case !ok, known.field == fieldUser && o.User != UserAddress, known.field == fieldForwarded && o.Fields.Address != "":
			n = nil
		default:
			n = &known
		}
		p.fields = append(p.fields, n)
	}
}

func (p *w3c) parse(line []byte, r *Request) Outcome {
	if bytes.HasPrefix(line, []byte("#Fields:")) {
		p.header(line)
	}
	if line[0] == '#' {
		return Message
	}
	if len(p.fields) == 0 {
		return Unknown
	}
	separator := byte(' ')
	if bytes.IndexByte(line, '\t') >= 0 {
		separator = '\t'
	}
	p.clear()
	rest, more := line, true
	for _, n := range p.fields {
		if !more {
			return Broken
		}
		var text []byte
		if len(rest) > 1 && rest[0] == '"' {
			if end := closingQuote(rest[1:]); end >= 0 && (end+2 == len(rest) || rest[end+2] == separator) {
				text, more = rest[1:end+1], end+2 < len(rest)
				rest = rest[min(len(rest), end+3):]
				p.keep(n, value{text: text, quoted: true})
				continue
			}
		}
		text, rest, more = bytes.Cut(rest, []byte{separator})
		p.keep(n, value{text: text, quoted: true})
	}
	o := p.request(r)
	if r.zoneless {
		r.zoneless, r.Zoned = false, true
	}
	if o == Message {
		return NoRequest
	}
	return o
}
