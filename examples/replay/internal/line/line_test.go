package line

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

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
		"10/Oct/2000:13:55:36 0700": -1, "10/Oct/2000:13:55:36": at("2000-10-10T13:55:36Z"), "10/Oct/2000 13:55:36": at("2000-10-10T13:55:36Z"),
		"10/Oct/2000:13:55:36.125": at("2000-10-10T13:55:36.125Z"), "1a/Oct/2000:13:55:36 -0700": -1, "10/Oct/1960:13:55:36 -0700": -1,
		"2026-11-22T08:00:00Z":                at("2026-11-22T08:00:00Z"),
		"2026-11-22T08:00:00.1234567+08:00":   at("2026-11-22T00:00:00.123456Z"),
		"2026-11-22 08:00:00,5+0800":          at("2026-11-22T00:00:00.5Z"),
		"2026-11-22T08:00:00.Z":               -1,
		"2026-11-22T08:00:00":                 at("2026-11-22T08:00:00Z"),
		"2026/11/22 08:00:00.5":               at("2026-11-22T08:00:00.5Z"),
		"2026-11-22 08:00:00 UTC":             at("2026-11-22T08:00:00Z"),
		"2026-11-22 08:00:00.5 +0800 CST":     at("2026-11-22T00:00:00.5Z"),
		"Sun, 22 Nov 2026 08:00:00 GMT":       at("2026-11-22T08:00:00Z"),
		"Sun Nov 22 08:00:00 2026":            at("2026-11-22T08:00:00Z"),
		"2026-13-22T08:00:00Z":                -1,
		"2026-11-22T08:00:00.999999999-00:30": at("2026-11-22T08:30:00.999999Z"),
		"1795334400":                          1795334400 * second,
		"1795334400.1234567":                  1795334400*second + 123456,
		"1.7953344005e+09":                    1795334400*second + 500_000,
		"1795334400123":                       1795334400*second + 123_000,
		"1795334400123456":                    1795334400*second + 123_456,
		"1795334400123456789":                 1795334400123456,
		"9795334400123456789":                 -1,
		"179533440012345678":                  179533440012345678 / 1000,
		"-1":                                  -1, "1.": -1, ".5": -1, "1e99": -1, "": -1, "x": -1, "NaN": -1, "1e": -1,
		"99999999999": -1, // the year 5138
	} {
		got, ok := anyInstant([]byte(text))
		if !ok {
			got.At = -1
		}
		if got.At != want {
			t.Errorf("%q is %d, want %d", text, got.At, want)
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
	const unknown = -1
	for _, test := range []struct {
		text string
		unit unit
		want int64
	}{
		{"0.123", unitSecond, 123_000}, {"12", unitSecond, 12 * second}, {"12", unitMilli, 12_000}, {"1.5", unitMilli, 1500},
		{"1500", unitNano, 1}, {"1.5", unitMicro, 1}, {"12.5ms", unitUnknown, 12_500}, {"1m", unitSecond, 60 * second},
		{"2000", unitUnknown, unknown}, {"0.5", unitUnknown, unknown}, {"0", unitUnknown, 0}, {"0.000", unitUnknown, 0},
		{"0.5", unitNginx, 500_000}, {"5", unitNginx, unknown},
		{"5", unitNone, 0}, {"", unitSecond, 0}, {"-", unitSecond, 0}, {"-1.5", unitSecond, 0}, {"-5ms", unitSecond, 0},
		{"x", unitSecond, 0}, {"999999999999999999", unitSecond, 0},
	} {
		got, known := duration([]byte(test.text), test.unit)
		if !known {
			got = unknown
		}
		if got != test.want {
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
			if got := string(known.user([]byte(text))); got != want {
				t.Errorf("%q is the user %q, want %q", text, got, want)
			}
		}
	}
	for i := range 2 * knownAddresses {
		known.user(fmt.Appendf(nil, "2001:db8::%x", i))
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
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1" 200`:                                  "203.0.113.9  GET /a",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1" 20 5`:                                 "203.0.113.9  GET /a",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1" 200 x`:                                "203.0.113.9  GET /a",
		`203.0.113.9 - - ` + at + ` "GET /a" 200 5`:                                         "203.0.113.9  GET /a",
		`203.0.113.9 - - ` + at + ` "GET /a b HTTP/1.1" 200 5`:                              "203.0.113.9  GET /a b",
		`203.0.113.9 - - ` + at + ` "GET  HTTP/1.1" 200 5`:                                  "",
		`203.0.113.9 - - ` + at + ` "G(T /a HTTP/1.1" 200 5`:                                "",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1\" 200 5`:                               "",
		`203.0.113.9 - - ` + at + ` "GET /a HTTP/1.1\\" 200 5`:                              "203.0.113.9  GET /a",
		`203.0.113.9 - ` + at + ` "GET /a HTTP/1.1" 200 5`:                                  "203.0.113.9  GET /a",
		`203.0.113.9 - - 22/Nov/2026:08:00:00 +0000 "GET /a HTTP/1.1" 200 5`:                "",
		` - - ` + at + ` "GET /a HTTP/1.1" 200 5`:                                           "  GET /a",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000]`:                                      "",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "`:                                    "",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\x00\xff":  "203.0.113.9  GET /",
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5 ` + "\x00\xff": "203.0.113.9  GET /",
	} {
		by := func(p combined) (r Request, ok bool) {
			p.addresses = new(addresses)
			ok = p.parse([]byte(line), &r) == IsRequest
			return r, ok
		}
		address, ok := by(combined{user: fromAddress, id: fromAuth})
		user, also := by(combined{user: fromAuth})
		got := ""
		if ok {
			got = fmt.Sprintf("%s %s %s %s", address.User, user.User, address.Method, address.Path)
		}
		if got != want || ok != also {
			t.Errorf("%s\nis %q, want %q", line, got, want)
		}
		if r, ok := by(combined{}); ok != also || len(r.User) > 0 || len(r.ID) > 0 {
			t.Errorf("%s\nnames the user %q and the id %q", line, r.User, r.ID)
		}
		if string(address.ID) != string(user.User) {
			t.Errorf("%s\nhas the id %q, want %q", line, address.ID, user.User)
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
				var r Request
				p := combined{user: originOf(fmt.Sprint(userField, 6+n)), addresses: new(addresses)}
				if p.parse([]byte(line), &r) != IsRequest {
					t.Fatalf("%s is no request", line)
				}
				got = append(got, string(r.User))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s\nhas %q, want %q", line, got, want)
			}
		}
	}
	for _, user := range []string{"field:-1", "field:0", "field:2", "field:4", "field:5", "field:uid", "field:99999999999999999999"} {
		var r Request
		p := combined{user: originOf(user), addresses: new(addresses)}
		if p.parse([]byte(`203.0.113.9 - ann [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5`), &r) != IsRequest || len(r.User) > 0 {
			t.Errorf("%s names the user %q", user, r.User)
		}
	}
}

func TestLinesWithNumbers(t *testing.T) {
	for sample, want := range map[string]bool{
		"1:a\n2:b\n7:c\n": true, "     1\ta\n     2\tb\n": true,
		"/var/log/access_log:3:2001:db8::1 a\n/var/log/access_log:4:2001:db8::1 b\n": true,
		"a.log:3:a\na.log:4:b\nb.log:1:c\n":                                          true, "a.example:80:a\nb.example:80:b\na.example:80:c\n": false,
		"2:a\n1:b\n": false, "a\nb\n": false, "": false,
		"203.0.113.9:3 a\n": false, "203.0.113.9:3: a\n": false, "2001:1:1::1 a\n2001:2:2::1 b\n": false,
		"[2001:1:1::1]:80 a\n": false, "face:1::1 a\nface:2::1 b\nface:3::1 c\n": false,
		"2026-03-02T09:10:03Z a\n2026-03-02T09:11:03Z b\n2026-03-02T09:12:03Z c\n": false,
		`{"n":1:"x"}`: false, "t=09:10:03 a\n": false, "[02/Mar/2026:09:10:03 +0000] a\n": false,
	} {
		if got := numbered([]byte(sample)); got != want {
			t.Errorf("%q: %t, want %t", sample, got, want)
		}
	}
}

func jsonParser(f Fields, user string) *jsonLines {
	p, _ := newJSONLines(&Options{Fields: f, User: user}, new(addresses))
	return p.(*jsonLines)
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
		{"Caddy with a whole duration, of what it is told", Fields{}, UserAddress, `{"ts":100,"duration":2,"request":{"remote_ip":"10.0.0.1","method":"GET","uri":"/"}}`, "100000000 10.0.0.1 GET / 1"},
		{"nginx", Fields{}, UserAddress, `{"time_iso8601":"1970-01-01T00:01:40+00:00","remote_addr":"10.0.0.1","request":"GET /a HTTP/1.1","request_time":"0.250"}`, "99750000 10.0.0.1 GET /a 1"},
		{"nginx, apart", Fields{}, UserAuth, `{"time_local":"01/Jan/1970:00:01:40 +0000","remote_user":"-","request_method":"GET","request_uri":"/a","uri":"/index"}`, "100000000  GET /a 1"},
		{"Envoy", Fields{}, UserAddress, `{"start_time":"1970-01-01T00:01:40.500Z","duration":250,"method":"GET","path":"/a","downstream_remote_address":"10.0.0.1:80"}`, "100500000 10.0.0.1 GET /a 1"},
		{"slog, with a duration without a unit", Fields{}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","duration":250000000,"method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100500000 10.0.0.1 GET /a 1"},
		{"a duration in words", Fields{}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","duration":"250ms","method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100250000 10.0.0.1 GET /a 1"},
		{"its unit in its name", Fields{Duration: "took_ms"}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","took_ms":250,"duration":9,"method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100250000 10.0.0.1 GET /a 1"},
		{"no duration", Fields{Duration: "-"}, UserAddress, `{"time":"1970-01-01T00:01:40.5Z","duration":250,"method":"GET","path":"/a","remote_addr":"10.0.0.1:80"}`, "100500000 10.0.0.1 GET /a 1"},
		{"a user in a field", Fields{}, "field:a.b", `{"a":{"b":7},"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 7 GET / 1"},
		{"a name with a dot", Fields{}, "field:a.b", `{"a.b":"x","time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 1"},
		{"escapes", Fields{}, "field:ä", `{"\u00e4":"\ud83d\ude00\n\"\/\ud800x","time":"1970-01-01T00:01:40Z","method":"GET","path":"\/a"}`, "100000000 \U0001f600\n\"/\ufffdx GET /a 1"},
		{"the quote cuts an escape", Fields{}, "field:xu1", `{"\xu1":"a\u12","time":"1970-01-01T00:01:40Z","method":"GET","path":"/\x"}`, "100000000 au12 GET /x 1"},
		{"the quote cuts the escape of a name", Fields{}, "field:ax", `{"a\x":"a","time":"1970-01-01T00:01:40Z","method":"GET","path":"/\u"}`, "100000000 a GET /u 1"},
		{"null is none", Fields{}, "field:u", `{"u":null,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000  GET / 1"},
		{"an object is none", Fields{}, "field:u", `{"u":{"x":1},"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000  GET / 1"},
		{"a cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":3,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 3"},
		{"no cost", Fields{Cost: "n"}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 1"},
		{"a cost of 0", Fields{Cost: "n"}, "field:u", `{"u":"x","n":0,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, "100000000 x GET / 0"},
		{"a negative cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":-1,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, ""},
		{"a broken cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":1.5,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, ""},
		{"a huge cost", Fields{Cost: "n"}, "field:u", `{"u":"x","n":1000000001,"time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}`, ""},
		{"a start before 1970", Fields{}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","duration":"1h","method":"GET","path":"/"}`, "100000000 x GET / 1"},
		{"no method", Fields{}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","path":"/"}`, ""},
		{"no time", Fields{}, "field:u", `{"u":"x","method":"GET","path":"/"}`, ""},
		{"two objects", Fields{}, "field:u", `{"u":"x","time":"1970-01-01T00:01:40Z","method":"GET","path":"/"}{}`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var r Request
			got := ""
			if jsonParser(test.fields, test.user).parse([]byte(test.line), &r) == IsRequest {
				got = fmt.Sprintf("%d %s %s %s %d", r.At, r.User, r.Method, r.Path, r.Cost)
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
		{"a padded duration", `$msec $duration_ms $remote_addr $code $request_method $request_uri`, Fields{}, UserAddress, `100.5    250 10.0.0.1 HIT/200 GET /a`, "100250000 10.0.0.1  GET /a 1"},
		{"fields are given", `$at $who $request_method $uri $n`, Fields{Time: "at", Address: "who", Cost: "n"}, UserAddress, `1970-01-01T00:01:40Z 10.0.0.1:80 PUT /a 7`, "100000000 10.0.0.1  PUT /a 7"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			id := ""
			if test.user == UserAddress {
				id = UserAuth
			}
			p, err := newLogFormat(&Options{Fields: test.fields, User: test.user, IDs: id}, test.format, new(addresses))
			if err != nil {
				t.Fatal(err)
			}
			var r Request
			got := ""
			if p.parse([]byte(test.line), &r) == IsRequest {
				got = fmt.Sprintf("%d %s %s %s %s %d", r.At, r.User, r.ID, r.Method, r.Path, r.Cost)
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
		`{"\x":`, `{"user":{"name":"\u12"}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := jsonParser(Fields{}, "field:user.name")
		var r Request
		p.b, p.i, p.escape = []byte(s), 0, -1
		p.space()
		ok := p.object(p.root, 0)
		if p.space(); ok && p.i != len(s) {
			ok = false
		}
		start := strings.TrimLeft(s, " \t\r\n")
		want := strings.HasPrefix(start, "{") && json.Valid([]byte(s))
		if want && !ok && strings.Count(s, "{")+strings.Count(s, "[") <= maxDepth {
			t.Fatalf("%q: it is not read", s)
		}
		if !want {
			return // what is broken may be read too
		}
		if !ok {
			return // it is deeper than the scanner goes
		}
		p.who(&r)
		var o struct{ User struct{ Name *string } }
		d := json.NewDecoder(strings.NewReader(s))
		if strings.Contains(s, ".") || strings.Count(strings.ToLower(s), "user") != 1 || strings.Count(strings.ToLower(s), "name") != 1 || d.Decode(&o) != nil ||
			o.User.Name == nil || *o.User.Name == "-" || !strings.Contains(s, `"user"`) || !strings.Contains(s, `"name"`) {
			return
		}
		if got := strings.ToValidUTF8(string(r.User), "\ufffd"); got != strings.ToValidUTF8(*o.User.Name, "\ufffd") && !strings.Contains(got, "\ufffd") {
			t.Errorf("%q: the user is %q, want %q", s, got, *o.User.Name)
		}
	})
}
