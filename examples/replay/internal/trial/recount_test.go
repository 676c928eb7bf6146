package trial_test

// An independent recount: it parses with regexp and encoding/json, keeps all requests, sorts them,
// and counts by looping over each user's history.

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/examples/replay/internal/fit"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/trial"
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

// The report of a log is what a recount of it gives, in every format, zipped or not.
func TestReportIsTheRecount(t *testing.T) {
	formats := [][]string{{"common"}, {"combined"}, {"nginx"}, {"caddy"}, {"envoy"}, {"slog"}, {"common", "combined", "nginx", "caddy", "envoy", "slog"}}
	seeds := uint64(21)
	if testing.Short() {
		seeds = 7 // each of the formats once
	}
	for seed := range seeds {
		of := formats[seed%uint64(len(formats))]
		t.Run(fmt.Sprint(seed, of), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 16))
			var routes []route.Route
			if seed%2 == 0 {
				routes = forum
			}
			m := makeLog(r, 180, of)
			log, plain := m.log, m.log
			if seed%3 == 0 {
				log = zip(t, log)
			}
			if seed%9 == 3 { // and cut off
				log = log[:len(log)*2/3]
				z, err := gzip.NewReader(bytes.NewReader(log))
				if err != nil {
					t.Fatal(err)
				}
				if plain, err = io.ReadAll(z); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
			}
			compare(t, r, log, recounted(plain, muxed(t, routes)), routes)
		})
	}
}

func compare(t *testing.T, r *rand.Rand, log []byte, want *recount, routes []route.Route) {
	t.Helper()
	actions := []string{"reply", "like", "read"}
	if routes == nil {
		actions = []string{route.All}
	}
	max, period := 1+r.IntN(6), time.Duration(1+r.IntN(600))*time.Second
	capacity, every := 1+r.IntN(6), time.Duration(1+r.IntN(60))*time.Second
	window, funnel := core.SlidingWindow(max, period), core.Funnel(capacity, core.Every(every))
	got, err := replay(context.Background(), bytes.NewReader(log), trial.Options{
		Routes:     routes,
		Candidates: []trial.Candidate{{Limits: []core.Limit{window}}, {Action: actions[0], Limits: []core.Limit{funnel}}},
		ShowUsers:  true,
		Line:       line.Options{Unit: "ns"}, // that of slog
	})
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]bool{}
	for _, of := range want.users {
		for u := range of {
			users[u] = true
		}
	}
	skipped, left := sums(got)
	if a, b := [...]int{int(got.Lines), int(skipped), int(left.Late + left.Long), int(got.Unrouted), int(got.Requests), got.Users},
		[...]int{want.lines, want.skipped, want.late, want.left, want.requests, len(users)}; a != b {
		t.Errorf("lines, skipped, late, left out, requests, users are %v, want %v", a, b)
	}
	if got.From.UnixMicro() != want.from || got.To.UnixMicro() != want.to {
		t.Errorf("from %v to %v, want %v to %v", got.From, got.To, time.UnixMicro(want.from).UTC(), time.UnixMicro(want.to).UTC())
	}
	if len(got.Limits) != len(actions)+1 {
		t.Fatalf("%d rows of limits, want %d", len(got.Limits), len(actions)+1)
	}
	for i, row := range got.Limits {
		pass := sliding(max, period.Microseconds())
		if i == len(actions) {
			pass = leaking(capacity, every.Microseconds())
		}
		sameLimit(t, row, want.users[row.Action], pass)
	}
	sameFit(t, got, want)
}

func sameLimit(t *testing.T, got report.Limit, users map[string][]int64, pass rule) {
	t.Helper()
	want, requests := judge(users, pass), 0
	for _, times := range users {
		requests += len(times)
	}
	hours := int64(0)
	for _, day := range got.Hours {
		for _, n := range day {
			hours += n
		}
	}
	if a, b := [...]int{int(got.Requests), int(got.Refused), got.Users, got.UsersRefused, int(hours)},
		[...]int{requests, want.refused, len(users), want.touched, want.refused}; a != b {
		t.Errorf("%s %s: requests, refused, users, users refused, refused by hour are %v, want %v", got.Action, got.Text, a, b)
	}
	if got.LongestWait.Microseconds() != want.longest {
		t.Errorf("%s %s: the longest wait is %s, want %d µs", got.Action, got.Text, got.LongestWait, want.longest)
	}
	for _, u := range got.Most {
		if int(u.Refused) != want.by[u.Name] {
			t.Errorf("%s %s: %s was refused %d times, want %d", got.Action, got.Text, u.Name, u.Refused, want.by[u.Name])
		}
	}
	if len(got.Most) != min(10, want.touched) {
		t.Errorf("%s %s: %d users are listed, of %d", got.Action, got.Text, len(got.Most), want.touched)
	}
}

// The fit is the least number that a naive replay finds by trying.
func sameFit(t *testing.T, got *report.Report, want *recount) {
	t.Helper()
	for _, a := range got.Actions {
		users := want.users[a.Name]
		check := func(what any, got fit.Least, of func(n int) rule) {
			t.Helper()
			n := len(users)
			least := fit.Least{Nobody: leastNumber(users, 0, of), PerMille: leastNumber(users, n/1000, of), Percent: leastNumber(users, n/100, of)}
			if got != least {
				t.Errorf("%s %v: the fit is %v, want %v", a.Name, what, got, least)
			}
		}
		for _, w := range a.Windows {
			check(w.Period, w.Max, func(n int) rule { return sliding(n, w.Period.Microseconds()) })
			if last := w.Curve[len(w.Curve)-1]; last != (fit.Point{Max: w.Max.Nobody}) {
				t.Errorf("%s %s: the curve ends with %v", a.Name, w.Period, last)
			}
			for _, p := range w.Curve {
				if touched := judge(users, sliding(p.Max, w.Period.Microseconds())).touched; p.Share != float64(touched)/float64(a.Users) {
					t.Errorf("%s %s: max %d touches %g of %d users, want %d", a.Name, w.Period, p.Max, p.Share, a.Users, touched)
				}
			}
		}
		for _, f := range a.Funnels {
			n, d := map[core.Rate]int64{core.Every(time.Second): 1, core.Per(30, time.Minute): 2, core.Per(10, time.Minute): 6, core.Every(time.Minute): 60}[f.Rate], int64(1_000_000)
			check(f.Rate, f.Capacity, func(c int) rule { return leaking(c, n*d) })
		}
		if len(a.Windows) != 4 || len(a.Funnels) != 4 {
			t.Errorf("%s has %d windows and %d funnels", a.Name, len(a.Windows), len(a.Funnels))
		}
	}
}
