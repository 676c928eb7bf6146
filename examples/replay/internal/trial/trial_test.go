package trial_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/source"
	"github.com/tailcut/tailcut/examples/replay/internal/trial"
)

var forum = []route.Route{
	{Pattern: "POST /posts/{id}/replies", Action: "reply"},
	{Pattern: "POST /posts/{id}/likes", Action: "like"},
	{Pattern: "GET /posts/{id}", Action: "read"},
	{Pattern: "GET /{$}", Action: "read"},
}

// muxed asks an http.ServeMux for the action.
func muxed(t testing.TB, routes []route.Route) func(method, path string) string {
	if len(routes) == 0 {
		return func(string, string) string { return route.All }
	}
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.Pattern, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Action", r.Action) })
	}
	return func(method, path string) string {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Header().Get("Action")
	}
}

// lines is a log of JSON lines, one for each user and instant.
func lines(hits ...any) string {
	var b strings.Builder
	for i := 0; i < len(hits); i += 2 {
		fmt.Fprintf(&b, `{"time":%q,"method":"GET","path":"/","user":%q}`+"\n", hits[i], hits[i+1])
	}
	return b.String()
}

func run(t *testing.T, log string, o trial.Options) *report.Report {
	t.Helper()
	o.Line.User = line.UserAuth
	r, err := replay(t.Context(), strings.NewReader(log), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A request an hour before the newest one above it counts, and one a microsecond earlier is late.
func TestLateIsMoreThanAnHour(t *testing.T) {
	r := run(t, lines(
		"2026-11-22T08:00:00.000001Z", "a",
		"2026-11-22T07:00:00.000001Z", "b",
		"2026-11-22T07:00:00Z", "c",
		"2026-11-22T06:00:00Z", "d",
		"2026-11-22T09:00:00.000002Z", "a",
		"2026-11-22T08:00:00.000001Z", "b",
		"2026-11-22T08:00:00.000002Z", "e",
	), trial.Options{})
	if _, left := sums(r); left.Late != 3 || r.Requests != 4 || r.Users != 3 {
		t.Errorf("late %d, requests %d, users %d; want 3, 4, 3", left.Late, r.Requests, r.Users)
	}
}

// Several limits of a candidate are one limiter. Candidates do not see each other.
func TestCandidatesAreIndependent(t *testing.T) {
	var hits []any
	for i := range 6 {
		hits = append(hits, fmt.Sprintf("2026-11-22T08:00:0%dZ", i), "a")
	}
	window, daily := core.SlidingWindow(2, time.Minute), core.FixedWindow(3, 24*time.Hour)
	r := run(t, lines(hits...), trial.Options{Candidates: []trial.Candidate{
		{Limits: []core.Limit{window}}, {Limits: []core.Limit{daily}}, {Limits: []core.Limit{window, daily}}, {Limits: []core.Limit{window}},
	}})
	var refused []int64
	for _, l := range r.Limits {
		refused = append(refused, l.Refused)
	}
	if !slices.Equal(refused, []int64{4, 3, 4, 4}) || r.Limits[2].Text != "SlidingWindow(2, 1m) and FixedWindow(3, 24h)" || r.Limits[1].LongestWait != 24*time.Hour-3*time.Second {
		t.Errorf("refused %v; %+v", refused, r.Limits)
	}
}

// A limit with PerUser counts all of a user's actions together, in the order of time.
func TestPerUserCountsActionsTogether(t *testing.T) {
	var log strings.Builder
	for i := range 6 {
		fmt.Fprintf(&log, `{"time":"2026-11-22T08:00:0%dZ","method":"POST","path":"/posts/1/%s","user":"a"}`+"\n", i, []string{"likes", "replies"}[i%2])
	}
	window := core.SlidingWindow(3, time.Minute)
	r := run(t, log.String(), trial.Options{Routes: forum[:2], Candidates: []trial.Candidate{{Limits: []core.Limit{window.PerUser()}}, {Limits: []core.Limit{window}}}})
	var refused []string
	for _, l := range r.Limits {
		refused = append(refused, fmt.Sprint(l.Action, l.Refused))
	}
	if want := []string{"reply2", "like1", "reply0", "like0"}; !slices.Equal(refused, want) {
		t.Errorf("%v, want %v", refused, want)
	}
}

// The ids behind a user are those of all its requests that are replayed, in whichever order and
// shard, and in every format.
func TestIDsBehindAnAddress(t *testing.T) {
	const combined = `%s - %s [22/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	const object = `{"time":"2026-11-22T08:00:00Z","method":"GET","path":"/","remote_addr":%q,"user_id":%q,"uid":"one"}` + "\n"
	const text = `%s {%s} 1795334400.000 GET / one` + "\n"
	random := rand.New(rand.NewPCG(1, 13))
	for name, test := range map[string]struct {
		line string
		o    trial.Options
		one  bool
	}{
		"Combined":         {combined, trial.Options{}, false},
		"JSON":             {object, trial.Options{}, false},
		"a field":          {object, trial.Options{Line: line.Options{IDs: "field:uid"}}, true},
		"a log_format":     {text, trial.Options{Line: line.Options{Format: "$remote_addr {$remote_user} $msec $request_method $uri $uid"}}, false},
		"a variable of it": {text, trial.Options{Line: line.Options{Format: "$remote_addr {$x} $msec $request_method $uri $uid", IDs: "field:uid"}}, true},
		"a number":         {strings.TrimSuffix(combined, "\n") + ` "-" "curl" "one"` + "\n", trial.Options{Line: line.Options{IDs: "field:10"}}, true},
		"not a log_format": {combined, trial.Options{Line: line.Options{IDs: "field:uid"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]map[string]bool{}
			var log strings.Builder
			for range 2000 {
				address, id := fmt.Sprintf("203.0.113.%d", random.IntN(8)), "-"
				if n := random.IntN(30); n > 0 && address != "203.0.113.0" {
					id = fmt.Sprint("u", n*n/40)
				}
				fmt.Fprintf(&log, test.line, address, id)
				if want[address] == nil {
					want[address] = map[string]bool{}
				}
				switch {
				case test.one:
					want[address]["one"] = true
				case name != "not a log_format" && id != "-":
					want[address][id] = true
				}
			}
			test.o.ShowUsers = true
			test.o.Candidates = []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(1, time.Hour)}}}
			r, err := replay(t.Context(), strings.NewReader(log.String()), test.o)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Limits[0].Most) != 8 {
				t.Fatalf("%+v", r.Limits[0].Most)
			}
			for _, u := range r.Limits[0].Most {
				if u.IDs != len(want[u.Name]) {
					t.Errorf("%s has %d ids, want %d", u.Name, u.IDs, len(want[u.Name]))
				}
			}
		})
	}
}

// A cost is charged, and a cost that can never pass is refused without a wait.
func TestCost(t *testing.T) {
	log := `{"time":"2026-11-22T08:00:00Z","method":"GET","path":"/","user":"a","n":3}
{"time":"2026-11-22T08:00:01Z","method":"GET","path":"/","user":"a","n":0}
{"time":"2026-11-22T08:00:02Z","method":"GET","path":"/","user":"a","n":2}
{"time":"2026-11-22T08:00:03Z","method":"GET","path":"/","user":"b","n":9}
`
	r := run(t, log, trial.Options{Line: line.Options{Fields: line.Fields{Cost: "n"}}, Candidates: []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(4, time.Minute)}}}})
	l, fit := r.Limits[0], r.Actions[0].Windows[0].Max.Nobody
	if l.Requests != 4 || l.Refused != 2 || l.Never != 1 || l.UsersRefused != 2 || l.LongestWait != 58*time.Second || fit != 9 {
		t.Errorf("%+v, fit %d", l, fit)
	}
}

// The hours are those of the log's clock.
func TestHours(t *testing.T) {
	r := run(t, lines("2026-11-22T08:30:00+09:00", "a", "2026-11-22T08:59:59+09:00", "a", "2026-11-22T00:00:00Z", "a"),
		trial.Options{Candidates: []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(1, time.Hour)}}}})
	var requests, refusals report.Hours
	requests[time.Sunday][8], requests[time.Sunday][9] = 2, 1
	refusals[time.Sunday][8], refusals[time.Sunday][9] = 1, 1
	if r.Offset != 9*3600 || r.Actions[0].Hours != requests || r.Limits[0].Hours != refusals || r.WholeSeconds != true {
		t.Errorf("offset %d, %v, %v", r.Offset, r.Actions[0].Hours, r.Limits[0].Hours)
	}
}

func TestUsersAreHashed(t *testing.T) {
	log := lines("2026-11-22T08:00:00Z", "ann", "2026-11-22T08:00:00Z", "ann", "2026-11-22T08:00:00.5Z", "ann", "2026-11-22T08:00:00Z", "bob", "2026-11-22T08:00:00Z", "bob")
	o := trial.Options{Candidates: []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(1, time.Hour)}}, {Limits: []core.Limit{core.FixedWindow(1, time.Hour)}}}}
	r := run(t, log, o)
	a, b := r.Limits[0].Most, r.Limits[1].Most
	if len(a) != 2 || !slices.Equal(a, b) || a[0].Name == a[1].Name || len(a[0].Name) != 12 || strings.Contains(a[0].Name, "ann") || r.WholeSeconds {
		t.Errorf("%v and %v, want the same two hashes", a, b)
	}
	if again := run(t, log, o).Limits[0].Most; again[0].Name == a[0].Name {
		t.Errorf("two reports have the same hash %s", a[0].Name)
	}
	o.ShowUsers = true
	if got := run(t, log, o).Limits[0].Most; !slices.Equal(got, []report.RefusedUser{{Name: "ann", Refused: 2}, {Name: "bob", Refused: 1}}) {
		t.Error(got)
	}
}

func TestLongLinesAreSkippedAndOthersRead(t *testing.T) {
	request := lines("2026-11-22T08:00:00Z", "a")
	log := strings.Repeat("x", 5<<20) + "\n" + request + `{"x":"` + strings.Repeat("y", 1<<19) + `",` + request[1:] + strings.Repeat("\n", 3)
	r := run(t, log, trial.Options{})
	if skipped, _ := sums(r); r.Lines != 6 || skipped != 4 || r.Requests != 2 {
		t.Errorf("lines %d, skipped %d, requests %d; want 6, 4, 2", r.Lines, skipped, r.Requests)
	}
}

func TestGzip(t *testing.T) {
	one, two := zip(t, []byte(lines("2026-11-22T08:00:00Z", "a"))), zip(t, []byte(lines("2026-11-22T08:00:00Z", "b")))
	if r := run(t, string(one)+string(two), trial.Options{}); r.Requests != 2 || r.Damage != nil {
		t.Errorf("two streams in one have %d requests, damage %v", r.Requests, r.Damage)
	}
	if r := run(t, string(one)+lines("2026-11-22T08:00:00Z", "b")+string(two)+"garbage", trial.Options{}); r.Requests != 3 || r.Damage != nil || r.Skipped[0].Reason != line.Unknown {
		t.Errorf("text between and garbage behind: %d requests, damage %v", r.Requests, r.Damage)
	}
	broken := bytes.Clone(one)
	broken[len(broken)-6]++ // of the checksum
	if r := run(t, string(broken), trial.Options{}); r.Requests != 1 || !errors.Is(r.Damage, gzip.ErrChecksum) {
		t.Errorf("a wrong checksum: %d requests, damage %v", r.Requests, r.Damage)
	}
	_, err := replay(t.Context(), strings.NewReader("\x1f\x8bnothing else"), trial.Options{})
	if !errors.Is(err, trial.ErrNoRequest) || !strings.Contains(err.Error(), "gzip") {
		t.Errorf("only the magic: %v", err)
	}
}

func TestErrorsOfTheReader(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	disk := errors.New("disk on fire")
	log := lines("2026-11-22T08:00:00Z", "a")
	for name, r := range map[string]io.Reader{
		"plain": io.MultiReader(strings.NewReader(log), iotest.ErrReader(disk)),
		"gzip":  io.MultiReader(bytes.NewReader(zip(t, []byte(log))[:30]), iotest.ErrReader(disk)),
	} {
		if _, err := replay(t.Context(), r, trial.Options{}); !errors.Is(err, disk) {
			t.Errorf("%s: %v, want the reader's error", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	endless := newStream(math.MaxInt, 10, 1000, "combined")
	stop := readerFunc(func(b []byte) (int, error) {
		if endless.line > 50_000 {
			cancel()
		}
		return endless.Read(b)
	})
	if _, err := replay(ctx, stop, trial.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

type readerFunc func([]byte) (int, error)

// sums are the lines that a report has skipped, and the requests that it has left out.
func sums(r *report.Report) (skipped int64, left report.LeftOut) {
	for _, s := range r.Skipped {
		skipped += s.Lines
	}
	for _, l := range r.LeftOut {
		left.Anonymous, left.Late, left.Long = left.Anonymous+l.Anonymous, left.Late+l.Late, left.Long+l.Long
	}
	return skipped, left
}

// replay makes a trial and runs it.
func replay(ctx context.Context, log io.Reader, o trial.Options) (*report.Report, error) {
	t, err := trial.New(o)
	if err != nil {
		return nil, err
	}
	return t.Run(ctx, source.Log{Name: "log", Reader: log})
}

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestBadOptionsAreErrors(t *testing.T) {
	window := []core.Limit{core.SlidingWindow(1, time.Hour)}
	for name, o := range map[string]trial.Options{
		"format":              {Line: line.Options{Format: "xml"}},
		"user":                {Line: line.Options{User: "me"}},
		"field":               {Line: line.Options{User: "field:"}},
		"no time in it":       {Line: line.Options{Format: "$remote_addr $request"}},
		"no request in it":    {Line: line.Options{Format: "$remote_addr $msec $request_method"}},
		"no user in it":       {Line: line.Options{Format: "$msec $request"}},
		"no such user in it":  {Line: line.Options{Format: "$remote_addr $msec $request", User: "field:uid"}},
		"no id in it":         {Line: line.Options{Format: "$remote_addr $msec $request", IDs: "field:uid"}},
		"nothing between":     {Line: line.Options{Format: "$remote_addr$msec $request"}},
		"ids":                 {Line: line.Options{IDs: "address"}},
		"ids of themselves":   {Line: line.Options{User: line.UserAuth, IDs: line.UserAuth}},
		"pattern":             {Routes: []route.Route{{Pattern: "x", Action: "y"}}},
		"no action":           {Routes: []route.Route{{Pattern: "/x"}}},
		"host":                {Routes: []route.Route{{Pattern: "example.org/", Action: "y"}}},
		"twice":               {Routes: []route.Route{{Pattern: "/x", Action: "y"}, {Pattern: "/x", Action: "z"}}},
		"no limit":            {Candidates: []trial.Candidate{{}}},
		"limit of no action":  {Candidates: []trial.Candidate{{Action: "y", Limits: window}}},
		"limit in flight":     {Candidates: []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(1, time.Hour), core.InFlight(3).Shadow()}}}},
		"shadow limit":        {Candidates: []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(1, time.Hour), core.FixedWindow(9, time.Hour).Shadow()}}}},
		"limit out of bounds": {Candidates: []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(0, time.Hour)}}}},
	} {
		if r, err := trial.New(o); err == nil || r != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is kept does not grow with the log: after a day and after three it is as much.
func TestMemoryIsBounded(t *testing.T) {
	const lines, users, rate = 300_000, 1000, 1
	s := newStream(lines, users, rate, "combined") // three and a half days
	var live []uint64
	step := lines / 7
	r, err := replay(t.Context(), readerFunc(func(b []byte) (int, error) {
		if s.line >= (len(live)+1)*step {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			live = append(live, m.HeapAlloc)
		}
		return s.Read(b)
	}), trial.Options{Candidates: []trial.Candidate{{Limits: []core.Limit{core.SlidingWindow(5, time.Minute), core.Funnel(100, core.Every(time.Minute))}}}})
	if err != nil || r.Requests != lines {
		t.Fatal(r, err)
	}
	day, end := live[2], live[len(live)-1]
	if end > day+day/5 || end > 64<<20 {
		t.Errorf("after %v of 7 parts %v bytes live", len(live), live)
	}
}

// A calendar window is decided on the log's own dates, and Nothing refuses all.
func TestACalendarWindowHasTheDatesOfTheLog(t *testing.T) {
	var hits []any
	for _, at := range []string{"2026-02-27T10:00:00Z", "2026-02-28T15:59:59Z", "2026-02-28T15:59:59.5Z", "2026-02-28T16:00:00Z", "2026-03-31T15:59:59Z", "2026-03-31T16:00:00Z"} {
		hits = append(hits, at, "a")
	}
	for text, want := range map[string]struct {
		refused, never int64
		wait           time.Duration
	}{
		"CalendarWindow(2, month, Asia/Shanghai)":          {1, 0, 500 * time.Millisecond},
		"CalendarWindow(1, month.from(28), Asia/Shanghai)": {3, 0, 27*24*time.Hour + 500*time.Millisecond},
		"CalendarWindow(1, month.from(31), UTC)":           {3, 0, (30*24+8)*time.Hour + 500*time.Millisecond},
		"Nothing()":                                        {6, 6, 0},
	} {
		limit, err := core.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, lines(hits...), trial.Options{Candidates: []trial.Candidate{{Limits: []core.Limit{limit}}}})
		if l := r.Limits[0]; l.Refused != want.refused || l.Never != want.never || l.LongestWait != want.wait || l.Text != text {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
}
