package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func ask(h http.Handler, method, path, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("X-User-ID", user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAnAdminSeesAndLiftsABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := limiters()
		forum, admin := public(ls), admin(ls)
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
	h := admin(limiters())
	for _, tt := range []struct{ method, path string }{{"GET", "/users/alice/like"}, {"DELETE", "/users/alice/like/ban"}} {
		if w := ask(h, tt.method, tt.path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
	}
}
