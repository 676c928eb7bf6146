package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// The routes match as an http.ServeMux does, whatever their order.
func TestRoutesMatchAsAServeMux(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.SampledFrom([]string{"a", "b", "{x}", "%41"})
		text := rapid.SampledFrom([]string{"a", "b", "A", "d", "", ".", "..", "%61", "%2e", ".a", "%zz", "a%", "%6"})
		end := rapid.SampledFrom([]string{"", "", "/", "/{$}", "/{rest...}"})
		var given []Route
		mux := http.NewServeMux()
		for i := range 12 {
			pattern := rapid.SampledFrom([]string{"", "GET ", "HEAD ", "POST "}).Draw(t, "method")
			for j, s := range rapid.SliceOfN(segment, 0, 3).Draw(t, "segments") {
				if s == "{x}" {
					s = fmt.Sprintf("{x%d}", j)
				}
				pattern += "/" + s
			}
			if pattern += end.Draw(t, "end"); strings.HasSuffix(pattern, " ") || pattern == "" {
				pattern += "/"
			}
			if register(mux, pattern) != nil { // it conflicts
				continue
			}
			given = append(given, Route{pattern, fmt.Sprint(i)})
		}
		if len(given) == 0 {
			return
		}
		mux = http.NewServeMux()
		paths := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(text, 0, 4), func(s []string) string { return "/" + strings.Join(s, "/") }), 5, 5).Draw(t, "paths")
		for _, g := range given {
			mux.HandleFunc(g.Pattern, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Action", g.Action) })
			_, path, _ := cutMethod(g.Pattern)
			paths = append(paths, wildcard.ReplaceAllStringFunc(path, func(string) string { return text.Draw(t, "wildcard") }))
		}
		for range 4 {
			given = rapid.Permutation(given).Draw(t, "order")
			r, actions, err := newRoutes(given)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 4 * len(paths) {
				method, path := []string{"GET", "HEAD", "POST", "PUT"}[i%4], paths[i/4]
				w := httptest.NewRecorder()
				if _, err := url.ParseRequestURI(path); err == nil { // else net/http answers 400
					mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
				}
				got := ""
				if i := r.action([]byte(method), []byte(path)); i != noAction {
					got = actions[i]
				}
				if want := w.Header().Get("Action"); got != want {
					t.Fatalf("%v: %s %s is %q, want %q", given, method, path, got, want)
				}
			}
		}
	})
}

// naive are the peaks by looking at every pair of actions.
func naive(at []int64, cost []uint32) (p peaks) {
	for i := range at {
		for k, span := range fitPeriods {
			sum := int64(0)
			for j := range i + 1 {
				if at[j] > at[i]-span {
					sum += int64(cost[j])
				}
			}
			p.window[k] = max(p.window[k], sum)
		}
	}
	for k, rate := range fitRates {
		level, last := int64(0), int64(0)
		for i := range at {
			level = max(0, level-(at[i]-last)) + int64(cost[i])*rate.emission
			last = at[i]
			p.funnel[k] = max(p.funnel[k], (level+rate.emission-1)/rate.emission)
		}
	}
	return p
}

// A member's peaks are exact, whatever the distances, and also if it is swept in between.
func TestPeaksAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &shard{members: make([]member, 2)}
		m := &s.members[1]
		var at []int64
		var costs []uint32
		now := int64(1_700_000_000) * second
		step := rapid.SampledFrom([]int64{0, 0, 1, 999, 1000, second, 59*second + 999_999, 60 * second, 60*second + 1, 600 * second, hour, day - 1, day, day + 1, 3 * day})
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			now += step.Draw(t, "step") + rapid.Int64Range(0, 2).Draw(t, "more")
			cost := uint32(rapid.SampledFrom([]int{1, 1, 1, 2, 7, 0, 3000}).Draw(t, "cost"))
			at, costs = append(at, now), append(costs, cost)
			m.act(now, cost)
			if rapid.IntRange(0, 5).Draw(t, "sweep") == 0 {
				s.swept = 0
				s.sweep(now)
			}
			if want := naive(at, costs); m.peaks != want {
				t.Fatalf("after %d actions the peaks are %v, want %v", len(at), m.peaks, want)
			}
		}
	})
}

