package line

// The fields of a line that has names for them, and the names under which they are found.

import (
	"slices"
	"strings"
)

// The fields of a line. If a name is of two, the later one has it.
const (
	fieldInner = iota // a line within the line
	fieldLogger
	fieldID
	fieldDate // of a time that is a time of day
	fieldTime
	fieldDuration
	fieldMethod
	fieldPath
	fieldRequest
	fieldForwarded
	fieldCost
	fieldUser
	fields
)

// An alias is a name under which a field is found. Of several in a line the first that has a value counts.
type alias struct {
	name string
	unit unit // of a duration; unitNone of a time: it is the start
}

// aliases are the names that servers and libraries use.
var aliases = [fields][]alias{
	fieldInner:  {{"log", 0}, {"MESSAGE", 0}, {"message", 0}, {"msg", 0}, {"properties", 0}}, // Docker, journald, ECS, Azure's App Service
	fieldLogger: {{"logger", 0}},
	fieldDate:   {{"date", unitSecond}},
	fieldTime: {
		{"start_time", unitNone}, // Envoy
		{"started_at", unitNone}, // Kong
		{"StartUTC", unitNone},   // Traefik
		{"StartLocal", unitNone},
		{"time", unitSecond}, // log/slog, zerolog, logrus
		{"ts", unitSecond},   // Caddy, zap
		{"msec", unitSecond}, // nginx: $msec, $time_iso8601, $time_local
		{"time_iso8601", unitSecond},
		{"time_local", unitSecond},
		{"timestamp", unitSecond},
		{"@timestamp", unitSecond},
		{"datetime", unitSecond},
		{"@t", unitSecond},               // Serilog
		{"requestTimeEpoch", unitSecond}, // Amazon's API Gateway
		{"requestTime", unitSecond},
		{"EdgeStartTimestamp", unitNone}, // Cloudflare
		{"timeStamp", unitSecond},        // Azure: Application Gateway, Log Analytics
		{"TimeGenerated", unitSecond},
	},
	fieldDuration: {
		{"request_time", unitNginx},
		{"duration", unitUnknown}, // log/slog: ns, zerolog: ms, zap: s
		{"duration_ms", unitMilli},
		{"duration_us", unitMicro},
		{"duration_ns", unitNano},
		{"Duration", unitNano}, // Traefik
		{"elapsed", unitUnknown},
		{"elapsed_ms", unitMilli},
		{"latency", unitUnknown},
		{"latency_ms", unitMilli},
		{"httpRequest.latency", unitSecond},
		{"response_time", unitUnknown},
		{"response_time_ms", unitMilli},
		{"event.duration", unitNano},         // ECS
		{"properties.timeTaken", unitSecond}, // Azure: Application Gateway and Front Door, App Service
		{"properties.TimeTaken", unitMilli},
		{"TimeTaken", unitMilli},
	},
	fieldMethod: {
		{"request.method", 0}, {"request_method", 0}, {"method", 0}, {"RequestMethod", 0}, {"http_method", 0}, {"verb", 0},
		{"httpRequest.requestMethod", 0}, {"http.request.method", 0}, {"req.method", 0},
		{"httpMethod", 0}, {"httpRequest.httpMethod", 0}, {"ClientRequestMethod", 0},
		{"properties.httpMethod", 0}, {"properties.CsMethod", 0}, {"properties.method", 0}, {"CsMethod", 0},
	},
	fieldPath: {
		{"request.uri", 0}, {"request_uri", 0}, {"uri", 0}, {"path", 0}, {"url", 0}, {"RequestPath", 0}, {"request_path", 0},
		{"httpRequest.requestUrl", 0}, {"url.original", 0}, {"url.path", 0}, {"req.url", 0},
		{"httpRequest.uri", 0}, {"ClientRequestURI", 0},
		{"properties.requestUri", 0}, {"properties.CsUriStem", 0}, {"properties.url", 0}, {"CsUriStem", 0},
	},
	fieldRequest: {{"request", 0}, {"request_line", 0}},
	fieldForwarded: {
		{"http_x_forwarded_for", 0}, {"x_forwarded_for", 0}, {"X-Forwarded-For", 0}, {"x-forwarded-for", 0}, {"xff", 0}, {"forwarded_for", 0},
		{"request.headers.X-Forwarded-For", 0}, {"request_X-Forwarded-For", 0}, {"http_x_real_ip", 0}, {"x_real_ip", 0}, {"realip_remote_addr", 0},
		{"fwd", 0}, {"req.headers.x-forwarded-for", 0}, {"proxy_add_x_forwarded_for", 0},
	},
}

