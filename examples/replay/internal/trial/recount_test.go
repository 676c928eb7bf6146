package trial_test

// An independent recount: it parses with regexp and encoding/json, keeps all requests, sorts them,
// and counts by looping over each user's history.

import (
	"bytes"
	"encoding/json"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// An entry is a request of a log.
type entry struct {
	user, method, path string
	at, end            int64 // in microseconds
}

var clf = regexp.MustCompile(`^(\S+) \S+ (.+?) \[([^]]{26})\] "([A-Z]+) ([^ "]+) HTTP/[0-9.]+" \d{3} (?:\d+|-)(?: .*)?$`)

func recountCLF(line string) (e entry, ok bool) {
	m := clf.FindStringSubmatch(line)
	if m == nil {
		return e, false
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[3])
	return entry{m[1], m[4], m[5], at.UnixMicro(), at.UnixMicro()}, err == nil
}

// dig finds a.b in nested objects.
func dig(object map[string]any, path string) any {
	head, tail, nested := strings.Cut(path, ".")
	if !nested {
		return object[head]
	}
	inner, _ := object[head].(map[string]any)
	return dig(inner, tail)
}

func recountJSON(line string) (e entry, ok bool) {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	var o map[string]any
	if d.Decode(&o) != nil || d.More() {
		return e, false
	}
	var end, took, start any
	switch {
	case o["start_time"] != nil: // Envoy
		start, e.method, e.path, e.user = o["start_time"], str(o["method"]), str(o["path"]), str(o["downstream_remote_address"])
	case o["ts"] != nil: // Caddy
		end, took, e.method, e.path, e.user = o["ts"], o["duration"], str(dig(o, "request.method")), str(dig(o, "request.uri")), str(dig(o, "request.remote_ip"))
	case o["msec"] != nil: // nginx
		end, took, e.user = o["msec"], o["request_time"], str(o["remote_addr"])
		parts := strings.Split(str(o["request"]), " ")
		if len(parts) != 3 {
			return e, false
		}
		e.method, e.path = parts[0], parts[1]
	default: // log/slog
		start, e.method, e.path, e.user = o["time"], str(o["method"]), str(o["path"]), str(o["remote_addr"])
		at, err := time.Parse(time.RFC3339, str(start))
		if err != nil || e.method == "" || e.path == "" {
			return e, false
		}
		nanos, _ := o["duration"].(json.Number).Int64()
		e.end = at.UnixMicro()
		e.at = e.end - nanos/1000
		return e, true
	}
	if e.method == "" || e.path == "" {
		return e, false
	}
	if start != nil {
		at, err := time.Parse(time.RFC3339, str(start))
		e.at, e.end = at.UnixMicro(), at.UnixMicro()
		return e, err == nil
	}
	e.end = micros(end)
	e.at = e.end - micros(took)
	return e, e.at >= 0
}

func str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// micros is a number of seconds in whole microseconds.
func micros(v any) int64 {
	r, ok := new(big.Rat).SetString(str(v))
	if !ok {
		return 0
	}
	r.Mul(r, big.NewRat(1_000_000, 1))
	n := new(big.Int).Quo(r.Num(), r.Denom())
	if !n.IsInt64() {
		return -1
	}
	return n.Int64()
}

// site is the user of an address.
func site(address string) string {
	if p, err := netip.ParseAddrPort(address); err == nil {
		address = p.Addr().String()
	}
	a, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return address
	case a.Unmap().Is4():
		return a.Unmap().String()
	}
	p, _ := a.Prefix(64)
	return p.String()
}

// A recount is what the log has.
type recount struct {
	lines, skipped, late, left int
	users                      map[string]map[string][]int64 // by action and user, in order
	from, to                   int64
	requests                   int
}

// recounted counts a log. action is "" for a request that no route matches.
func recounted(log []byte, action func(method, path string) string) *recount {
	r := &recount{users: map[string]map[string][]int64{}}
	newest := int64(-1 << 60)
	for _, raw := range bytes.SplitAfter(log, []byte("\n")) {
		if len(raw) == 0 {
			continue
		}
		r.lines++
		line := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
		parse := recountCLF
		if strings.HasPrefix(line, "{") {
			parse = recountJSON
		}
		e, ok := parse(line)
		if !ok {
			r.skipped++
			continue
		}
		newest = max(newest, e.end)
		path, _, _ := strings.Cut(e.path, "?")
		a := action(e.method, path)
		switch {
		case a == "":
			r.left++
		case e.at < newest-3600_000_000: // late or long
			r.late++
		default:
			if r.requests == 0 {
				r.from, r.to = e.at, e.at
			}
			r.requests++
			r.from, r.to = min(r.from, e.at), max(r.to, e.at)
			if r.users[a] == nil {
				r.users[a] = map[string][]int64{}
			}
			u := site(e.user)
			r.users[a][u] = append(r.users[a][u], e.at)
		}
	}
	for _, users := range r.users {
		for _, times := range users {
			slices.Sort(times)
		}
	}
	return r
}

// A rule says whether an action at t passes after those that were admitted, and if not how long
// it has to wait.
type rule func(admitted []int64, t int64) (ok bool, wait int64)

// sliding is at most max in a window.
func sliding(max int, period int64) rule {
	return func(admitted []int64, t int64) (bool, int64) {
		var within []int64
		for _, a := range admitted {
			if a > t-period {
				within = append(within, a)
			}
		}
		if len(within) < max {
			return true, 0
		}
		return false, within[len(within)-max] + period - t
	}
}

// leaking is a funnel, whose level is recounted from its start. emission is the time of a unit.
func leaking(capacity int, emission int64) rule {
	return func(admitted []int64, t int64) (bool, int64) {
		level, last := int64(0), int64(0) // in time
		for _, a := range admitted {
			level = max(0, level-(a-last)) + emission
			last = a
		}
		level = max(0, level-(t-last))
		return level+emission <= int64(capacity)*emission, level + emission - int64(capacity)*emission
	}
}

type verdict struct {
	refused, touched int
	longest          int64
	by               map[string]int
}

func judge(users map[string][]int64, pass rule) verdict {
	v := verdict{by: map[string]int{}}
	for u, times := range users {
		var admitted []int64
		for _, t := range times {
			ok, wait := pass(admitted, t)
			if ok {
				admitted = append(admitted, t)
				continue
			}
			v.refused++
			v.by[u]++
			v.longest = max(v.longest, wait)
		}
	}
	v.touched = len(v.by)
	return v
}

// leastNumber is the least number for which a rule touches at most so many users.
func leastNumber(users map[string][]int64, allowed int, of func(n int) rule) int {
	for n := 1; ; n++ {
		if judge(users, of(n)).touched <= allowed {
			return n
		}
	}
}
