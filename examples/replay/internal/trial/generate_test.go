package trial_test

// Logs for the tests: seeded, in every format.

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A hit is a request that a generator writes.
type hit struct {
	at           time.Time // the start
	took         time.Duration
	address      string
	user         string
	method, path string
}

// writers write a line in each format. The time they write is that which the server would.
var writers = map[string]func(hit) string{
	"common": func(h hit) string {
		return fmt.Sprintf(`%s - %s [%s] "%s %s HTTP/1.1" 200 2326`, h.address, h.user, h.at.Format("02/Jan/2006:15:04:05 -0700"), h.method, h.path)
	},
	"combined": func(h hit) string {
		return fmt.Sprintf(`%s - %s [%s] "%s %s HTTP/2.0" 304 - "https://example.org/\"x" "Mozilla/5.0 (X11; [Linux])"`, h.address, h.user, h.at.Format("02/Jan/2006:15:04:05 -0700"), h.method, h.path)
	},
	"nginx": func(h hit) string {
		end := h.at.Add(h.took).UnixMilli()
		return fmt.Sprintf(`{"msec":"%d.%03d","remote_addr":"%s","remote_user":"%s","request":"%s %s HTTP/1.1","status":"200","request_time":"%d.%03d","agent":"x\\\"y\u00e4"}`,
			end/1000, end%1000, h.address, h.user, h.method, h.path, h.took.Milliseconds()/1000, h.took.Milliseconds()%1000)
	},
	"caddy": func(h hit) string {
		end := h.at.Add(h.took).UnixMicro()
		return fmt.Sprintf(`{"level":"info","ts":%d.%06d,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"%s","remote_port":"4711","proto":"HTTP/2.0","method":"%s","host":"example.org","uri":"%s","headers":{"User-Agent":["curl/8"],"Accept":["*/*"]},"tls":{"resumed":false}},"user_id":"%s","duration":%d.%09d,"size":12,"status":200}`,
			end/1e6, end%1e6, h.address, h.method, h.path, h.user, h.took/time.Second, h.took%time.Second)
	},
	"envoy": func(h hit) string {
		address := h.address + ":50000"
		if strings.Contains(h.address, ":") {
			address = "[" + h.address + "]:50000"
		}
		return fmt.Sprintf(`{"start_time":"%s","method":"%s","path":"%s","protocol":"HTTP/1.1","response_code":200,"duration":%d,"downstream_remote_address":"%s"}`,
			h.at.UTC().Format("2006-01-02T15:04:05.000Z"), h.method, h.path, h.took.Milliseconds(), address)
	},
	"slog": func(h hit) string {
		return fmt.Sprintf(`{"time":"%s","level":"INFO","msg":"request","method":"%s","path":"%s","remote_addr":"%s","user":"%s","duration":%d}`,
			h.at.Add(h.took).Format("2006-01-02T15:04:05.000000000Z07:00"), h.method, h.path, h.address, h.user, h.took)
	},
}

// garbage are lines that are no request in any format.
var garbage = []string{
	"", " ", "\t", "-", "{", "}", "{}", "[]", "null", `{"time":"2026-11-22T08:00:00Z","level":"INFO","msg":"started"}`,
	`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "-" 400 0`,
	`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "\x16\x03\x01" 400 157`,
	`203.0.113.9 - - [32/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 1`,
	`203.0.113.9 - - [22/Nov/2026:24:00:00 +0000] "GET / HTTP/1.1" 200 1`,
	`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1`,
	`203.0.113.9 - - [22/Nov/2026:08:00:00`,
	`{"ts":1e999,"request":{"method":"GET","uri":"/"}}`,
	`{"ts":1795334400.5,"request":{"method":"GET","uri":"/","remote_ip":"203.0.113.9"}`,
	`{"start_time":"yesterday","method":"GET","path":"/"}`,
	"\x00\x01\x02\xff\xfe\x1f\x8b binary \x00", "\xef\xbb\xbf", strings.Repeat("long ", 10_000), strings.Repeat("[", 5000), `{"a":` + strings.Repeat("[", 5000),
}

// A made log, and the addresses that no report may show.
type made struct {
	log       []byte
	addresses []string
}

// makeLog makes a log of about n lines over some hours, one in three of a few busy users, out of order
// by up to an hour and sometimes more.
func makeLog(r *rand.Rand, n int, formats []string) made {
	start := time.Date(2026, 11, 21, 22, 0, 0, 0, time.FixedZone("", 8*3600))
	users := 5 + r.IntN(60)
	addresses := make([]string, users)
	for i := range addresses {
		switch i % 4 {
		case 0:
			addresses[i] = fmt.Sprintf("2001:db8:%x::%x", i, r.IntN(9)+1)
		default:
			addresses[i] = fmt.Sprintf("203.0.113.%d", i)
		}
	}
	var log bytes.Buffer
	clock := start
	for range n {
		u := r.IntN(users)
		if r.IntN(3) == 0 {
			u = r.IntN(3)
		}
		clock = clock.Add(time.Duration(r.IntN(40_000)) * time.Millisecond)
		h := hit{at: clock, took: time.Duration(r.IntN(2_000_000)) * time.Microsecond, address: addresses[u], user: fmt.Sprintf("user%d", u), method: "GET", path: "/"}
		switch r.IntN(5) {
		case 0:
			h.method, h.path = "POST", fmt.Sprintf("/posts/%d/replies", r.IntN(50))
		case 1:
			h.method, h.path = "POST", fmt.Sprintf("/posts/%d/likes?from=%d", r.IntN(50), r.IntN(50))
		case 2:
			h.path = "/posts/%37?q=%20"
		}
		if r.IntN(9) == 0 {
			h.path = "/about"
		}
		switch r.IntN(40) {
		case 0:
			h.at = h.at.Add(-time.Duration(r.IntN(3700)) * time.Second)
		case 1:
			h.at = h.at.Add(-time.Hour)
		case 2:
			h.at = h.at.Add(-3 * time.Hour)
		case 3, 4, 5, 6, 7, 8, 9:
			h.at = h.at.Add(-time.Duration(r.IntN(20)) * time.Second)
		}
		switch r.IntN(60) {
		case 0:
			clock = clock.Add(time.Duration(r.IntN(100)) * time.Minute)
		case 1:
			if r.IntN(5) == 0 {
				clock = clock.Add(time.Duration(r.IntN(40)) * time.Hour)
			}
		}
		for range 1 + r.IntN(2)*r.IntN(12) { // bursts
			log.WriteString(writers[formats[r.IntN(len(formats))]](h))
			log.WriteString([]string{"\n", "\r\n"}[r.IntN(2)])
			h.at = h.at.Add(time.Duration(r.IntN(1500)) * time.Millisecond)
		}
		if r.IntN(20) == 0 {
			log.WriteString(garbage[r.IntN(len(garbage))] + "\n")
		}
	}
	if r.IntN(2) == 0 {
		log.Truncate(log.Len() - 1)
	}
	return made{log.Bytes(), addresses}
}

func zip(t testing.TB, log []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(log); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
