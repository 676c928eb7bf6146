package gatetest

// Responses to what passes and what is refused, and how a rule is held to.

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

var responseRules = []rule{
	one("an allowed action passes with the limit's three headers and no others", Decides(allowed), nil, passed(5, 4, "+60s")),
	{
		name:  "an allowed action has the handler's own status and the outer Cache-Control",
		store: Decides(allowed),
		routes: func(s core.Store) []Route {
			rt := behind("Cache-Control", "public, max-age=60")(s)
			rt[0].Handler = status(201)
			return rt
		},
		steps: []step{{want: response{status: 201, header: limited(5, 4, "+60s", "Cache-Control: public, max-age=60")}}},
		runs:  1,
	},
	one("a refusal is 429 with Retry-After, no-store and a problem", Decides(refusal), nil, refused(5, 0, "+60s", 30, noRoom)),
	{
		name:   "a refusal is not stored, whatever an outer middleware has said, and retries by our word",
		store:  Decides(refusal),
		routes: behind("Cache-Control", "public, max-age=60", "Retry-After", "7200", "Content-Type", "text/html", "Content-Length", "3"),
		steps:  []step{{want: refused(5, 0, "+60s", 30, noRoom)}},
	},
	one("Retry-After is rounded up",
		Decides(core.Decision{RetryAfter: 2*time.Second + time.Microsecond, ResetAfter: time.Minute}), nil, refused(5, 0, "+60s", 3, noRoom)),
	one("Retry-After is at least 1",
		Decides(core.Decision{RetryAfter: time.Microsecond, ResetAfter: time.Minute}), nil, refused(5, 0, "+60s", 1, noRoom)),
	one("Retry-After is at least 1, also of a store that refuses without a wait",
		Decides(core.Decision{ResetAfter: time.Minute}), nil, refused(5, 0, "+60s", 1, noRoom)),
	one("Reset is rounded up",
		Decides(core.Decision{Allowed: true, Remaining: 4, ResetAfter: 59*time.Second + time.Microsecond}), nil, passed(5, 4, "+59.000001s")),
	{
		name:  "what can never pass has no Retry-After, not even an outer one",
		store: memory,
		routes: func(s core.Store) []Route {
			rt := behind("Retry-After", "7")(s)
			rt[0].Limits[0].Config = costs(6, nil)
			return rt
		},
		steps: []step{{want: refused(5, 5, "+0s", 0, tooMuch)}},
		asked: []string{"alice reply 6 peek"},
	},
	one("a full store refuses in other words",
		Decides(core.Decision{RetryAfter: time.Second, ResetAfter: time.Second, Reason: core.ReasonFull}), nil,
		refused(5, 0, "+1s", 1, "Too many users are being limited at present.")),
	{
		name:   "a problem does not go out under what was said of another body",
		store:  Decides(refusal),
		routes: behind("Etag", `"x"`, "Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT", "Expires", "Mon, 02 Jan 2036 15:04:05 GMT", "Content-Encoding", "gzip", "X-Other", "stays"),
		steps:  []step{{want: refused(5, 0, "+60s", 30, noRoom, "X-Other: stays")}},
	},
	{
		name:  "nor does it inside a limit that wraps the writer",
		store: each(allowed, refusal),
		routes: func(s core.Store) []Route {
			rt := stacked(asCharged, nil)(s)
			rt[0].Outside = []string{"Etag", `"x"`, "Content-Encoding", "gzip"}
			return rt
		},
		steps: []step{{want: refused(7, 0, "+60s", 30, "The limit of 7 per minute has no room for this at present.")}},
		asked: []string{"alice outer 1", "alice inner 1"},
	},
	{
		name:   "quota runs out, request by request",
		store:  memory,
		routes: reply(nil, core.FixedWindow(2, time.Minute)),
		steps: []step{
			{want: passed(2, 1, "+60s")},
			{want: passed(2, 0, "+60s")},
			{want: full(2, 0)},
			{header: []string{"X-User-Id", "other"}, want: passed(2, 1, "+60s")},
		},
		asked: []string{"alice reply 1", "alice reply 1", "alice reply 1", "other reply 1"},
	},
}

func testResponses(t *testing.T, adapters []Adapter) {
	servers := Serve(t)
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			for _, s := range servers {
				t.Run(s.Proto, func(t *testing.T) {
					for _, r := range slices.Concat(responseRules, failingRules, requestRules, headerRules, refusedRules, finalCostRules, allowRules) {
						t.Run(r.name, func(t *testing.T) { r.hold(t, ad, s) })
					}
				})
			}
		})
	}
}

