package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The log that comes with the command gives the figures of the README, and a page that shows nobody.
func TestForum(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, bytes.Repeat([]byte("old "), 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(forum, "-limit", "reply=SlidingWindow(5, 1m)", "-limit", "like=Funnel(15, Per(30, 1m)) and FixedWindow(200, 24h)", "-html", file, "forum.log.gz")
	code, stdout, stderr := replayed(t, "", args...)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	hashed := regexp.MustCompile(`[0-9a-f]{12}`)
	if shown := hashed.ReplaceAllString(stdout, "x"); !strings.Contains(hashed.ReplaceAllString(string(readme), "x"), shown[:strings.Index(shown, "\nlike")]) {
		t.Errorf("README.md does not show\n%s", stdout)
	}
	address := regexp.MustCompile(`(203\.0\.113|198\.51\.100|192\.0\.2)\.|2001:db8`)
	for name, text := range map[string]string{"text": stdout, "page": string(page)} {
		if m := address.FindString(text); m != "" {
			t.Errorf("the %s shows %s", name, m)
		}
	}
	for _, want := range []string{"<!doctype html>", "SlidingWindow(5, 1m)", "221 (8.86%)", "<td>25</td>", "<svg", "Tue 03:00: 176 refusals", "prefers-color-scheme: dark", "</html>"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, likes, _ := strings.Cut(string(page), "<h2>like</h2>"); !strings.Contains(likes, "user ids") {
		t.Error("the page lacks the ids behind those who like")
	}
	if m := regexp.MustCompile(`(?i)https?:|src=|href=|@import|url\(|<script|ZgotmplZ|old old`).FindString(string(page)); m != "" {
		t.Errorf("the page has %q", m)
	}
	if _, stdout, _ := replayed(t, "", "-show-users", "-limit", "SlidingWindow(5, 1m)", "forum.log.gz"); !address.MatchString(stdout) {
		t.Errorf("-show-users shows nobody:\n%s", stdout)
	}
}

// Two documents of plans are compared in the text, in the object and on the page.
func TestPlans(t *testing.T) {
	dir := t.TempDir()
	from, to, file := filepath.Join(dir, "old.json"), filepath.Join(dir, "new.json"), filepath.Join(dir, "page.html")
	for name, max := range map[string]int{from: 3, to: 2} {
		document := fmt.Sprintf(`{"default": "free", "plans": {"free": {"limits": {"reply": ["SlidingWindow(%d, 1m)"], "<b>": ["Funnel(1, Every(1s))"]}}}}`, max)
		if err := os.WriteFile(name, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append(forum, "-plans", to, "-against", from, "-show-users", "-html", file)
	code, stdout, stderr := replayed(t, few, append(args, "-")...)
	const want = `
What the new plans change
  plan free, reply: SlidingWindow(3, 1m) -> SlidingWindow(2, 1m)
  Not tried, since no route has the action: <b>

plan free, reply: 4 requests by 2 users
    refused       0 before (0%), 1 after (25.0%)
    newly refused 1 request of 1 user
      most        203.0.113.1 (1)
    newly passed  none

reply: 4 requests by 2 users
`
	if code != exitOK || !strings.Contains(stdout, want) {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
	page, err := os.ReadFile(file)
	for _, want := range []string{
		"<code>plan free, reply: SlidingWindow(3, 1m) -&gt; SlidingWindow(2, 1m)</code>", "no route has the action: &lt;b&gt;",
		"<td>free, reply</td><td>4</td><td>2</td><td>0 (0%)</td><td>1 (25.0%)</td><td>1 of 1 user</td><td>none</td>", "<code>203.0.113.1</code>",
	} {
		if err != nil || !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page does not contain %s, %v", want, err)
		}
	}
	_, stdout, _ = replayed(t, few, append(args, "-json", "-")...)
	var object struct {
		Plans struct {
			Impacts []struct {
				Plan    string
				Refused struct{ Requests, Users int } `json:"newly_refused"`
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &object); err != nil || len(object.Plans.Impacts) != 1 || object.Plans.Impacts[0].Refused.Requests != 1 {
		t.Errorf("%v, %s", err, stdout)
	}
}

// A name from the log cannot write into the terminal or the page.
func TestNamesAreHarmless(t *testing.T) {
	line := `{"time":"2026-11-22T08:00:00Z","method":"GET","path":"/","user":"\u001b[2J<script>"}` + "\n"
	file := filepath.Join(t.TempDir(), "page.html")
	code, stdout, stderr := replayed(t, line+line, "-user", "authuser", "-limit", "SlidingWindow(1, 1m)", "-show-users", "-html", file, "-")
	if code != exitOK || strings.Contains(stdout, "\x1b") || !strings.Contains(stdout, `"\x1b[2J<script>" (1)`) {
		t.Errorf("exit %d, %s, %q", code, stderr, stdout)
	}
	page, err := os.ReadFile(file)
	if bytes.Contains(page, []byte("user ids")) {
		t.Error("the page has a column of user ids that are none")
	}
	if err != nil || bytes.Contains(page, []byte("<script")) || bytes.Contains(page, []byte("\x1b")) {
		t.Errorf("%v, %s", err, page)
	}
}

func TestAFailedRunLeavesNoPage(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := replayed(t, "", "-html", filepath.Join(dir, "page"), "-"); code != exitError {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("it leaves %v, %v", left, err)
	}
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("an earlier page"), 0o600); err != nil {
		t.Fatal(err)
	}
	replayed(t, "", "-html", kept, "-")
	if text, err := os.ReadFile(kept); string(text) != "an earlier page" {
		t.Errorf("the earlier page is %q, %v", text, err)
	}
}

// A refusal that no wait ends is said to be one.
func TestNever(t *testing.T) {
	line := func(cost int) string {
		return fmt.Sprintf(`{"time":"2026-11-22T08:00:00Z","method":"GET","path":"/","remote_addr":"10.0.0.1","cost":%d}`, cost) + "\n"
	}
	for _, test := range []struct{ log, want, json string }{
		{line(9) + line(9), "never", `"longest_wait": 0,` + "\n      " + `"never": 2`},
		{line(5) + line(1) + line(9), "1m; 1 never", `"longest_wait": 60,` + "\n      " + `"never": 1`},
		{line(5) + line(1), "1m", `"longest_wait": 60,` + "\n      " + `"never": 0`},
	} {
		file := filepath.Join(t.TempDir(), "page.html")
		args := []string{"-field", "cost=cost", "-limit", "SlidingWindow(5, 1m)", "-html", file, "-"}
		_, text, _ := replayed(t, test.log, args...)
		_, object, _ := replayed(t, test.log, append([]string{"-json"}, args...)...)
		page, err := os.ReadFile(file)
		if !strings.Contains(text, "longest wait  "+test.want+"\n") || !strings.Contains(string(page), "<td>"+test.want+"</td>") || !strings.Contains(object, test.json) {
			t.Errorf("want %s: %v\n%s%s", test.want, err, text, object)
		}
	}
}
