package line

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// No line stops a Reader, and what it reads as a request has all that one needs.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`203.0.113.9, 10.0.0.1 - ann b [22/Nov/2026:08:00:00 +0000] "GET /a b HTTP/1.1" 200 5 "-" "x" "1.2.3.4"`,
		`<190>1 2026-03-02T09:00:03Z h nginx 1 - [x a="\]"] [2001:db8::1]:80 - - [2026-03-02T09:00:03Z] "x" "GET / HTTP/1.1" 200`,
		"<190>Mar  2 09:00:03 h nginx[1]: 1.2.3.4 - - [22/Nov/2026:08:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
		"2026-03-02T09:00:03.5Z stdout P x\n2026-03-02T09:00:03Z stdout F {\"method\":\"GET\",\"path\":\"/\"}",
		`{"log":"1.2.3.4 - - [22/Nov/2026:08:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n","time":"2026-03-02T09:00:03Z"}`,
		`{"time":"09:00:03","date":"2026-03-02","remote_addr":"-","xff":["for=\"[2001:db8::1]:80\";x"],"a":-,"b":0.1, 0.2,"request":"\x22GET","duration":1e99}`,
		`time=2026-03-02T09:00:03Z method=GET path="/\x" user="\u1" a="\"`,
		"#Fields: date time c-ip cs-method cs-uri-stem time-taken\n2026-03-02 09:00:03 1.2.3.4 GET / 12",
		`12:access.log:at=info method=GET path="/\"" fwd=1.2.3.4 time="Mon Mar  2 09:00:03 2026"`,
		`h2 2026-03-02T09:00:03Z lb 1.2.3.4:5 10.0.0.1:80 0 0 0 200 200 1 1 "GET https://h:443/ HTTP/2.0" "x" - -`,
		`{"time":"1970-01-01 00:00:03","remote_addr":"1.2.3.4","request":"GET / HTTP/1.1","request_time":1.000}`,
		`1.2.3.4 - - [1970-01-01 08:00:00] "GET / HTTP/1.1" 200 5`,
		"Tue 2026-03-02 09:00:03 UTC h x[1]: web-1  | [pod/a/b] [ 1.5] x: [1700000000] \"GET / HTTP/1.1\"",
	} {
		f.Add(s)
	}
	var readers []*Reader
	for _, o := range []Options{{}, {User: "field:x", Zone: time.FixedZone("", 8*3600)}, {Zone: time.FixedZone("", -8*3600), Format: `[$time_local] $remote_addr {$date} "$request" $rest`}} {
		w, err := New(o)
		if err != nil {
			f.Fatal(err)
		}
		readers = append(readers, w)
	}
	f.Fuzz(func(t *testing.T, log string) {
		for _, w := range readers {
			w.Learn([]byte(log))
			for text := range bytes.Lines([]byte(log)) {
				var r Request
				if w.Read(bytes.TrimSuffix(text, []byte{'\n'}), &r) == IsRequest && (len(r.Method) == 0 || len(r.Path) == 0 || r.At > r.End || !r.ok() || r.End >= lastInstant) {
					t.Fatalf("%q is the request %+v", text, r)
				}
			}
			w.Open()
		}
	})
}

// A long line takes milliseconds, whatever it is made of: no loop goes over the rest of it again and again.
func TestALongLineIsReadInTime(t *testing.T) {
	const length = 1 << 19
	pieces := []string{"[pod/ ", "a | ", "x: ", " [", `" "`, `"\" `, ", ", "a=b ", `"a":1,`, `{"a":`, `\u0041`, "1.2.3.4,", "2001:db8::", "[Mon Mar  2 09:00:03 2026x] "}
	pieces = append(pieces, strings.Split("\t !\"#$%&'()*+,-./1:;<=>?@[\\]^_a{|}~", "")...)
	for _, head := range []string{"", `{"log":"`} {
		for _, tail := range []string{"", `"}`, ` [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x" 1.2.3.4`} {
			for _, piece := range pieces {
				w, err := New(Options{})
				if err != nil {
					t.Fatal(err)
				}
				log := []byte(head + strings.Repeat(piece, length/len(piece)) + tail)
				begun := time.Now()
				w.Read(log, new(Request))
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("%q, %q again and again, %q: %s", head, piece, tail, took)
				}
			}
		}
	}
}

// A header that is not that of the line before costs as much as its names, and not as all that can be looked for: a
// log of headers only is read in no time.
func TestHeadersAreCheap(t *testing.T) {
	r, err := New(Options{Format: "w3c"})
	if err != nil {
		t.Fatal(err)
	}
	headers := [][]byte{[]byte("#Fields: date time c-ip"), []byte("#Fields: time date c-ip")}
	n := 0
	allocs := testing.AllocsPerRun(100, func() {
		var q Request
		r.Read(headers[n%2], &q)
		n++
	})
	if allocs > 10 {
		t.Errorf("%g allocations for a header", allocs)
	}
}

// Neither parser allocates for a line.
func TestParsersDoNotAllocate(t *testing.T) {
	c := combined{user: fromAddress, id: fromAuth, addresses: new(addresses)}
	n, err := newLogFormat(&Options{User: UserAddress, IDs: UserAuth}, nginxMain, new(addresses))
	if err != nil {
		t.Fatal(err)
	}
	j := jsonParser(Fields{}, UserAddress)
	for line, parse := range map[string]func([]byte, *Request) Outcome{
		`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "POST /posts/1/replies HTTP/1.1" 200 5 "-" "x"`:                                                                       c.parse,
		`2001:db8::7 - - [22/Nov/2026:08:00:01 +0000] "POST /posts/1/replies HTTP/1.1" 200 5 "-" "x"`:                                                                       c.parse,
		`{"time":"2026-11-22T08:00:00.123Z","duration":123,"method":"POST","path":"/posts/1/replies","remote_addr":"203.0.113.9:5","x":[1,2,{"y":null}],"z":"\"\u00e4"}`:    j.parse,
		`{"ts":1795334400.25,"duration":0.5,"request":{"remote_ip":"2001:db8::1","method":"POST","uri":"/posts/1\/replies","headers":{"Accept":["*/*"]}},"user_id":"x\ty"}`: j.parse,
		`203.0.113.9 - ann [22/Nov/2026:08:00:00 +0000] "POST /posts/1/replies HTTP/1.1" 200 5 "-" "x" 0.250`:                                                               n.parse,
	} {
		b := []byte(line)
		var r Request
		allocs := testing.AllocsPerRun(100, func() {
			if parse(b, &r) != IsRequest {
				t.Fatal(line)
			}
		})
		if allocs != 0 {
			t.Errorf("%g allocations for %s", allocs, line)
		}
	}
}
