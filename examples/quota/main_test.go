package main

import (
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
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

// A document may have no limits for the report. The other limits then decide, and there is no month to show.
func TestUseWithoutALimit(t *testing.T) {
	a, err := newAPI(memorystore.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	document := []byte(`{"default": "free", "plans": {"free": {"limits": {"GET /v1/other": ["FixedWindow(5, 1m)"]}}}}`)
	if err := a.plans.Follow(func(context.Context) ([]byte, error) { return document, nil }); err != nil {
		t.Fatal(err)
	}
	h := a.routes()
	if w := get(h, "/v1/report", "key-bob"); w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Limit") != "60" {
		t.Errorf("the report: %d, %v", w.Code, w.Header())
	}
	if w := get(h, "/usage", "key-bob"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "There is no quota a month") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
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
		if page := get(h, "/usage", "key-bob").Body.String(); !strings.Contains(page, "100 of 100, 0 left") || !strings.Contains(page, "on 1 January 2000, 00:00 EST.") {
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
		if p := page(); !strings.Contains(p, "0 of 10000, 10000 left") || !strings.Contains(p, "on 17 January 2000, 00:00 CST.") {
			t.Error(p)
		}
		for range 15 {
			get(h, "/v1/report", "key-alice")
		}
		if p := page(); !strings.Contains(p, "10 of 10000, 9990 left") || !strings.Contains(p, "on 17 January 2000, 00:00 CST.") {
			t.Error(p)
		}
		if w := get(h, "/usage", "key-mallory"); w.Code != http.StatusBadRequest {
			t.Errorf("the page with an unknown key: %d", w.Code)
		}
		if p := get(h, "/usage", "key-carol").Body.String(); !strings.Contains(p, "0 of 500") {
			t.Error(p) // the document gives her another plan
		}
		if a, b := get(h, "/v1/export", "key-alice").Code, get(h, "/v1/export", "key-bob").Code; a != http.StatusTooManyRequests || b != http.StatusForbidden {
			t.Errorf("exports: %d for alice, whose flow is used up, %d for bob, whose plan has none", a, b)
		}
		if w := get(h, "/v1/report", "key-mallory"); w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Limit") != "10" {
			t.Errorf("a guest: %d, %v", w.Code, w.Header())
		}
	})
}

// A replica is an API and its source of plans.
type replica struct {
	*api
	h http.Handler
}

func start(t *testing.T, store core.Store, source func(context.Context) ([]byte, error)) replica {
	t.Helper()
	a, err := newAPI(store)
	if err == nil {
		err = a.plans.Follow(source)
	}
	if err != nil {
		t.Fatal(err)
	}
	return replica{a, a.routes()}
}

// other is the program's document with another number in it.
func other(old, new string) string { return strings.ReplaceAll(string(document), old, new) }

// With -key the plans are what SET has last put there. A broken document changes nothing.
func TestAReplicaFollowsAKey(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	server.Set("quota:plans", string(document))
	r := start(t, memorystore.New(nil), fromRedis(rdb, "quota:plans"))
	for _, step := range []struct{ document, quota string }{
		{other("(100, month", "(150, month"), `"month";q=150;`},
		{other("(100, month", "(0, month"), `"month";q=150;`},
		{string(document), `"month";q=100;`},
	} {
		server.Set("quota:plans", step.document)
		_ = r.plans.Refresh(t.Context())
		if got := get(r.h, "/v1/report", "key-bob").Header().Get("RateLimit-Policy"); !strings.HasPrefix(got, step.quota) {
			t.Errorf("%s, want %s", got, step.quota)
		}
	}
}

// The page of a replica that no requests come to looks by itself, once when it is loaded and then every five seconds.
func TestThePageOfPlansLooks(t *testing.T) {
	current := []byte(other("(100, month", "(150, month"))
	r := start(t, memorystore.New(nil), func(context.Context) ([]byte, error) { return current, nil })
	current = []byte(other("(100, month", "(175, month"))
	body := get(r.admin(), "/", "").Body.String()
	for _, want := range []string{"CalendarWindow(175, month", `<div id="now">`, `getElementById("now")`, "}, 5000)"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in\n%s", want, body)
		}
	}
}