// The peaks of the highest costs are exact too.
func TestHighPeaksAreExact(t *testing.T) {
	var m member
	const n = int64(1000)
	for i := range n {
		m.act(day+i*second, maxCost)
	}
	want := peaks{[nPeriods]int64{60 * maxCost, 600 * maxCost, n * maxCost, n * maxCost}, [nRates]int64{}}
	for i, rate := range fitRates {
		want.funnel[i] = n*maxCost - (n-1)*second/rate.emission
	}
	if m.peaks != want {
		t.Errorf("%v, want %v", m.peaks, want)
	}
}

func TestASweepDropsThePast(t *testing.T) {
	s := &shard{members: make([]member, 2)}
	m := &s.members[1]
	m.act(day, 1)
	m.act(day+second, 1)
	if s.sweep(2*day + second - 1); m.recent == nil {
		t.Error("it let go a microsecond early")
	}
	if s.sweep(3*day + second); m.recent != nil || m.once != 0 || m.window != [nPeriods]int64{2, 2, 2, 2} {
		t.Errorf("%+v is left", m)
	}
}

// A funnel that is still not empty after a day is not forgotten.
func TestALongDebtOutlivesTheDay(t *testing.T) {
	for name, before := range map[string][]int64{"once": {0}, "twice": {-1, 0}} {
		s := &shard{members: make([]member, 2)}
		m := &s.members[1]
		for _, at := range before {
			m.act(day+at, 3000)
		}
		s.sweep(2 * day)
		m.act(2*day, 1)
		m.act(2*day, 3000)
		if got, want := m.funnel[nRates-1], int64(len(before)*3000-1440+3001); got != want {
			t.Errorf("%s: the funnel of 1/m needs %d, want %d", name, got, want)
		}
	}
}

// A run lets go of users who are gone for a day.
func TestARunSweeps(t *testing.T) {
	var log strings.Builder
	for _, at := range []string{"01T08:00:00", "01T08:00:01", "03T08:00:00"} {
		fmt.Fprintf(&log, `{"time":"2026-11-%sZ","method":"GET","path":"/","remote_addr":"10.0.0.1"}`+"\n", at)
	}
	p := newPipeline(Options{}, nil, []string{AllActions})
	if err := p.run(t.Context(), strings.NewReader(log.String())); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.shards {
		for i := range s.members[1:] {
			if m := &s.members[1+i]; m.recent != nil {
				t.Errorf("%+v is kept", m.recent)
			}
		}
	}
}

// The queue stays short if a user never stops.
func TestQueueIsCompacted(t *testing.T) {
	var m member
	for i := range int64(300_000) { // 3.5 days
		for range 3 {
			m.act(1_000_000*second+i*second, 1)
		}
	}
	if n := cap(m.recent.queue); n > 700_000 || m.window[3] != 3*86_400 {
		t.Errorf("the queue takes %d bytes; the peaks are %v", n, m.peaks)
	}
}

