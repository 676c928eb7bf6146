package line

// The fields of a JSON line, and the names under which they are found.

import (
	"slices"
	"strings"
)

// The fields of a line. If a name is of two, the later one has it.
const (
	fieldID = iota
	fieldTime
	fieldDuration
	fieldMethod
	fieldPath
	fieldRequest
	fieldCost
	fieldUser
	fields
)

// An alias is a name under which a field is found. Of several in a line the first counts.
type alias struct {
	name string
	unit unit // of a duration; of a time, how a whole "duration" beside it is to be read
}

// aliases are the names that nginx, Caddy, Envoy, log/slog and zap use.
var aliases = [fields][]alias{
	fieldTime: {
		{"start_time", unitNone}, // Envoy: the start already
		{"time", unitNano},       // log/slog, which writes a time.Duration as a number
		{"ts", unitSecond},       // Caddy, zap
		{"msec", unitSecond},     // nginx: $msec, $time_iso8601, $time_local
		{"time_iso8601", unitSecond},
		{"time_local", unitSecond},
		{"timestamp", unitSecond},
		{"@timestamp", unitSecond},
	},
	fieldDuration: {
		{"request_time", unitSecond}, // nginx
		{"duration", unitGuess},
		{"duration_ms", unitMilli},
		{"duration_us", unitMicro},
		{"duration_ns", unitNano},
		{"elapsed", unitGuess},
		{"elapsed_ms", unitMilli},
		{"latency", unitGuess},
		{"latency_ms", unitMilli},
	},
	fieldMethod:  {{"request.method", 0}, {"request_method", 0}, {"method", 0}},
	fieldPath:    {{"request.uri", 0}, {"request_uri", 0}, {"uri", 0}, {"path", 0}, {"url", 0}},
	fieldRequest: {{"request", 0}},
}

// The names of a user, who is an address or was authenticated.
var (
	addressNames = []alias{
		{"request.client_ip", 0}, {"request.remote_ip", 0}, {"remote_addr", 0}, {"remote_ip", 0}, {"client_ip", 0},
		{"downstream_remote_address", 0}, {"remote_address", 0}, {"ip", 0},
	}
	authUserNames = []alias{{"remote_user", 0}, {"user_id", 0}, {"user", 0}}
)

// A node is a name that is looked for, at one depth of a line.
type node struct {
	below map[string]*node
	first [256]bool // bytes that names in below start with
	field int       // or -1
	rank  int
	unit  unit
}

func (n *node) add(name string, field, rank int, u unit) {
	if n.below == nil {
		n.below = make(map[string]*node)
	}
	head, tail, nested := strings.Cut(name, ".")
	if nested {
		n.child(name).set(field, rank, u) // a name may have dots itself
		n.child(head).add(tail, field, rank, u)
		return
	}
	n.child(name).set(field, rank, u)
}

func (n *node) child(name string) *node {
	c := n.below[name]
	if c == nil {
		c = &node{field: -1}
		n.below[name] = c
		if name != "" {
			n.first[name[0]] = true
		}
	}
	return c
}

func (n *node) set(field, rank int, u unit) { n.field, n.rank, n.unit = field, rank, u }

// tree is what is looked for, by the fields' names and which users and ids are wanted.
func tree(f Fields, user, id string) *node {
	root := &node{field: -1}
	given := [fields]string{"", f.Time, f.Duration, f.Method, f.Path, f.Request, f.Cost, ""}
	names := aliases
	for field, who := range map[int]string{fieldUser: user, fieldID: id} {
		switch who {
		case "":
		case UserAddress:
			given[field], names[field] = f.Address, addressNames
		case UserAuth:
			names[field] = authUserNames
		default:
			given[field] = strings.TrimPrefix(who, userField)
		}
	}
	for field, name := range given {
		if name == noField {
			continue
		}
		known := names[field]
		if name != "" {
			if i := slices.IndexFunc(known, func(a alias) bool { return a.name == name }); i >= 0 {
				known = known[i : i+1]
			} else {
				known = []alias{{name, unitOf(name, field)}}
			}
		}
		for rank, a := range known {
			root.add(a.name, field, rank, a.unit)
		}
	}
	return root
}

// noField, as a field's name, says that lines have no such field.
const noField = "-"

func unitOf(name string, field int) unit {
	if field != fieldDuration {
		return unitSecond
	}
	for suffix, u := range map[string]unit{"_s": unitSecond, "_seconds": unitSecond, "_ms": unitMilli, "_us": unitMicro, "_ns": unitNano} {
		if strings.HasSuffix(name, suffix) {
			return u
		}
	}
	return unitGuess
}
