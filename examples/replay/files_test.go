package main

// Logs in several files and parts, out of order, and with what is no text.

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

const plain = `{ip}` + rest

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wide(text string, bom bool) string {
	var b strings.Builder
	if bom {
		b.WriteString("\xff\xfe")
	}
	for _, c := range utf16.Encode([]rune(text)) {
		b.WriteByte(byte(c))
		b.WriteByte(byte(c >> 8))
	}
	return b.String()
}

// backwards has the lines of a log in reverse.
func backwards(log string) string {
	lines := strings.SplitAfter(log, "\n")
	var b strings.Builder
	for i := len(lines) - 1; i >= 0; i-- {
		b.WriteString(lines[i])
	}
	return b.String()
}

// websockets are connections that last so long, logged at their ends.
func websockets(lasted time.Duration) string {
	all := hits(march)
	for i := range all {
		all[i].at = all[i].at.Add(lasted)
	}
	first := `{"time":"2026-03-02T09:00:00+00:00","remote_addr":"203.0.113.100","request":"GET /x HTTP/1.1","request_time":0.050}` + "\n"
	later := strings.ReplaceAll(first, "09:00:00", march.Add(lasted+3*time.Minute).Format("15:04:05"))
	line := fmt.Sprintf(`{"time":"{iso}","remote_addr":"{ip}","request":"GET /socket.io/?t=1 HTTP/1.1","request_time":%.3f}`, lasted.Seconds())
	return first + write(all, line) + later
}

func TestFilesAndParts(t *testing.T) {
	log := write(hits(march), plain)
	day := func(n int) string { return write(hits(march.AddDate(0, 0, n)), plain) }
	spread := func() string { // over four hours
		all := hits(march)
		for i := range all {
			all[i].at = march.Add(time.Duration(i) * 6 * time.Minute)
		}
		return write(all, plain)
	}
	socket := []string{"-route", "GET /socket.io/=connect", "-route", "GET /x=other"}
	for name, test := range map[string]struct {
		log    string
		args   []string
		result int
		words  string
		days   int // in the report, if not one
	}{
		"gzip":                      {log: zipped(t, log)},
		"text and gzip":             {log: day(0) + zipped(t, day(1)), days: 2},
		"gzip and text":             {log: zipped(t, day(0)) + day(1), days: 2},
		"gzip in parts":             {log: zipped(t, day(0)) + zipped(t, day(1)) + zipped(t, day(2)), days: 3},
		"gzip that cuts lines":      {log: zipped(t, log[:1001]) + zipped(t, log[1001:])},
		"parts newest first":        {log: zipped(t, day(2)) + zipped(t, day(1)) + zipped(t, day(0)), result: lost, words: "goes back in time by more than an hour 2 times.*newest first"},
		"lines newest first":        {log: backwards(spread()), result: lost, words: "newest first.*tac"},
		"a line in the future":      {log: strings.ReplaceAll(plainLine(march.AddDate(1, 0, 0)), "203.0.113.7", "203.0.113.1") + day(0), result: lost, words: "instant in the future"},
		"a byte order mark":         {log: "\xef\xbb\xbf" + log},
		"a mark in each part":       {log: "\xef\xbb\xbf" + day(0) + zipped(t, "\xef\xbb\xbf"+day(1)), days: 2},
		"zero bytes of a rotation":  {log: strings.Repeat("\x00", 3<<20) + log},
		"zero bytes in the middle":  {log: log[:len(log)/2] + strings.Repeat("\x00", 5000) + log[len(log)/2:]},
		"UTF-16":                    {log: wide(log, true), result: refused, words: "UTF-16.*iconv"},
		"UTF-16 without a mark":     {log: wide(log, false), result: refused, words: "UTF-16.*iconv"},
		"zstd":                      {log: "\x28\xb5\x2f\xfdabc", result: refused, words: "zstd -dc"},
		"xz":                        {log: "\xfd7zXZ\x00abc", result: refused, words: "xz -dc"},
		"connections of 5 minutes":  {log: websockets(5 * time.Minute), args: socket},
		"connections of 59 minutes": {log: websockets(56 * time.Minute), args: socket},
		"connections of 2 hours":    {log: websockets(2 * time.Hour), args: socket, result: lost, words: `lasted for more than an hour: 42 \(connect 42\).*-field duration=-`},
		"their ends":                {log: websockets(2 * time.Hour), args: append([]string{"-field", "duration=-"}, socket...)},
		"a tenth is broken":         {log: log + strings.Repeat("x\n", 4), result: told, words: "8.70% of the requests may be lost: 4.*\n.*Lost lines, in a format that is not known: 4, the first is line 43 of -"},
		"more than that":            {log: log + strings.Repeat("x\n", 5), result: lost, words: "the first is line 43 of -(.*\n)*.*11% of them all, may be lost"},
		"more, which is fine":       {log: log + strings.Repeat("x\n", 5), args: []string{"-partial"}, result: told, words: "may be lost: 5"},
		"blank lines are none":      {log: strings.ReplaceAll(log, "\n", "\r\n\r\n")},
		"grep -n in two files":      {log: write(hits(march), `a.log:{n}:{ip6}`+rest) + write(hits(march.AddDate(0, 0, 1)), `b.log:{n}:{ip6}`+rest), days: 2, result: told, words: "number in front"},
		"a user named like a time":  {log: strings.Replace(log, " - - ", " - a [10/Oct/2027:13:55:36 +0000] b ", 1)},
		"and like a request":        {log: strings.Replace(log, " - - ", ` - a [10/Oct/2027:13:55:36 +0000] \"GET / HTTP/1.1\" `, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome(t, test.log, test.args, test.result, test.words, func(f facts, _ []string) {
				days := max(1, test.days)
				users := 12
				if test.args != nil && test.args[0] != "-partial" {
					users = 13 // with that of the other route
				}
				if test.result < lost && (f.Users != users || f.Requests != 42*days+2*(users-12) || f.Fit[0].Max.Nobody != 9 || f.Late+f.Long != 0) {
					t.Errorf("%d requests by %d users, at most %d a minute, %d lost", f.Requests, f.Users, f.Fit[0].Max.Nobody, f.Lost)
				}
			})
		})
	}
}