func TestInstants(t *testing.T) {
	at := func(s string) int64 {
		u, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return u.UnixMicro()
	}
	for text, want := range map[string]int64{
		"10/Oct/2000:13:55:36 -0700": at("2000-10-10T13:55:36-07:00"),
		"29/Feb/2024:23:59:59 +0530": at("2024-02-29T23:59:59+05:30"),
		"29/Feb/2023:23:59:59 +0530": -1, "29/Feb/2100:00:00:00 +0000": -1, "31/Apr/2024:00:00:00 +0000": -1,
		"00/Oct/2000:13:55:36 -0700": -1, "10/Okt/2000:13:55:36 -0700": -1, "10/Oct/2000:13:60:36 -0700": -1,
		"10/Oct/2000:13:55:36 0700": -1, "10/Oct/2000:13:55:36": -1, "1a/Oct/2000:13:55:36 -0700": -1, "10/Oct/1960:13:55:36 -0700": -1,
		"2026-11-22T08:00:00Z":                at("2026-11-22T08:00:00Z"),
		"2026-11-22T08:00:00.1234567+08:00":   at("2026-11-22T00:00:00.123456Z"),
		"2026-11-22 08:00:00,5+0800":          at("2026-11-22T00:00:00.5Z"),
		"2026-11-22T08:00:00.Z":               -1,
		"2026-11-22T08:00:00":                 -1,
		"2026-13-22T08:00:00Z":                -1,
		"2026-11-22T08:00:00.999999999-00:30": at("2026-11-22T08:30:00.999999Z"),
		"1795334400":                          1795334400 * second,
		"1795334400.1234567":                  1795334400*second + 123456,
		"1.7953344005e+09":                    1795334400*second + 500_000,
		"1795334400123":                       1795334400*second + 123_000,
		"1795334400123456":                    1795334400*second + 123_456,
		"1795334400123456789":                 -1, // 19 digits are no number of ours
		"179533440012345678":                  179533440012345678 / 1000,
		"-1":                                  -1, "1.": -1, ".5": -1, "1e99": -1, "": -1, "x": -1, "NaN": -1, "1e": -1,
		"99999999999": -1, // the year 5138
	} {
		got, ok := anyInstant([]byte(text))
		if !ok {
			got.at = -1
		}
		if got.at != want {
			t.Errorf("%q is %d, want %d", text, got.at, want)
		}
	}
}

// Every day from 1970 to 2199 has the instant that package time gives it.
func TestUnixIsThatOfPackageTime(t *testing.T) {
	for d := time.Unix(0, 0).UTC(); d.Year() < 2200; d = d.AddDate(0, 0, 1) {
		y, m, day := d.Date()
		if got, ok := unix(int64(y), int(m), day, 1, 2, 3); !ok || got != d.Unix()+3723 {
			t.Fatalf("%v is %d, %t", d, got, ok)
		}
	}
}

func TestDurations(t *testing.T) {
	tests := []struct {
		text        string
		unit, whole unit
		want        int64
	}{
		{"0.123", unitSecond, 0, 123_000}, {"12", unitSecond, 0, 12 * second}, {"12", unitMilli, 0, 12_000}, {"1.5", unitMilli, 0, 1500},
		{"1500", unitNano, 0, 1}, {"1.5", unitMicro, 0, 1}, {"12.5ms", unitGuess, unitNano, 12_500}, {"1m", unitSecond, 0, 60 * second},
		{"2000", unitGuess, unitNano, 2}, {"2000", unitGuess, unitSecond, 2000 * second}, {"0.5", unitGuess, unitNano, 500_000},
		{"5", unitNone, unitNano, 0}, {"", unitSecond, 0, 0}, {"-", unitSecond, 0, 0}, {"-1.5", unitSecond, 0, 0}, {"-5ms", unitSecond, 0, 0},
		{"x", unitSecond, 0, 0}, {"999999999999999999", unitSecond, 0, 0},
	}
	for _, test := range tests {
		if got := duration([]byte(test.text), test.unit, test.whole); got != test.want {
			t.Errorf("%q in %d is %d µs, want %d", test.text, test.unit, got, test.want)
		}
	}
}

func TestAddresses(t *testing.T) {
	known := new(addresses)
	for text, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "203.0.113.9:4711": "203.0.113.9", "2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "::ffff:203.0.113.9": "203.0.113.9", "fe80::1%eth0": "fe80::/64",
		"client.example.org": "client.example.org", "-": "", "": "", "203.0.113.256": "203.0.113.256", "203.0.113.09": "203.0.113.09",
		"203.0.113.9.": "203.0.113.9.", "unix:": "unix:", "203.0.113.9:": "203.0.113.9:", "203.0.113": "203.0.113",
	} {
		for range 2 { // the second time it is known
			if got := string(known.canonical([]byte(text))); got != want {
				t.Errorf("%q is the user %q, want %q", text, got, want)
			}
		}
	}
	for i := range 2 * knownAddresses {
		known.canonical(fmt.Appendf(nil, "2001:db8::%x", i))
	}
	if len(known.known) > knownAddresses {
		t.Errorf("%d addresses are remembered", len(known.known))
	}
}

