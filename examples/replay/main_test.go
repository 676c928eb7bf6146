package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// replayed runs the command.
func replayed(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := command{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	code = c.run(args)
	return code, out.String(), errs.String()
}

var forum = []string{"-route", "POST /posts/{id}/replies=reply", "-route", "POST /posts/{id}/likes=like"}

const few = `203.0.113.1 - ann [22/Nov/2026:08:00:00 +0800] "POST /posts/1/replies HTTP/1.1" 201 5
203.0.113.1 - ann [22/Nov/2026:08:00:10 +0800] "POST /posts/1/replies HTTP/1.1" 201 5
203.0.113.1 - ann [22/Nov/2026:08:00:20 +0800] "POST /posts/2/replies?x HTTP/1.1" 201 5
2001:db8::1 - - [22/Nov/2026:08:01:00 +0800] "POST /posts/1/replies HTTP/1.1" 201 5
2001:db8::2 - - [22/Nov/2026:08:01:00 +0800] "GET /posts/1 HTTP/1.1" 200 5
203.0.113.2 - - [22/Nov/2026:07:00:59 +0800] "GET /posts/1 HTTP/1.1" 200 5

`

func TestText(t *testing.T) {
	code, stdout, stderr := replayed(t, few, append(forum, "-limit", "reply=SlidingWindow(2, 1m)", "-show-users", "-")...)
	const want = `4 requests by 2 users in 7 lines.
From 2026-11-22 00:00:00 UTC to 2026-11-22 00:01:00 UTC.
Lines that are not requests: 1 (1 blank).
Left out requests that match no route: 2. The first is GET /posts/1, line 5 of -.
The log has whole seconds: all requests of a second count as one instant.

reply: 4 requests by 2 users

  SlidingWindow(2, 1m)
    refuses       1 of 4 requests (25.0%)
    touches       1 of 2 users (50.0%)
    longest wait  40s
    by hour       ········█···············  0 to 23 o'clock, UTC+08:00
    most refused  203.0.113.1 (1; 1 user id)

  The smallest max of a SlidingWindow that touches at most
                 nobody    0.1% of users    1% of users
    1m                3                3              3
    10m               3                3              3
    1h                3                3              3
    24h               3                3              3

  The smallest capacity of a Funnel that touches at most
                 nobody    0.1% of users    1% of users
    1/s               1                1              1
    30/m              1                1              1
    10/m              1                1              1
    1/m               3                3              3

  A first guess, per minute, touches none of these users. Compare the tables:
    limiter, err := core.New(store, core.SlidingWindow(3, time.Minute))

like: 0 requests by 0 users
`
	if code != exitOK || stderr != "" || stdout != want {
		t.Errorf("exit %d, %s\n%s\nwant\n%s", code, stderr, stdout, want)
	}
}

// The object has the keys that are documented, and no others.
func TestJSON(t *testing.T) {
	code, stdout, stderr := replayed(t, few, "-json", "-partial", "-limit", "SlidingWindow(2, 1m)", "-")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	var got any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	fit := func(period string, max float64) any {
		return map[string]any{"action": "all", "period": period, "max": map[string]any{"nobody": max, "0.1%": max, "1%": max}}
	}
	want := map[string]any{
		"lines": 7., "skipped": 1., "late": 1., "requests": 5., "users": 2.,
		"skipped_by_reason": map[string]any{"blank": 1.}, "long": 0., "anonymous": 0., "redirected": 0., "unrouted": 0., "lost": 1., "lost_share": 1. / 6,
		"left_out": []any{map[string]any{"action": "all", "late": 1., "long": 0., "anonymous": 0.}},
		"hints":    []any{"The log goes back in time by more than an hour once. If its parts are newest first, give the files as arguments: replay puts them in order. If one line has an instant in the future, all that follow are late: remove it."},
		"from":     "2026-11-22T00:00:00Z", "to": "2026-11-22T00:01:00Z",
		"limits": []any{map[string]any{
			"action": "all", "limit": "SlidingWindow(2, 1m)", "requests": 5., "refused": 1., "users": 2., "users_refused": 1., "longest_wait": 40., "never": 0.,
		}},
		"fit": []any{fit("1m", 3), fit("10m", 3), fit("1h", 3), fit("24h", 3)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nwant %v", stdout, want)
	}
}

func TestJSONWithoutLimitsHasAnEmptyList(t *testing.T) {
	if _, stdout, _ := replayed(t, few, "-json", "-"); !strings.Contains(stdout, `"limits": []`) {
		t.Error(stdout)
	}
}

// An error is one line, and wrong arguments have a separate exit code.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if err := errors.Join(os.WriteFile(log, []byte(few), 0o600), os.Link(log, filepath.Join(dir, "linked"))); err != nil {
		t.Fatal(err)
	}
	plansFile := filepath.Join(dir, "plans")
	if err := os.WriteFile(plansFile, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"no file", nil, exitUsage, []string{"give a log"}},
		{"standard input and a file", []string{"a", "-"}, exitUsage, []string{"- stands among the files"}},
		{"a flag after the file", []string{"-", "-json"}, exitUsage, []string{"write flags before them"}},
		{"unknown flag", []string{"-speed", "-"}, exitUsage, []string{"-speed", "replay -h lists the flags"}},
		{"unknown format", []string{"-format", "xml", "-"}, exitUsage, []string{`format "xml"`, "auto, combined, json"}},
		{"unknown user", []string{"-user", "cookie", "-"}, exitUsage, []string{`user "cookie"`, "address, authuser, field:NAME or field:NUMBER"}},
		{"a log_format without a time", []string{"-format", "$remote_addr $request", "-"}, exitUsage, []string{"the format has no time", "$time_local"}},
		{"a log_format without the user", []string{"-format", "$msec $request", "-user", "field:uid", "-"}, exitUsage, []string{"no variable for the user field:uid"}},
		{"unknown ids", []string{"-ids", "cookie", "-"}, exitUsage, []string{`ids "cookie"`, "authuser, field:NAME"}},
		{"user of an empty field", []string{"-user", "field:", "-"}, exitUsage, []string{"field:NAME"}},
		{"route without an action", []string{"-route", "POST /x", "-"}, exitUsage, []string{"PATTERN=ACTION"}},
		{"route with an empty action", []string{"-route", "POST /x=", "-"}, exitUsage, []string{"has no action"}},
		{"route that is not a pattern", []string{"-route", "POST x=y", "-"}, exitUsage, []string{`"POST x"`, "http.ServeMux"}},
		{"route with a bad wildcard", []string{"-route", "/{a}b=y", "-"}, exitUsage, []string{"http.ServeMux"}},
		{"route with a host", []string{"-route", "example.org/x=y", "-"}, exitUsage, []string{"names a host"}},
		{"route of Gin or Echo", []string{"-route", "POST /posts/:id/replies=y", "-"}, exitUsage, []string{`"POST /posts/:id/replies"`, "write {id} for :id"}},
		{"route with an empty segment", []string{"-route", "//posts=y", "-"}, exitUsage, []string{`"//posts"`, "one slash"}},
		{"routes that conflict", []string{"-route", "/a/{x}=y", "-route", "/{x}/b=z", "-"}, exitUsage, []string{"conflicts"}},
		{"limit that does not parse", []string{"-limit", "SlidingWindow(5 1m)", "-"}, exitUsage, []string{"position 17", `"," is missing`}},
		{"second limit that does not parse", []string{"-limit", "SlidingWindow(5, 1m) and five", "-"}, exitUsage, []string{`"five" is not a limit`}},
		{"limit out of bounds", []string{"-limit", "SlidingWindow(0, 1m)", "-"}, exitUsage, []string{"max 0"}},
		{"limits of one state", []string{"-limit", "SlidingWindow(5, 1m) and SlidingWindow(6, 1m)", "-"}, exitUsage, []string{"share one state", "Named"}},
		{"limit of an action, and no route", []string{"-limit", "reply=SlidingWindow(5, 1m)", "-"}, exitUsage, []string{`action "reply"`, "the action all", "'POST /reply=reply'"}},
		{"limit of no action", []string{"-route", "POST /x=like", "-limit", "reply=SlidingWindow(5, 1m)", "-"}, exitUsage, []string{`action "reply"`, "only like"}},
		{"a document to compare with nothing", []string{"-against", log, "-"}, exitUsage, []string{"-against needs -plans"}},
		{"a document that is not there", []string{"-plans", filepath.Join(dir, "none"), "-"}, exitUsage, []string{"no such file"}},
		{"field without a name", []string{"-field", "ts", "-"}, exitUsage, []string{"NAME=FIELD"}},
		{"unknown field", []string{"-field", "colour=x", "-"}, exitUsage, []string{"the names are time"}},
		{"missing file", []string{filepath.Join(dir, "none")}, exitError, []string{"no such file", "give the path"}},
		{"directory", []string{dir}, exitError, []string{"is a directory"}},
		{"page in no directory", []string{"-html", filepath.Join(dir, "no", "page"), "-"}, exitError, []string{"choose another file for -html"}},
		{"page over the log", []string{"-html", log, filepath.Join(dir, "linked")}, exitUsage, []string{"is read too", "another file for -html"}},
		{"page over the plans", []string{"-html", log, "-plans", filepath.Join(dir, "linked"), "-"}, exitUsage, []string{"is read too", "another file for -html"}},
		{"page over the other plans", []string{"-html", log, "-plans", plansFile, "-against", log, "-"}, exitUsage, []string{"is read too", "another file for -html"}},
		{"wrong format", []string{"-format", "json", "-"}, exitError, []string{"none of the 7 lines is one", "Line 1 is `203.0.113.1 - ann", "-format"}},
		{"no route matches", []string{"-route", "GET /none=x", "-"}, exitError, []string{"matches a route"}},
		{"unknown unit", []string{"-unit", "h", "-"}, exitUsage, []string{`unit "h"`, "ns, us, ms or s"}},
		{"unknown zone", []string{"-zone", "Mars", "-"}, exitUsage, []string{"zone Mars"}},
		{"nobody is named", []string{"-user", "field:user", "-"}, exitError, []string{"names a user by field:user"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := replayed(t, few, test.args...)
			if code != test.code || stdout != "" {
				t.Errorf("exit %d, want %d; stdout %q", code, test.code, stdout)
			}
			for _, want := range append(test.want, "replay: ") {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q does not contain %q", stderr, want)
				}
			}
			if strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") || strings.Count(stderr, "replay: ") != 1 {
				t.Errorf("not one line: %q", stderr)
			}
		})
	}
	if text, err := os.ReadFile(log); string(text) != few {
		t.Errorf("the log was overwritten with %d bytes; %v", len(text), err)
	}
}