func plainLine(at time.Time) string { return write([]hit{{at, 7}}, plain) }

// Several files are one log: parts of it in any order, and those of several servers at once, with what each has
// in front.
func TestSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var servers [2]strings.Builder
	for i := range 30_000 { // two days, of more than a block for each server
		servers[i%2].WriteString(write([]hit{{march.Add(time.Duration(i) * 6 * time.Second), i % 12}}, plain))
	}
	marked := func(name string, start time.Time) string {
		return file(name, "\xef\xbb\xbf#Fields: date time c-ip cs-method cs-uri-stem\n"+write(hits(start), "{date} {clock} {ip} GET /posts/1"))
	}
	for name, test := range map[string]struct {
		files    []string
		requests int
		max      int
	}{
		"parts newest first": {[]string{
			file("access.log", write(hits(march.AddDate(0, 0, 2)), plain)),
			file("access.log.1", write(hits(march.AddDate(0, 0, 1)), plain)),
			file("access.log.2.gz", zipped(t, write(hits(march), plain))),
		}, 126, 9},
		"two servers":         {[]string{file("web1.log", servers[0].String()), file("web2.log", servers[1].String())}, 30_000, 1},
		"two W3C logs":        {[]string{file("a.log", headers["IIS"]+write(hits(march), `{date} {clock} 10.0.0.5 GET /posts/1 a=b 443 - {ip} curl/8 - 200 0 0 812`)), file("b.log", headers["CloudFront"]+write(hits(march.AddDate(0, 0, -1)), `{date}	{clock}	FRA2	612	{ip}	GET	d1.cloudfront.net	/posts/1	200	-	curl/8	a=b	-	Hit	id==	h	https	23	0.001	-`))}, 84, 9},
		"W3C logs with marks": {[]string{marked("m.log", march), marked("n.log", march.AddDate(0, 0, -1))}, 84, 9},
		"one that is empty":   {[]string{file("empty.log", ""), file("full.log", write(hits(march), plain))}, 42, 9},
		"the same log twice":  {[]string{file("c.log", write(hits(march), plain)), file("d.log", write(hits(march), plain))}, 84, 18},
	} {
		code, stdout, stderr := replayed(t, "", append([]string{"-json"}, test.files...)...)
		for _, want := range []string{fmt.Sprintf(`"requests": %d,`, test.requests), fmt.Sprintf(`"nobody": %d,`, test.max), `"users": 12,`, `"lost": 0,`} {
			if code != exitOK || !strings.Contains(stdout, want) {
				t.Errorf("%s: exit %d, %s, want %s in\n%s", name, code, stderr, want, stdout)
			}
		}
	}
	if _, stdout, _ := replayed(t, "", file("bad.log", "x\n"+write(hits(march), plain)), file("e.log", write(hits(march), plain))); !strings.Contains(stdout, "the first is line 1 of "+filepath.Join(dir, "bad.log")) {
		t.Errorf("it does not name the file of the lost line:\n%s", stdout)
	}
}