func TestCombinedLines(t *testing.T) {
	const at = `[22/Nov/2026:08:00:00 +0000]`
	for line, want := range map[string]string{ // address, authuser, method, path
		`203.0.113.9 - ann ` + at + ` "GET /a?b HTTP/1.1" 200 5`:                            "203.0.113.9 ann GET /a",
		`203.0.113.9 - ann b [c] ` + at + ` "GET /a HTTP/1.1" 200 - "-" "x" 0.1`:            "203.0.113.9 ann b [c] GET /a",
		`203.0.113.9 id - ` + at + ` "GET http://h:80/a?b HTTP/1.1" 200 5`:                  "203.0.113.9  GET /a",
		`203.0.113.9 - "" ` + at + ` "GET http://h?b HTTP/1.1" 200 5`:                       "203.0.113.9  GET /",
		`example.org:80 203.0.113.9 - ann ` + at + ` "POST /\" HTTP/1.1" 200 5 "-"`:         `203.0.113.9 ann POST /\"`,
		`host.example.org - - ` + at + ` "OPTIONS * HTTP/1.1" 200 5`:                        "host.example.org  OPTIONS *",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1" 200`:                                  "",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1" 20 5`:                                 "",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1" 200 x`:                                "",
		`203.0.113.9 - - ` + at + ` "GET /a" 200 5`:                                         "",
		`203.0.113.9 - - ` + at + ` "GET /a b HTTP/1.1" 200 5`:                              "",
		`203.0.113.9 - - ` + at + ` "GET  HTTP/1.1" 200 5`:                                  "",
		`203.0.113.9 - - ` + at + ` "G(T /a HTTP/1.1" 200 5`:                                "",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1\" 200 5`:                               "",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1\\" 200 5`:                              "203.0.113.9  GET /a",
		`203.0.113.9 - ` + at + ` "GET /a HTTP/1.1" 200 5`:                                  "",
		`203.0.113.9 - - 22/Nov/2026:08:00:00 +0000 "GET /a HTTP/1.1" 200 5`:                "",
		` - - ` + at + ` "GET /a HTTP/1.1" 200 5`:                                           "",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000]`:                                      "",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "`:                                    "",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\x00\xff":  "",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5 ` + "\x00\xff": "203.0.113.9  GET /",
	} {
		by := func(p combined) (r request, ok bool) {
			p.addresses = new(addresses)
			ok = p.parse([]byte(line), &r)
			return r, ok
		}
		address, ok := by(combined{user: fromAddress, id: fromAuth})
		user, also := by(combined{user: fromAuth})
		got := ""
		if ok {
			got = fmt.Sprintf("%s %s %s %s", address.user, user.user, address.method, address.path)
		}
		if got != want || ok != also {
			t.Errorf("%s\nis %q, want %q", line, got, want)
		}
		if r, ok := by(combined{}); ok != also || len(r.user) > 0 || len(r.id) > 0 {
			t.Errorf("%s\nnames the user %q and the id %q", line, r.user, r.id)
		}
		if string(address.id) != string(user.user) {
			t.Errorf("%s\nhas the id %q, want %q", line, address.id, user.user)
		}
	}
}

// The fields after the request have numbers, whatever comes before it.
func TestCombinedFieldsHaveNumbers(t *testing.T) {
	for tail, want := range map[string][]string{ // fields 6 to 11
		`200 5`:                              {"200", "5", "", "", "", ""},
		`200 5 "" "curl" "u 7" 0.25`:         {"200", "5", "", "curl", "u 7", "0.25"},
		`200 - "-" "a \" b" u7 "-"`:          {"200", "", "", `a \" b`, "u7", ""},
		`304 - "-" "a\\" "u7"`:               {"304", "", "", `a\\`, "u7", ""},
		`304 5 "-" "open `:                   {"304", "5", "", "", "", ""},
		`304 5 "x" "y" ` + "\xff z":          {"304", "5", "x", "y", "\xff", "z"},
		`304 5 "https://[::1]/" "x"  u7 end`: {"304", "5", "https://[::1]/", "x", "", "u7"},
	} {
		for _, front := range []string{`203.0.113.9 - ann `, `example.org:80 203.0.113.9 - ann b [c] `} {
			line := front + `[22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" ` + tail
			var got []string
			for n := range want {
				var r request
				p := combined{user: originOf(fmt.Sprint(userField, 6+n)), addresses: new(addresses)}
				if !p.parse([]byte(line), &r) {
					t.Fatalf("%s is no request", line)
				}
				got = append(got, string(r.user))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s\nhas %q, want %q", line, got, want)
			}
		}
	}
	for _, user := range []string{"field:-1", "field:0", "field:2", "field:4", "field:5", "field:uid", "field:99999999999999999999"} {
		var r request
		p := combined{user: originOf(user), addresses: new(addresses)}
		if !p.parse([]byte(`203.0.113.9 - ann [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5`), &r) || len(r.user) > 0 {
			t.Errorf("%s names the user %q", user, r.user)
		}
	}
}

