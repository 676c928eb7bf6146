package main

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

func do(h http.Handler, method, path, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Authorization", "Bearer of-"+user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// both are the public handler and the admin's.
func both() (forum, admins http.Handler) {
	m := watching("")
	e := &endpoint{limiters: limiters(m.Watch(memorystore.New(nil))), metrics: m}
	return public(e.limiters), e.handler()
}

var row = regexp.MustCompile(`<tr><td>(?:<a href="([^"]*)"><bdi>(.*?)</bdi></a>|<bdi[^>]*>(.*?)</bdi>)</td><td class="number">(.*?)</td><td>(.*?)</td><td>(.*?)</td><td class="number">(.*?)</td><td>(.*?)</td></tr>`)

// rows are those of the page: the link, the user, the refusals, the action, the limit, when, and the ban.
func rows(t *testing.T, admin http.Handler) (all [][]string) {
	t.Helper()
	return rowsOf(t, admin, "/")
}

func rowsOf(t *testing.T, admin http.Handler, path string) (all [][]string) {
	t.Helper()
	w := do(admin, "GET", path, "")
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for _, m := range row.FindAllStringSubmatch(w.Body.String(), -1) {
		for i := range m {
			m[i] = html.UnescapeString(m[i])
		}
		all = append(all, append([]string{m[1], m[2] + m[3]}, m[4:]...))
	}
	if nobody := strings.Contains(w.Body.String(), "Nobody was refused."); nobody != (all == nil) {
		t.Errorf("%s", w.Body)
	}
	return all
}

// The page lists the users who were refused in the last hour, the most refused first. A name cannot write
// into it, and its link leads to the user's status, whatever the name is.
func TestThePageShowsWhoWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forum, admin := both()
		rows(t, admin)
		long := strings.Repeat("x", 201)
		names := []string{"a/b?<script>", ".", "..", "a&b=c#d", "a%2fb", "über \u202eevil", "alice", long, "bad\xff"}
		for i, user := range names {
			for range 5 + len(names) - i + 3 { // three refusals are a ban, for ten minutes
				do(forum, "POST", "/replies", user)
			}
		}
		for range 7 { // two refusals
			do(forum, "POST", "/replies", "bob")
		}
		time.Sleep(30 * time.Second)
		all := rows(t, admin)
		if len(all) != len(names)+1 {
			t.Fatalf("%q", all)
		}
		for i, user := range names {
			got, hashed := all[i], user == long || user == "bad\xff"
			want := []string{got[0], user, fmt.Sprint(len(names) - i + 3), "reply", "ban", "30s", "reply for 9m30s"}
			if hashed {
				want[1], want[6] = got[1], "not known"
				if got[0] != "" || len(got[1]) != 12 {
					t.Errorf("%q is a link, or no hash", got)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if hashed {
				continue
			}
			if w := do(admin, "GET", got[0], ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"banned":true`) {
				t.Errorf("%s: %d %s", got[0], w.Code, w.Body)
			}
		}
		if got, want := all[len(names)], []string{"/user?action=reply&user=bob", "bob", "2", "reply", "sliding:1m", "30s", ""}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(time.Hour - 5*time.Minute)
		if got := rows(t, admin); len(got) != len(names)+1 || got[0][5] != "56m" || got[0][6] != "" {
			t.Errorf("%q", got)
		}
		time.Sleep(20 * time.Minute)
		if got := rows(t, admin); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
}

// A user is listed with the bans of all actions, and /?banned lists the banned users whom others push off the page.
func TestThePageShowsTheBansOfAllActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forum, admin := both()
		send := func(path, user string, n int) {
			for range n {
				do(forum, "POST", path, user)
			}
		}
		for range 3 {
			for i := range 25 {
				send("/replies", fmt.Sprint("busy-", i), 7) // two refusals a minute are no ban
			}
			time.Sleep(time.Minute)
		}
		send("/replies", "alice", 20)
		send("/likes", "alice", 18)
		send("/likes", "alice", 1)
		send("/replies", "bob", 8)
		send("/likes", "bob", 16)
		if got := rows(t, admin); len(got) != 20 || got[0][1] != "alice" || got[0][6] != "like for 10m, reply for 10m" || got[1][6] != "" {
			t.Errorf("%q", got)
		}
		if got := rowsOf(t, admin, "/?banned"); len(got) != 2 || got[0][1] != "alice" || got[1][1] != "bob" || got[1][3] != "like" || got[1][6] != "reply for 10m" {
			t.Errorf("%q", got)
		}
	})
}

// Two processes share a Redis, and each page shows the refusals of both.
func TestThePageOfTwoProcesses(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	var forums []http.Handler
	var endpoints []*endpoint
	var servers []*httptest.Server
	for range 2 {
		m := watching("the same secret in both")
		e := &endpoint{limiters: limiters(m.Watch(redisstore.New(rdb, nil))), metrics: m}
		srv := httptest.NewServer(e.handler())
		t.Cleanup(srv.Close)
		forums, endpoints, servers = append(forums, public(e.limiters)), append(endpoints, e), append(servers, srv)
	}
	for i := range 2 {
		endpoints[i].peers = []string{servers[1-i].Listener.Addr().String()}
	}
	long := strings.Repeat("x", 201)
	for i := range 20 {
		do(forums[i%2], "POST", "/replies", long)
		if i < 10 {
			do(forums[i%2], "POST", "/replies", "alice")
		}
	}
	for i := range 2 {
		all := rows(t, endpoints[i].handler())
		if len(all) != 2 || len(all[0][1]) != 12 || all[0][2] != "15" || all[1][1] != "alice" || all[1][2] != "5" || all[1][6] != "reply for 10m" {
			t.Errorf("process %d: %q", i, all)
		}
	}
	servers[1].Close()
	w := do(endpoints[0].handler(), "GET", "/", "")
	if !strings.Contains(w.Body.String(), "<strong>"+endpoints[0].peers[0]+" does not answer.</strong>") || !strings.Contains(w.Body.String(), "alice") {
		t.Errorf("%s", w.Body)
	}
}

func TestTimesForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1s", 45 * time.Second: "45s", time.Minute: "1m", 570 * time.Second: "9m30s", 10 * time.Minute: "10m",
		10*time.Minute + time.Second: "11m", time.Hour: "1h", 65 * time.Minute: "1h5m", 70 * time.Minute: "1h10m", 20 * time.Hour: "20h",
	} {
		if got := spoken(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

func TestAnAdminSeesAndLiftsABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forum, admin := both()
		reply := func() int { return do(forum, "POST", "/replies", "alice").Code }
		seen := func(user string) (s status) {
			t.Helper()
			w := do(admin, "GET", "/user?action=reply&user="+user, "")
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
		if w := do(admin, "DELETE", "/ban?action=reply&user=alice", ""); w.Code != http.StatusNoContent {
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

// One call lets a user in again, to one action or to all, though the limits are still used up.
func TestAnAdminLetsAUserInAgain(t *testing.T) {
	for query, likes := range map[string]int{"": http.StatusCreated, "&action=reply": http.StatusTooManyRequests} {
		synctest.Test(t, func(t *testing.T) {
			forum, admin := both()
			for range 18 { // three likes are refused, and more replies
				do(forum, "POST", "/replies", "alice")
				do(forum, "POST", "/likes", "alice")
			}
			if w := do(admin, "DELETE", "/ban?user=alice"+query, ""); w.Code != http.StatusNoContent {
				t.Errorf("%q: %d %s", query, w.Code, w.Body)
			}
			for path, want := range map[string]int{"/replies": http.StatusCreated, "/likes": likes} {
				if w := do(forum, "POST", path, "alice"); w.Code != want {
					t.Errorf("%q: %s: %d, want %d", query, path, w.Code, want)
				}
			}
		})
	}
}

// Another site's page can have an admin's browser send requests.
func TestAnotherSiteEndsNoBan(t *testing.T) {
	_, h := both()
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"} {
		r := httptest.NewRequest("DELETE", "/ban?action=reply&user=alice", nil)
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
			t.Errorf("%s: %s gets %d", name, value, w.Code)
		}
	}
}

func TestWhatIsNotThere(t *testing.T) {
	_, h := both()
	for request, want := range map[[2]string]int{
		{"GET", "/user?user=alice&action=follow"}:   http.StatusNotFound,
		{"DELETE", "/ban?user=alice&action=follow"}: http.StatusNotFound,
		{"GET", "/user?user=alice"}:                 http.StatusNotFound,
		{"GET", "/user?action=reply"}:               http.StatusBadRequest,
		{"DELETE", "/ban"}:                          http.StatusBadRequest,
	} {
		if w := do(h, request[0], request[1], ""); w.Code != want {
			t.Errorf("%s: %d %s, want %d", request, w.Code, w.Body, want)
		}
	}
}

func TestAnotherNameForLoopbackIsRefused(t *testing.T) {
	_, h := both()
	srv := httptest.NewServer(h)
	defer srv.Close()
	for host, want := range map[string]int{"localhost:8081": 200, "127.0.0.1:8081": 200, "[::1]:8081": 200, "evil.example:8081": 421, "192.0.2.1": 421} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/user?user=alice&action=reply", nil)
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
