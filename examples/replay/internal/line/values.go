package line

// The wanted values of a line, and the request that they make.

// A value is the value of a field: a string without its quotes, or a number or word.
type value struct {
	text    []byte
	node    *node
	escaped bool
	quoted  bool
}

type values struct {
	byAddress bool // the user is an address
	addresses *addresses

	of      [fields]value
	scratch []byte // of strings with escapes
}

func (v *values) clear() { v.of, v.scratch = [fields]value{}, v.scratch[:0] }

func (v *values) keep(n *node, x value) {
	if n == nil || n.field < 0 {
		return
	}
	if old := &v.of[n.field]; old.node == nil || n.rank <= old.node.rank {
		x.node = n
		*old = x
	}
}

// request makes a request of the values, if they are one's.
func (v *values) request(r *Request) bool {
	if !v.when(r) || !v.what(r) {
		return false
	}
	v.who(r)
	return true
}

// when is the time, less the duration.
func (v *values) when(r *Request) (ok bool) {
	t := &v.of[fieldTime]
	if t.node == nil {
		return false
	}
	if r.Instant, ok = anyInstant(v.text(fieldTime)); !ok {
		return false
	}
	if d := &v.of[fieldDuration]; d.node != nil && t.node.unit != unitNone {
		r.At -= duration(v.text(fieldDuration), d.node.unit, t.node.unit)
	}
	return r.ok()
}

func (v *values) what(r *Request) bool {
	method, path, line := v.text(fieldMethod), v.text(fieldPath), v.text(fieldRequest)
	switch {
	case len(method) > 0 && len(path) > 0 && v.of[fieldPath].quoted:
		if !r.target(method, path) {
			return false
		}
	case !r.requestLine(line):
		return false
	}
	r.Cost = 1
	if c := &v.of[fieldCost]; c.node != nil {
		n, fraction, ok := decimal(v.text(fieldCost))
		if !ok || fraction != 0 || n > MaxCost {
			return false
		}
		r.Cost = uint32(n)
	}
	return true
}

func (v *values) who(r *Request) {
	r.User, r.ID = v.text(fieldUser), named(v.text(fieldID))
	if v.byAddress {
		r.User = v.addresses.canonical(r.User)
	} else {
		r.User = named(r.User)
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