func jsonParser(f Fields, user string) *jsonLines {
	return &jsonLines{root: tree(f, user, ""), values: values{byAddress: user == UserAddress, addresses: new(addresses)}}
}

func TestJSONLines(t *testing.T) {
	tests := []struct {
		name   string
		fields Fields
		user   string
		line   string
		want   string // micros, user, method, path, cost
	}{
		{"Caddy", Fields{}, UserAddress, `{"ts":100.5,"duration":0.25,"request":{"remote_ip":"10.0.0.1","client_ip":"10.0.0.2","method":"GET","uri":"/a?b"}}`, "100250000 10.0.0.2 GET /a 1"},
		{"a Caddy user", Fields{}, UserAuth, `{"ts":100.5,"user_id":"ann","request":{"method":"GET","uri":"/a?b"}}`, "100500000 ann GET /a 1"},
		{"Caddy with a whole duration", Fields{}, UserAddress, `{"ts":100,"duration":2,"request":{"remote_ip":"10.0.0.1","method":"GET","uri":"/"}}`, "98000000 10.0.0.1 GET / 1"},
		{"nginx", Fields{}, UserAddress, `{"time_iso8601":"1970-01-01T00:01:40+00:00","remote_addr":"10.0.0.1","request":"GET /a HTTP/1.1","request_time":"0.250"}`, "99750000 10.0.0.1 GET /a 1"},
		{"nginx, apart", Fields{}, UserAuth, `{"time_local":"01/Jan/1970:00:01:40 +0000","remote_user":"-","request_method":"GET","request_uri":"/a","uri":"/index"}`, "100000000  GET /a 1"},
		{"Envoy", Fields{}, UserAddress, `{"start_time":"1970-01-01T00:01:40.500Z","duration":250,"method":"GET","path":"/a","downstream_remote_address":"10.0.0.1:80"}`, "100500000 10.0.0.1 GET /a 1"},
		{"slog", Fields{}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","duration":250000000,"method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100250000 10.0.0.1 GET /a 1"},
		{"a duration in words", Fields{}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","duration":"250ms","method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100250000 10.0.0.1 GET /a 1"},
		{"its unit in its name", Fields{Duration: "took_ms"}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","took_ms":250,"duration":9,"method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100250000 10.0.0.1 GET /a 1"},
		{"no duration", Fields{Duration: "-"}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","duration":250,"method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100500000 10.0.0.1 GET /a 1"},
		{"a user in a field", Fields{}, "field:a.b", `{"a":{"b":7},"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 7 GET / 1"},
		{"a name with a dot", Fields{}, "field:a.b", `{"a.b":"x","time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 1"},
		{"escapes", Fields{}, "field:ä", `{"\u00e4":"\ud83d\ude00\n\"\/\ud800x","time":"1970-01-01T00:01:40Z","method":"GET","path":"\/a"}`, "100000000 \U0001f600\n\"/\ufffdx GET /a 1"},
		{"null is none", Fields{}, "field:u", `{"u":null,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000  GET / 1"},
		{"an object is none", Fields{}, "field:u", `{"u":{"x":1},"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000  GET / 1"},
		{"a cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":3,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 3"},
		{"no cost", Fields{Cost: "n"}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 1"},
		{"a cost of 0", Fields{Cost: "n"}, "field:u", `{"u":"x","n":0,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 0"},
		{"a negative cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":-1,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, ""},
		{"a broken cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":1.5,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, ""},
		{"a huge cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":1000000001,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, ""},
		{"a start before 1970", Fields{}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","duration":"1h","method":"GET","path":"/"}`, ""},
		{"no method", Fields{}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","path":"/"}`, ""},
		{"no time", Fields{}, "field:u", `{"u":"x","method":"GET","path":"/"}`, ""},
		{"two objects", Fields{}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}{}`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var r request
			got := ""
			if jsonParser(test.fields, test.user).parse([]byte(test.line), &r) {
				got = fmt.Sprintf("%d %s %s %s %d", r.at, r.user, r.method, r.path, r.cost)
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

const nginxMain = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time`

func TestLogFormat(t *testing.T) {
	const tail = ` 200 5 "-" "x" 0.250`
	tests := []struct {
		name, format string
		fields       Fields
		user         string
		line, want   string // micros, user, id, method, path, cost
	}{
		{"nginx", nginxMain, Fields{}, UserAddress, `10.0.0.1 - ann [01/Jan/1970:00:01:40 +0000] "GET /a?b HTTP/1.1"` + tail, "99750000 10.0.0.1 ann GET /a 1"},
		{"no id", nginxMain, Fields{}, UserAddress, `2001:db8::1 - - [01/Jan/1970:00:01:40 +0000] "GET /a?b HTTP/1.1"` + tail, "99750000 2001:db8::/64  GET /a 1"},
		{"Apache escapes a quote", nginxMain, Fields{}, UserAddress, `10.0.0.1 - - [01/Jan/1970:00:01:40 +0000] "GET /\" HTTP/1.1"` + tail, `99750000 10.0.0.1  GET /\" 1`},
		{"text is missing", nginxMain, Fields{}, UserAddress, `10.0.0.1 - [01/Jan/1970:00:01:40 +0000] "GET / HTTP/1.1"` + tail, ""},
		{"no request", nginxMain, Fields{}, UserAddress, `10.0.0.1 - - [01/Jan/1970:00:01:40 +0000] "-"` + tail, ""},
		{"no duration", nginxMain, Fields{}, UserAddress, `10.0.0.1 - - [01/Jan/1970:00:01:40 +0000] "GET / HTTP/1.1" 200 5 "-" "x" -`, "100000000 10.0.0.1  GET / 1"},
		{"a header", `[$msec] ${remote_addr}"$request_method $request_uri" uid=$http_x_user_id;`, Fields{}, "field:http_x_user_id", `[100.5] 10.0.0.1"GET /a" uid=u 7;`, "100500000 u 7  GET /a 1"},
		{"more than the format has", `[$msec] ${remote_addr}"$request_method $request_uri" uid=$http_x_user_id;`, Fields{}, "field:http_x_user_id", `[100.5] 10.0.0.1"GET /a" uid=u; x`, ""},
		{"fields are given", `$at $who $request_method $uri $n`, Fields{Time: "at", Address: "who", Cost: "n"}, UserAddress, `1970-01-01T00:01:40Z 10.0.0.1:80 PUT /a 7`, "100000000 10.0.0.1  PUT /a 7"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			id := ""
			if test.user == UserAddress {
				id = UserAuth
			}
			p, err := newLogFormat(&Options{Format: test.format, Fields: test.fields, User: test.user, IDs: id}, values{byAddress: test.user == UserAddress, addresses: new(addresses)})
			if err != nil {
				t.Fatal(err)
			}
			var r request
			got := ""
			if p.parse([]byte(test.line), &r) {
				got = fmt.Sprintf("%d %s %s %s %s %d", r.at, r.user, r.id, r.method, r.path, r.cost)
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// The scanner takes what encoding/json takes, and reads the same from it.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"time":"2026-11-22T08:00:00Z","method":"GET","path":"/","user":{"name":"x\u00e4\ud83d\ude00"}}`, `{"user":{"name":-1.5e+3},"a":[1,{"b":[]},"c"]}`,
		`{"user":{"name":"a"},"user":{"name":"b"}}`, `{}`, `{"user":{"name":"\ud800\u0041"}} `, `{"a":01}`, `{"a":"\x"}`, `{"a":tru}`, `{"a":1,}`, `{"user.name":"q"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := jsonParser(Fields{}, "field:user.name")
		var r request
		p.b, p.i = []byte(s), 0
		p.space()
		ok := p.object(p.root, 0)
		if p.space(); ok && p.i != len(s) {
			ok = false
		}
		start := strings.TrimLeft(s, " \t\r\n")
		want := strings.HasPrefix(start, "{") && json.Valid([]byte(s))
		if ok != want {
			if !ok && strings.Count(s, "{")+strings.Count(s, "[") > maxDepth {
				return // deeper than the scanner goes
			}
			t.Fatalf("%q: %t, want %t", s, ok, want)
		}
		if !ok {
			return
		}
		p.who(&r)
		var o struct{ User struct{ Name *string } }
		d := json.NewDecoder(strings.NewReader(s))
		if strings.Contains(s, ".") || strings.Count(strings.ToLower(s), "user") != 1 || strings.Count(strings.ToLower(s), "name") != 1 || d.Decode(&o) != nil ||
			o.User.Name == nil || *o.User.Name == "-" || !strings.Contains(s, `"user"`) || !strings.Contains(s, `"name"`) {
			return
		}
		if got := strings.ToValidUTF8(string(r.user), "\ufffd"); got != strings.ToValidUTF8(*o.User.Name, "\ufffd") && !strings.Contains(got, "\ufffd") {
			t.Errorf("%q: the user is %q, want %q", s, got, *o.User.Name)
		}
	})
}

// Neither parser allocates for a line.
func TestParsersDoNotAllocate(t *testing.T) {
	c := combined{user: fromAddress, id: fromAuth, addresses: new(addresses)}
	n, err := newLogFormat(&Options{Format: nginxMain, User: UserAddress, IDs: UserAuth}, values{byAddress: true, addresses: new(addresses)})
	if err != nil {
		t.Fatal(err)
	}
	j := jsonParser(Fields{}, UserAddress)
	routes, _, err := newRoutes([]Route{{"POST /posts/{id}/replies", "reply"}, {"GET /{$}", "read"}})
	if err != nil {
		t.Fatal(err)
	}
	for line, parse := range map[string]func([]byte, *request) bool{
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "POST /posts/1/replies HTTP/1.1" 200 5 "-" "x"`:                                                                       c.parse,
		`2001:db8::7 - - [22/Nov/2026:08:00:01 +0000] "POST /posts/1/replies HTTP/1.1" 200 5 "-" "x"`:                                                                       c.parse,
		`{"time":"2026-11-22T08:00:00.123Z","duration":123,"method":"POST","path":"/posts/1/replies","remote_addr":"203.0.113.9:5","x":[1,2,{"y":null}],"z":"\"\u00e4"}`:    j.parse,
		`{"ts":1795334400.25,"duration":0.5,"request":{"remote_ip":"2001:db8::1","method":"POST","uri":"/posts/1\/replies","headers":{"Accept":["*/*"]}},"user_id":"x\ty"}`: j.parse,
		`203.0.113.9 - ann [22/Nov/2026:08:00:00 +0000] "POST /posts/1/replies HTTP/1.1" 200 5 "-" "x" 0.250`:                                                               n.parse,
	} {
		b := []byte(line)
		var r request
		allocs := testing.AllocsPerRun(100, func() {
			if !parse(b, &r) || routes.action(r.method, r.path) != 0 {
				t.Fatal(line)
			}
		})
		if allocs != 0 {
			t.Errorf("%g allocations for %s", allocs, line)
		}
	}
}

// Actions come out in order of time, those of one instant as they went in.
func TestWaitingIsReleasedInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type action struct {
			at int64
			n  uint32
		}
		var w waiting
		var in, out []action
		do := func(m uint32, at int64, cost uint32) {
			if m != cost {
				t.Fatalf("%d comes with the cost of %d", m, cost)
			}
			out = append(out, action{at, m})
		}
		newest := int64(1_700_000_000) * second
		for i := range uint32(rapid.IntRange(1, 300).Draw(t, "actions")) {
			newest += rapid.SampledFrom([]int64{0, 1, second, 600 * second, hour, 5000 * second, 100 * day}).Draw(t, "step")
			at := newest - rapid.SampledFrom([]int64{0, 0, 1, 999_999, second, 3599 * second, hour}).Draw(t, "back")
			w.release((newest-hour)/second, do)
			w.add(i, at, i)
			in = append(in, action{at, i})
		}
		w.release(w.oldest+ring, do)
		slices.SortStableFunc(in, func(a, b action) int { return cmp.Compare(a.at, b.at) })
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("%v, want %v", out, in)
		}
		if n := len(w.space); n > 1 {
			t.Fatalf("%d chunks for 300 actions", n)
		}
	})
}

// Blocks have whole lines, and what is too long is left out and counted.
func TestBlocks(t *testing.T) {
	long := bytes.Repeat([]byte{'x'}, blockSize)
	tests := []struct {
		name  string
		lines [][]byte
		end   bool // the last line has its newline
		long  int64
	}{
		{"empty", nil, true, 0},
		{"one line without its newline", [][]byte{[]byte("a")}, false, 0},
		{"more than a block", slices.Repeat([][]byte{long[:1000]}, 3000), true, 0},
		{"the longest that fits", [][]byte{long[:blockSize-1], []byte("a")}, true, 0},
		{"one byte longer", [][]byte{long, []byte("a")}, true, 1},
		{"much longer, in the middle", [][]byte{[]byte("a"), slices.Concat(long, long, long, long[:7]), []byte("b")}, false, 1},
		{"two", [][]byte{append(long, 'x'), slices.Concat(long, long)}, true, 2},
		{"at the end", [][]byte{[]byte("a"), slices.Concat(long, long)}, false, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			log := bytes.Join(test.lines, []byte{'\n'})
			if test.end && len(log) > 0 {
				log = append(log, '\n')
			}
			var want []byte
			for i, l := range test.lines {
				if len(l) < blockSize {
					want = append(want, l...)
					if i < len(test.lines)-1 || test.end {
						want = append(want, '\n')
					}
				}
			}
			for _, r := range []interface {
				Read([]byte) (int, error)
			}{bytes.NewReader(log), &dribble{log}} {
				s := newSource(r)
				var got []byte
				buf := make([]byte, blockSize)
				for {
					text, err := s.next(t.Context(), buf)
					if err != nil {
						t.Fatal(err)
					}
					if len(text) == 0 {
						break
					}
					got = append(got, text...)
				}
				if !bytes.Equal(got, want) || s.long != test.long {
					t.Errorf("%d bytes and %d long lines, want %d and %d", len(got), s.long, len(want), test.long)
				}
			}
		})
	}
}

// dribble gives a few bytes at a time.
type dribble struct{ rest []byte }

func (d *dribble) Read(b []byte) (int, error) {
	n := copy(b[:min(len(b), 4999)], d.rest)
	d.rest = d.rest[n:]
	if n == 0 {
		return bytes.NewReader(nil).Read(b)
	}
	return n, nil
}