func (r rule) hold(t *testing.T, ad Adapter, s *Server) {
	log := Capture(t)
	if ad.Forget != nil {
		ad.Forget()
	}
	store := NewStore(r.store())
	var runs atomic.Int32
	a := App{Routes: r.routes(store), Recovers: r.recovers}.Filled()
	for i := range a.Routes {
		h := a.Routes[i].Handler
		a.Routes[i].Handler = func(w http.ResponseWriter, r *http.Request, kept func() (core.Decision, bool)) {
			runs.Add(1)
			h(w, r, kept)
		}
	}
	s.Mount(ad.Mount(a))
	start := time.Now()
	asked, want := r.asked, r.runs
	for i, st := range r.steps {
		st.hold(t, s, i, start)
		if r.asked == nil {
			asked = append(asked, "alice reply 1")
		}
		if r.runs == 0 && st.want.status == 200 {
			want++
		}
	}
	inside := slices.ContainsFunc(a.Routes, func(rt Route) bool { return rt.Inside != nil })
	if got := log.Take(ad.pkg()); !slices.Equal(got, r.log) && (ad.Forget != nil || !inside) {
		t.Errorf("log:\n got %q\nwant %q", got, r.log)
	}
	if got := charges(store); !slices.Equal(got, asked) {
		t.Errorf("the store was asked\n     %q\nwant %q", got, asked)
	}
	if int(runs.Load()) != max(want, 0) {
		t.Errorf("the handler ran %d times, want %d", runs.Load(), want)
	}
}

func (st step) hold(t *testing.T, s *Server, i int, start time.Time) {
	t.Helper()
	if st.method == "" {
		st.method = "POST"
	}
	if st.path == "" {
		st.path = "/replies/7"
	}
	req, err := http.NewRequestWithContext(t.Context(), st.method, s.URL+st.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User-ID", "alice")
	for j := 0; j < len(st.header); j += 2 {
		if st.header[j+1] == "-" {
			req.Header.Del(st.header[j])
		} else if st.header[j] == "X-User-Id" && st.header[j+1] == "other" {
			req.Header.Set(st.header[j], st.header[j+1])
		} else {
			req.Header.Add(st.header[j], st.header[j+1])
		}
	}
	resp, err := s.Client().Do(req)
	if st.want.cut {
		if err == nil {
			resp.Body.Close()
			t.Errorf("step %d: got %s, want no response", i, resp.Status)
		}
		return
	}
	if err != nil {
		t.Fatalf("step %d: %v", i, err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatalf("step %d: %v", i, err)
	}
	st.want.hold(t, fmt.Sprintf("step %d", i), st.method, resp, string(body), start)
}

// hold compares every header and the body.
func (want response) hold(t *testing.T, what, method string, resp *http.Response, body string, start time.Time) {
	t.Helper()
	end := time.Now()
	if resp.StatusCode != want.status {
		t.Errorf("%s: status %d, want %d", what, resp.StatusCode, want.status)
	}
	got := resp.Header.Clone()
	if _, err := http.ParseTime(got.Get("Date")); err != nil {
		t.Errorf("%s: Date: %v", what, err)
	}
	delete(got, "Date")
	if want.body == own {
		delete(got, "Content-Type")
		delete(got, "Content-Length")
	} else {
		retry := got.Get("Retry-After")
		seconds, _ := strconv.ParseInt(retry, 10, 64)
		if w := strings.NewReplacer("{retry}", retry, "{wait}", words(seconds)).Replace(want.body); body != w {
			t.Errorf("%s: body\n got %q\nwant %q", what, body, w)
		}
		if method != "HEAD" && want.status != 204 && want.status != 304 {
			want.header = append(slices.Clone(want.header), "Content-Length: "+strconv.Itoa(len(body)))
		}
	}
	for _, line := range want.header {
		name, value, _ := strings.Cut(line, ": ")
		if want.body == own && name == "Content-Type" {
			continue
		}
		values := got[name]
		delete(got, name)
		if len(values) != 1 || !agrees(values[0], value, start, end) {
			t.Errorf("%s: %s is %q, want %q", what, name, values, value)
		}
	}
	for name, values := range got {
		t.Errorf("%s: there is a header %s: %q", what, name, values)
	}
}

// agrees compares a value with what is wanted, between start and end.
func agrees(got, want string, start, end time.Time) bool {
	if d, ok := strings.CutPrefix(want, "+"); ok {
		after, err := time.ParseDuration(d)
		n, err2 := strconv.ParseInt(got, 10, 64)
		return err == nil && err2 == nil && n >= ceil(start.Add(after)) && n <= ceil(end.Add(after))
	}
	if prefix, s, ok := strings.Cut(want, "~"); ok {
		most, err := strconv.Atoi(s)
		rest, ok := strings.CutPrefix(got, prefix)
		n, err2 := strconv.Atoi(rest)
		return ok && err == nil && err2 == nil && n <= most && n >= most-int(end.Sub(start)/time.Second)-1
	}
	return got == want
}
