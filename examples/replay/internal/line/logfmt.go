package line

// Lines of key=value pairs, as log/slog's TextHandler, logrus and Heroku write them.

import "bytes"

type logfmt struct {
	values
	root *node
}

func newLogfmt(o *Options, a *addresses) (parser, error) {
	return &logfmt{values: valuesOf(o, a), root: o.tree()}, nil
}

func (p *logfmt) parse(line []byte, r *Request) Outcome {
	p.clear()
	pairs := 0
	for rest := line; len(rest) > 0; {
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
		i := bytes.IndexAny(rest, "= ")
		if i < 0 {
			break
		}
		name := rest[:i]
		equals := rest[i] == '='
		if rest = rest[i+1:]; !equals {
			continue
		}
		var x value
		if len(rest) > 0 && rest[0] == '"' {
			end := closingQuote(rest[1:])
			if end < 0 {
				return Unknown
			}
			text := rest[1 : end+1]
			x = value{text: text, quoted: true, escaped: bytes.IndexByte(text, '\\') >= 0 && text[len(text)-1] != '\\'}
			rest = rest[end+2:]
		} else {
			end := bytes.IndexByte(rest, ' ')
			if end < 0 {
				end = len(rest)
			}
			x = value{text: rest[:end], quoted: true}
			rest = rest[end:]
		}
		pairs++
		p.keep(find(p.root, name), x)
	}
	o := p.request(r)
	if pairs < 3 && o != IsRequest {
		return Unknown
	}
	return o
}
