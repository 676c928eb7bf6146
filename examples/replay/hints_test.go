package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// logOf is a log of each user's requests of a path in an hour, at a constant pace.
func logOf(all map[string]map[string]int) string {
	var log strings.Builder
	for second := range 3600 {
		for user, paths := range all {
			for path, n := range paths {
				if n*(second+1)/3600 > n*second/3600 {
					fmt.Fprintf(&log, "%s - - [%s] \"GET %s HTTP/1.1\" 200 5\n", user, march.Add(time.Duration(second)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), path)
				}
			}
		}
	}
	return log.String()
}

// A hint names what makes the numbers those of nobody, and a log that looks alike and is right has none.
func TestHints(t *testing.T) {
	clients := func(network string, paths map[string]int) map[string]map[string]int {
		all := map[string]map[string]int{}
		for i := range 40 {
			all[fmt.Sprintf(network, i)] = paths
		}
		return all
	}
	with := func(all map[string]map[string]int, user string, paths map[string]int) map[string]map[string]int {
		all[user] = paths
		return all
	}
	posts := map[string]int{"/posts/1": 13}
	const probed = "Health checks such as `GET /healthz` set the smallest max that touches nobody: in 1h it is 720 with the users who do nothing else, and 13 without them."
	for _, c := range []struct {
		name string
		log  map[string]map[string]int
		args []string
		want string // "" is neither hint
	}{
		{"a prober", with(clients("203.0.113.%d", posts), "198.51.100.9", map[string]int{"/healthz": 720}), nil, probed},
		{"a prober of an action", with(clients("203.0.113.%d", posts), "198.51.100.9", map[string]int{"/healthz": 720}), []string{"-route", "/=all"}, probed},
		{"a prober whom no route matches", with(clients("203.0.113.%d", posts), "198.51.100.9", map[string]int{"/healthz": 720}), []string{"-route", "/posts/{id}=all"}, ""},
		{"a prober who does less than others", with(clients("203.0.113.%d", posts), "198.51.100.9", map[string]int{"/healthz": 4}), nil, ""},
		{"a user who does much, and health checks too", with(clients("203.0.113.%d", posts), "198.51.100.9", map[string]int{"/healthz": 10, "/posts/1": 720}), nil, ""},
		{"nobody but probers", clients("203.0.113.%d", map[string]int{"/readyz": 60}), nil, ""},
		{"cut addresses", clients("203.0.%d.0", posts), nil, "are cut"},
		{"cut addresses of both kinds", with(clients("203.0.%d.0", posts), "2001:db8:7::", posts), nil, "are cut"},
		{"cut addresses of IPv6", clients("2001:db8:%d::", posts), nil, "are cut"},
		{"addresses of which some end in 0", with(clients("203.0.113.%d", posts), "203.0.112.0", posts), nil, ""},
		{"addresses of IPv6", clients("2001:db8:7:%d::1", posts), nil, ""},
		{"host names", clients("client%d.isp.example", posts), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, text, errs := replayed(t, logOf(c.log), append(c.args, "-")...)
			if code != exitOK {
				t.Fatalf("exit %d: %s", code, errs)
			}
			n := strings.Count(text, "are cut") + strings.Count(text, "Health checks")
			if c.want == "" && n != 0 || c.want != "" && (n != 1 || !strings.Contains(text, c.want)) {
				t.Errorf("want %q in\n%s", c.want, text[:strings.Index(text, "\nall: ")])
			}
		})
	}
}

// What is left out is named, and what an http.ServeMux redirects is told apart.
func TestALeftOutPathIsNamed(t *testing.T) {
	log := logOf(map[string]map[string]int{"203.0.113.1": {"/posts/1": 4}}) +
		logOf(map[string]map[string]int{"203.0.113.1": {"//posts/1?user=alice": 2}}) +
		logOf(map[string]map[string]int{"203.0.113.2": {"/feeds": 3}}) +
		logOf(map[string]map[string]int{"203.0.113.2": {"/\xff": 1}})
	code, text, errs := replayed(t, log, "-route", "GET /posts/{id}=read", "-route", "GET /feeds/=feed", "-")
	for _, want := range []string{
		"Left out requests that match no route: 1. The first is \"GET /\\xff\", line 10 of -.",
		"Left out requests that an http.ServeMux redirects: 5. The first is GET //posts/1, line 5 of -. If your router takes such paths, they count there.",
	} {
		if code != exitOK || !strings.Contains(text, want) {
			t.Errorf("exit %d, %s: want %q in\n%s", code, errs, want, text)
		}
	}
	if code, _, errs := replayed(t, log, "-route", "GET /none=x", "-"); code != exitError || !strings.Contains(errs, "such as `GET /posts/1`") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// No text of a log, a document or a file's name writes into the terminal.
func TestErrorsAreHarmless(t *testing.T) {
	plans := t.TempDir() + "/plans"
	document := `{"default": "\u009b2J", "plans": {"\u001b[2J": {"limits": {"*": ["SlidingWindow(5, 1m)"]}}}}`
	if err := os.WriteFile(plans, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-plans", plans, "-"}, {"-format", "\x1b[2J", "-"}, {"/none\x1b[2J"}, {"-route", "GET /x=\x9b2J", "-limit", "x=SlidingWindow(5, 1m)", "-"}, {"-"},
	} {
		code, text, errs := replayed(t, "\x1b[2J\u009b\x9b", args...)
		if code == exitOK || text != "" || strings.ContainsAny(errs, "\x1b\u009b") || strings.Contains(errs, "\x9b") {
			t.Errorf("%q: exit %d, %q", args, code, errs)
		}
	}
}
