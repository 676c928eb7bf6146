package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core/memorystore"
)

func get(h http.Handler, path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func open(t *testing.T) http.Handler {
	t.Helper()
	a, err := newAPI(memorystore.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	return a.routes()
}

// Bob's month ends five hours after the bubble's time begins, at midnight in New York.
func TestAMonthEndsInTheCustomersZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t)
		end := time.Date(2000, 1, 1, 5, 0, 0, 0, time.UTC)
		spend := func() (passed int) {
			for {
				if w := get(h, "/v1/report", "key-bob"); w.Code == http.StatusTooManyRequests {
					return passed
				}
				passed++
				time.Sleep(time.Second)
			}
		}
		if n := spend(); n != 100 {
			t.Errorf("%d pass in December", n)
		}
		w := get(h, "/v1/report", "key-bob")
		if got := w.Header().Get("X-RateLimit-Reset"); got != strconv.FormatInt(end.Unix(), 10) {
			t.Errorf("Reset is %s, want %d", got, end.Unix())
		}
		if got, want := w.Header().Get("Retry-After"), strconv.Itoa(int(time.Until(end)/time.Second)); got != want {
			t.Errorf("Retry-After is %s, want %s", got, want)
		}
		if got := w.Header().Get("RateLimit-Policy"); !strings.HasPrefix(got, `"month";q=100;w=2678400, "flow";q=10`) {
			t.Error(got)
		}
		if page := get(h, "/usage", "key-bob").Body.String(); !strings.Contains(page, "100 of 100") || !strings.Contains(page, "on 1 January 2000, 00:00 EST.") {
			t.Error(page)
		}
		time.Sleep(time.Until(end) - time.Microsecond)
		if w := get(h, "/v1/report", "key-bob"); w.Code != http.StatusTooManyRequests {
			t.Errorf("%d before January", w.Code)
		}
		time.Sleep(time.Microsecond)
		if n := spend(); n != 100 {
			t.Errorf("%d pass in January", n)
		}
	})
}

// What the funnel refuses is not charged to the month, and neither is a look at the page.
func TestThePageOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t)
		page := func() string {
			w := get(h, "/usage", "key-alice")
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			return w.Body.String()
		}
		if p := page(); !strings.Contains(p, "0 of 10000") || strings.Contains(p, "anew") {
			t.Error(p)
		}
		for range 15 {
			get(h, "/v1/report", "key-alice")
		}
		if p := page(); !strings.Contains(p, "10 of 10000") || !strings.Contains(p, "on 1 February 2000, 00:00 CST.") {
			t.Error(p)
		}
		if w := get(h, "/usage", "key-mallory"); w.Code != http.StatusBadRequest {
			t.Errorf("the page with an unknown key: %d", w.Code)
		}
		if w := get(h, "/v1/report", "key-mallory"); w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Limit") != "10" {
			t.Errorf("a guest: %d, %v", w.Code, w.Header())
		}
	})
}
