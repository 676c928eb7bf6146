package line

// The wanted values of a line, and the request that they make.

import "bytes"

// A value is the value of a field: a string without its quotes, or a number or word.
type value struct {
	text    []byte
	node    *node
	escaped bool
	quoted  bool
}

// none reports whether there is no value, or one that stands for none.
func (x *value) none() bool {
	return x.node == nil || len(x.text) == 0 || len(x.text) == 1 && x.text[0] == '-'
}

type values struct {
	byAddress bool // the user is an address
	addresses *addresses
	unit      unit // of a duration that does not tell it; 0: not known

	of      [fields]value
	scratch []byte // of strings with escapes
}

func valuesOf(o *Options, a *addresses) values {
	return values{byAddress: o.User == UserAddress, addresses: a, unit: units[o.Unit]}
}

func (v *values) clear() { v.of, v.scratch = [fields]value{}, v.scratch[:0] }

// keep takes the value if it is that of the best name so far, and is not an empty one beside another.
func (v *values) keep(n *node, x value) {
	if n == nil || n.field < 0 {
		return
	}
	x.node = n
	old := &v.of[n.field]
	if old.none() || !x.none() && n.rank <= old.node.rank {
		*old = x
	}
}

// request makes a request of the values, if they are one's.
func (v *values) request(r *Request) Outcome {
	if v.failed() {
		return Message
	}
	if o := v.what(r); o != IsRequest {
		return o
	}
	v.who(r)
	var ok bool
	if r.Instant, ok = v.instant(); !ok {
		return NoTime
	}
	r.End = r.At
	if d := &v.of[fieldDuration]; !d.none() && v.of[fieldTime].node.unit != unitNone {
		u := d.node.unit
		switch {
		case u >= 0:
		case u == unitUnknown && v.of[fieldPath].node != nil && v.of[fieldPath].node.nested && bytes.IndexByte(d.text, '.') >= 0:
			u = unitSecond // Caddy, which writes whole numbers in other units
		case v.unit > 0 && (u == unitUnknown || bytes.IndexByte(d.text, '.') < 0):
			u = v.unit
		}
		took, known := duration(v.text(fieldDuration), u)
		if r.At -= took; !r.ok() {
			r.At = r.End
		}
		r.Unitless = !known
	}
	return IsRequest
}

// failed reports whether the line is of Caddy's log of errors, which has the request too.
func (v *values) failed() bool {
	return bytes.HasPrefix(v.of[fieldLogger].text, []byte("http.log.error"))
}

// instant is that in the line, which may be in two fields.
func (v *values) instant() (t Instant, ok bool) {
	text := v.text(fieldTime)
	if date := v.text(fieldDate); len(date) >= 10 && len(text) >= 8 && text[2] == ':' {
		start := len(v.scratch)
		v.scratch = append(append(append(v.scratch, date...), ' '), text...)
		text = v.scratch[start:]
	} else if len(text) == 0 && len(date) > 10 {
		text = date
		v.of[fieldTime] = v.of[fieldDate]
	}
	if len(text) == 0 {
		return t, false
	}
	return anyInstant(text)
}

// what is the method and the path. A server may rewrite $uri, but not the request line.
func (v *values) what(r *Request) Outcome {
	if line := v.text(fieldRequest); !r.requestLine(line) {
		method, path := v.text(fieldMethod), v.text(fieldPath)
		switch {
		case len(method) > 0 && len(path) > 0 && v.of[fieldPath].quoted && r.target(method, path):
		case v.of[fieldRequest].node != nil && noRequest(line, nil), string(method) == "PRI":
			return NoRequest
		case len(line) > 0 && len(path) == 0:
			return Broken
		case v.of[fieldMethod].none() && v.of[fieldPath].none():
			return Message
		default:
			return NoTarget
		}
	}
	r.Cost = 1
	if c := &v.of[fieldCost]; !c.none() {
		n, fraction, ok := decimal(v.text(fieldCost))
		if !ok || fraction != 0 || n > MaxCost {
			return BadCost
		}
		r.Cost = uint32(n)
	}
	return IsRequest
}

func (v *values) who(r *Request) {
	user := v.text(fieldUser)
	r.ID = named(v.text(fieldID))
	if !v.byAddress {
		if r.User = named(user); v.of[fieldUser].node != nil && v.of[fieldUser].node.given {
			if client, ok := v.addresses.client(r.User); ok {
				r.User = client
			}
		}
		return
	}
	first, is := v.addresses.client(user)
	other, _ := v.addresses.client(v.text(fieldForwarded))
	if seen := v.addresses.seen; seen != nil {
		seen.add(pickFirst, first)
		seen.add(pickForwarded, other)
	}
	switch {
	case len(other) > 0 && (!is || v.addresses.pick == pickForwarded):
		r.User = other
	case is:
		r.User = first
	default:
		r.User = v.addresses.user(user)
		r.Named = len(r.User) > 0
	}
}

// named is a user's name. Servers write "-" if there is none.
func named(b []byte) []byte {
	if string(b) == "-" {
		return nil
	}
	return b
}

// text is the value of a field, its escapes resolved.
func (v *values) text(field int) []byte {
	x := &v.of[field]
	if !x.escaped {
		return x.text
	}
	start := len(v.scratch)
	v.scratch = unescape(v.scratch, x.text)
	x.text, x.escaped = v.scratch[start:len(v.scratch):len(v.scratch)], false
	return x.text
}