// The page shows what is in force, what another document would change, and who would feel it.
func TestThePageOfPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := newAPI(memorystore.New(nil))
		if err != nil {
			t.Fatal(err)
		}
		h, page := a.routes(), a.admin()
		for range 60 {
			get(h, "/v1/report", "key-bob")
			time.Sleep(time.Second)
		}
		shows := func(name, body string, wants ...string) {
			t.Helper()
			for _, want := range wants {
				if !strings.Contains(html.UnescapeString(body), want) {
					t.Errorf("%s: %q is not in\n%s", name, want, body)
				}
			}
		}
		post := func(document string) string {
			r := httptest.NewRequest("POST", "/", strings.NewReader(url.Values{"document": {document}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			return w.Body.String()
		}
		shows("in force", get(page, "/", "").Body.String(), a.plans.Generation().Version,
			`<td>free</td><td>all others</td><td><code>CalendarWindow(100, month, {zone}).Named("month").PerUser()`, `Funnel(10, Per(2, 1s))`,
			`<td>trial</td><td></td><td>users whom the document names: 1</td>`)
		shows("less for free", post(other("(100, month", "(50, month")),
			`<td><code>CalendarWindow(100, month, {zone})`, `<td><code>CalendarWindow(50, month, {zone})`,
			`<tr class="felt"><td>bob</td><td>GET /v1/report</td><td>free: 40 of 100 by month, 10 of 10 by flow</td><td class="bad">free: 0 of 50 by month, 10 of 10 by flow, refused for 4h59m</td></tr>`,
			`<tr><td>carol</td><td>GET /v1/report</td><td>trial: 500 of 500 by month, 10 of 10 by flow</td><td>trial: 500 of 500 by month, 10 of 10 by flow</td></tr>`)
		shows("another funnel", post(other("Funnel(10, Per(2, 1s))", "Funnel(20, Per(2, 1s))")),
			`<td><code>Funnel(20, Per(2, 1s)).Named("flow").PerUser()</code></td>`)
		shows("nothing", post(string(document)+"\n"), "No limit is different.", "Nobody right now")
		shows("broken", post(other("(100, month", "(0, month")), "It cannot be put in force",
			`<tr><td>15</td><td>11</td><td>plan "free", action "*": CalendarWindow(0, month, UTC)`, "max 0 is not within 1 to 1000000000")
		shows("not JSON, with markup", post("<script>"), "invalid character '<'")
		if got := post("<script>"); strings.Contains(got, "<script>") {
			t.Error("the document is not escaped")
		}
		if g := a.plans.Generation(); g.Number != 1 || a.plans.Rejected() != 0 {
			t.Errorf("to compare has changed something: %+v", g)
		}
	})
}

// A page of another site, and a document that is too large, are refused before the document is read.
func TestWhatThePageDoesNotCompare(t *testing.T) {
	a, err := newAPI(memorystore.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	page := a.admin()
	small := url.Values{"document": {string(document)}}.Encode()
	for _, tt := range []struct {
		name, header, value, body string
		want                      int
	}{
		{"of the page itself", "Sec-Fetch-Site", "same-origin", small, http.StatusOK},
		{"of a program", "User-Agent", "curl", small, http.StatusOK},
		{"of another site", "Sec-Fetch-Site", "cross-site", small, http.StatusForbidden},
		{"of another port", "Sec-Fetch-Site", "same-site", small, http.StatusForbidden},
		{"of another site in an old browser", "Origin", "http://evil.example", small, http.StatusForbidden},
		{"too large", "Sec-Fetch-Site", "same-origin", "document=" + strings.Repeat("x", 256<<10), http.StatusRequestEntityTooLarge},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(tt.body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(tt.header, tt.value)
		w := httptest.NewRecorder()
		if page.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, w.Code, tt.want)
		}
	}
}
