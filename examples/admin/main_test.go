package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

func ask(h http.Handler, method, path, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("X-User-ID", user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// both are the public handler and the admin's.
func both() (forum, endpoint http.Handler) {
	m := metrics.New(&metrics.Options{ShowUsers: true})
	ls := limiters(m.Watch(memorystore.New(nil)))
	return public(ls), admin(ls, m)
}

// The page lists the users who were refused, the most refused first. A name cannot write into it, and
// its link leads to the user's status.
func TestThePageShowsWhoIsRefusedMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forum, admin := both()
		page := func() string {
			w := ask(admin, "GET", "/", "")
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			return w.Body.String()
		}
		if p := page(); !strings.Contains(p, "Nobody was refused.") || strings.Contains(p, "<table>") {
			t.Error(p)
		}
		for user, n := range map[string]int{"alice": 7, "a/b?<script>": 9, "carol": 5} {
			for range n {
				ask(forum, "POST", "/replies", user)
			}
		}
		rows := regexp.MustCompile(`<tr><td><a href="([^"]*)">(.*?)</a></td><td>(.*?)</td><td class="number">(.*?)</td><td>(.*?)</td>`).FindAllStringSubmatch(page(), -1)
		want := [][]string{
			{"/users/a%2Fb%3F%3Cscript%3E/reply", "a/b?&lt;script&gt;", "reply", "4", "10m0s"},
			{"/users/alice/reply", "alice", "reply", "2", ""},
		}
		if !slices.EqualFunc(rows, want, func(a, b []string) bool { return slices.Equal(a[1:], b) }) {
			t.Fatalf("%q, want %q", rows, want)
		}
		for _, row := range rows {
			if w := ask(admin, "GET", row[1], ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), `"banned":true`) != (row[5] != "") {
				t.Errorf("%s: %d %s", row[1], w.Code, w.Body)
			}
		}
		time.Sleep(10 * time.Minute)
		if p := page(); !strings.Contains(p, "Nobody was refused.") {
			t.Error(p)
		}
	})
}

func TestAnAdminSeesAndLiftsABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forum, admin := both()
		reply := func() int { return ask(forum, "POST", "/replies", "alice").Code }
		seen := func(user string) (s status) {
			t.Helper()
			w := ask(admin, "GET", "/users/"+user+"/reply", "")
			if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != http.StatusOK || len(s.Limits) != 1 {
				t.Fatalf("%d %s: %v", w.Code, w.Body, err)
			}
			return s
		}
		for i := range 8 { // five pass, three are refused
			if code := reply(); (code == http.StatusCreated) != (i < 5) {
				t.Fatalf("reply %d: %d", i+1, code)
			}
		}
		if s, want := seen("alice"), (ban{Banned: true, RetryAfter: "10m0s", Level: 1}); s.Ban != want || s.Limits[0].Remaining != 0 {
			t.Errorf("the user who kept trying: %+v, want %+v", s, want)
		}
		if s := seen("xiaoming"); s.Ban != (ban{RetryAfter: "0s"}) || s.Limits[0].Remaining != 5 {
			t.Errorf("another user: %+v", s)
		}

		time.Sleep(time.Minute) // the limit is whole, the ban goes on
		if code := reply(); code != http.StatusTooManyRequests {
			t.Errorf("a banned user's reply: %d", code)
		}
		if w := ask(admin, "DELETE", "/users/alice/reply/ban", ""); w.Code != http.StatusNoContent {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if code := reply(); code != http.StatusCreated {
			t.Errorf("a reply after the ban was ended: %d", code)
		}
		if s := seen("alice"); s.Ban != (ban{RetryAfter: "0s"}) || s.Limits[0].Remaining != 4 {
			t.Errorf("after the ban was ended: %+v", s)
		}
	})
}

func TestAnUnknownActionIsNotFound(t *testing.T) {
	_, h := both()
	for _, tt := range []struct{ method, path string }{{"GET", "/users/alice/like"}, {"DELETE", "/users/alice/like/ban"}} {
		if w := ask(h, tt.method, tt.path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
	}
}

func TestAnotherNameForLoopbackIsRefused(t *testing.T) {
	_, h := both()
	srv := httptest.NewServer(h)
	defer srv.Close()
	for host, want := range map[string]int{"localhost:8081": 200, "127.0.0.1:8081": 200, "[::1]:8081": 200, "evil.example:8081": 421, "192.0.2.1": 421} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/users/alice/reply", nil)
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("the host %q gets %d, want %d", host, resp.StatusCode, want)
		}
	}
}