func TestEmptyLogIsAnError(t *testing.T) {
	if code, _, stderr := replayed(t, "", "-"); code != exitError || !strings.Contains(stderr, "the log is empty") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestHelpIsNotAnError(t *testing.T) {
	if code, stdout, _ := replayed(t, "", "-h"); code != exitOK || stdout != usage {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

func TestATruncatedGzipIsReported(t *testing.T) {
	log, err := os.ReadFile("forum.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := replayed(t, string(log[:len(log)/2]), "-")
	if code != exitOK || !strings.Contains(stderr, "damaged or cut off") || !strings.Contains(stdout, "damaged or cut off") {
		t.Errorf("exit %d, %s%s", code, stderr, stdout)
	}
}

// failing refuses what is written.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestOutputThatFailsIsAnError(t *testing.T) {
	for _, args := range [][]string{{"-"}, {"-json", "-"}} {
		var errs strings.Builder
		c := command{stdin: strings.NewReader(few), stdout: failing{}, stderr: &errs}
		if code := c.run(args); code != exitError || !strings.Contains(errs.String(), "not printed: disk full") {
			t.Errorf("exit %d, %s", code, &errs)
		}
	}
}

func TestFieldsAreGiven(t *testing.T) {
	const line = `{"at":"1795334400","verb":"GET","req":{"target":"/x"},"ip":"203.0.113.9","client":"203.0.113.1","n":3}` + "\n"
	code, stdout, stderr := replayed(t, line, "-json", "-field", "time=at", "-field", "method=verb", "-field", "path=req.target", "-field", "address=client", "-field", "cost=n", "-limit", "SlidingWindow(2, 1m)", "-")
	if code != exitOK || !strings.Contains(stdout, `"refused": 1`) || !strings.Contains(stdout, `"0.1%": 3`) {
		t.Errorf("exit %d, %s%s", code, stderr, stdout)
	}
}

// The commands of the README for other logs: the text of a log_format, and a field by its number.
func TestOtherLogs(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const format = `$remote_addr - [$time_local] "$request" $status $request_time uid=$sent_http_x_user_id`
	if strings.Count(string(readme), format) != 2 {
		t.Errorf("README.md does not show %s", format)
	}
	for name, test := range map[string]struct {
		line string
		args []string
	}{
		"log_format": {`203.0.113.9 - [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 0.250 uid=%s`, []string{"-format", format, "-user", "field:sent_http_x_user_id"}},
		"number":     {`203.0.113.9 - - [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "Mozilla/5.0 (X11)" %s`, []string{"-user", "field:10"}},
	} {
		log := strings.Repeat(fmt.Sprintf(test.line+"\n", "alice"), 3) + fmt.Sprintf(test.line+"\n", "bob") + fmt.Sprintf(test.line+"\n", "-")
		code, stdout, stderr := replayed(t, log, append(test.args, "-show-users", "-limit", "SlidingWindow(1, 1m)", "-")...)
		for _, want := range []string{"4 requests by 2 users in 5 lines.", "name no user: 1.", "most refused  alice (2)"} {
			if code != exitOK || !strings.Contains(stdout, want) {
				t.Errorf("%s: exit %d, %s, want %q in\n%s", name, code, stderr, want, stdout)
			}
		}
	}
}

// The suggested line is Go, and core.New takes its limit.
func TestSuggestionIsGo(t *testing.T) {
	for cost, want := range map[string]string{
		"5":          "core.SlidingWindow(10, time.Minute)",
		"20000":      "core.MovingWindow(40000, time.Minute)",
		"25000000":   "core.MovingWindow(50000000, time.Minute)",
		"25000001":   "core.FixedWindow(50000002, time.Minute)",
		"500000000":  "core.FixedWindow(1000000000, time.Minute)",
		"500000001":  "",
		"1000000000": "",
	} {
		line := `{"time":"2026-11-22T08:00:00Z","method":"GET","path":"/","remote_addr":"10.0.0.1","cost":` + cost + "}\n"
		file := filepath.Join(t.TempDir(), "page.html")
		_, stdout, _ := replayed(t, line+line, "-field", "cost=cost", "-html", file, "-")
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = "No limit has a max above 1,000,000,000."
			if strings.Contains(stdout, "core.New") || !strings.Contains(stdout, want) || !strings.Contains(string(page), want) {
				t.Errorf("costs of %s:\n%s", cost, stdout)
			}
			continue
		}
		line = stdout[strings.LastIndex(stdout, "limiter, err := ")+len("limiter, err := "):]
		expr, err := parser.ParseExpr(strings.TrimSpace(line))
		if _, ok := expr.(*ast.CallExpr); err != nil || !ok || !strings.Contains(line, want) || !strings.Contains(string(page), want) {
			t.Errorf("costs of %s: %s: %v", cost, line, err)
		}
		limit, err := core.ParseLimit(strings.NewReplacer("core.", "", "time.Minute", "1m").Replace(want))
		if err == nil {
			_, err = core.New(memorystore.New(nil), limit)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// slow gives one byte a second.
type slow struct{ left int }

func (s *slow) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(700 * time.Millisecond)
	s.left--
	b[0] = 'x'
	return 1, nil
}

func TestProgressIsShownAfterASecond(t *testing.T) {
	for bytes, want := range map[int]string{1: "", 4: "\r[#######.......................] 25%, 0 MB, 0 MB/s\x1b[K"} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			p := &progress{size: 4, out: &out}
			stop := p.show()
			_, _ = io.Copy(io.Discard, p.of(&slow{bytes}))
			stop()
			if got := out.String(); !strings.HasPrefix(got, want) || want == "" && got != "" || want != "" && !strings.HasSuffix(got, "\r\x1b[K") {
				t.Errorf("%d bytes: %q, want %q first", bytes, got, want)
			}
		})
	}
}

func TestBar(t *testing.T) {
	p := &progress{size: 2e6}
	p.read.Store(3e6)
	if got, want := p.bar(2*time.Second), "["+strings.Repeat("#", 30)+"] 100%, 3 MB, 1 MB/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.size = 0
	if got, want := p.bar(2*time.Second), "3 MB, 1 MB/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