// The names of a user, who is an address or was authenticated.
var (
	addressNames = []alias{
		{"request.client_ip", 0}, {"request.remote_ip", 0}, {"request.remote_addr", 0}, {"remote_addr", 0}, {"remote_ip", 0}, {"client_ip", 0},
		{"ClientHost", 0}, {"ClientAddr", 0}, {"downstream_remote_address", 0}, {"remote_address", 0}, {"ip", 0}, {"client", 0}, {"remote", 0},
		{"client_addr", 0}, {"clientip", 0}, {"clientIp", 0}, {"remoteAddr", 0}, {"real_ip", 0}, {"httpRequest.remoteIp", 0}, {"client.ip", 0},
		{"source.address", 0}, {"source.ip", 0}, {"remote_host", 0}, {"req.remoteAddress", 0},
		{"ClientIp", 0}, {"ClientIP", 0}, {"httpRequest.clientIp", 0},
		{"properties.clientIP", 0}, {"properties.clientIp", 0}, {"properties.CIp", 0}, {"CIp", 0}, {"callerIpAddress", 0},
	}
	authUserNames = []alias{{"remote_user", 0}, {"user_id", 0}, {"user", 0}, {"ClientUsername", 0}, {"user.name", 0}, {"user.id", 0}}
)

// A node is a name that is looked for, at one depth of a line.
type node struct {
	name   string
	below  [][]*node // by their place; nil if there are none
	field  int       // or -1
	rank   int
	unit   unit
	nested bool // the name is of two
	given  bool // by the Options
}

// places is how many lists of names a node has. Most have a name or none: to go through one is faster than a map.
const places = 64

func place[name string | []byte](b name) int {
	if len(b) == 0 {
		return 0
	}
	return (int(b[0]) + 3*len(b)) % places
}

func (n *node) add(name string, leaf node) {
	if n.below == nil {
		n.below = make([][]*node, places)
	}
	head, tail, nested := strings.Cut(name, ".")
	if nested {
		n.child(name).set(leaf) // a name may have dots itself
		leaf.nested = true
		n.child(head).add(tail, leaf)
		return
	}
	n.child(name).set(leaf)
}

func (n *node) child(name string) *node {
	c := find(n, name)
	if c == nil {
		c = &node{name: name, field: -1}
		n.below[place(name)] = append(n.below[place(name)], c)
	}
	return c
}

// find finds the node below n with a name. A nil n has none.
func find[name string | []byte](n *node, b name) *node {
	if n == nil || n.below == nil {
		return nil
	}
	for _, c := range n.below[place(b)] {
		if c.name == string(b) {
			return c
		}
	}
	return nil
}

func (n *node) set(leaf node) {
	n.field, n.rank, n.unit, n.nested, n.given = leaf.field, leaf.rank, leaf.unit, leaf.nested, leaf.given
}

// tree is what is looked for, by the fields' names and which users and ids are wanted.
func (o *Options) tree() *node {
	f, root := o.Fields, &node{field: -1}
	given := [fields]string{fieldTime: f.Time, fieldDuration: f.Duration, fieldMethod: f.Method, fieldPath: f.Path, fieldRequest: f.Request, fieldCost: f.Cost}
	names := aliases
	for field, who := range map[int]string{fieldUser: o.User, fieldID: o.IDs} {
		switch who {
		case "":
		case UserAddress:
			given[field], names[field] = f.Address, addressNames
			if f.Address != "" {
				given[fieldForwarded] = noField
			}
		case UserAuth:
			names[field] = authUserNames
		default:
			given[field] = strings.TrimPrefix(who, userField)
		}
	}
	if f.Path != "" && f.Request == "" {
		given[fieldRequest] = noField
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
			root.add(a.name, node{field: field, rank: rank, unit: a.unit, given: name != ""})
		}
	}
	return root
}

// noField, as a field's name, says that lines have no such field.
const noField = "-"

func unitOf(name string, field int) unit {
	if field == fieldTime && strings.Contains(strings.ToLower(name), "start") {
		return unitNone
	}
	if field != fieldDuration {
		return unitSecond
	}
	for suffix, u := range map[string]unit{"_s": unitSecond, "_seconds": unitSecond, "_ms": unitMilli, "_us": unitMicro, "_ns": unitNano} {
		if strings.HasSuffix(name, suffix) {
			return u
		}
	}
	return unitUnknown
}
