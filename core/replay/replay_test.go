package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/replay"
)

var forum = []replay.Route{
	{Pattern: "POST /posts/{id}/replies", Action: "reply"},
	{Pattern: "POST /posts/{id}/likes", Action: "like"},
	{Pattern: "GET /posts/{id}", Action: "read"},
	{Pattern: "GET /{$}", Action: "read"},
}

// muxed asks an http.ServeMux for the action.
func muxed(t testing.TB, routes []replay.Route) func(method, path string) string {
	if len(routes) == 0 {
		return func(string, string) string { return replay.AllActions }
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

// The report of a log is what a recount of it gives, in every format, zipped or not.
func TestReportIsTheRecount(t *testing.T) {
	formats := [][]string{{"common"}, {"combined"}, {"nginx"}, {"caddy"}, {"envoy"}, {"slog"}, {"common", "combined", "nginx", "caddy", "envoy", "slog"}}
	for seed := range uint64(21) {
		of := formats[seed%uint64(len(formats))]
		t.Run(fmt.Sprint(seed, of), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 16))
			var routes []replay.Route
			if seed%2 == 0 {
				routes = forum
			}
			m := makeLog(r, 250, of)
			log := m.log
			if seed%3 == 0 {
				log = zip(t, log)
			}
			compare(t, r, log, recounted(m.log, muxed(t, routes)), routes)
		})
	}
}

func compare(t *testing.T, r *rand.Rand, log []byte, want *recount, routes []replay.Route) {
	t.Helper()
	actions := []string{"reply", "like", "read"}
	if routes == nil {
		actions = []string{replay.AllActions}
	}
	max, period := 1+r.IntN(6), time.Duration(1+r.IntN(600))*time.Second
	capacity, every := 1+r.IntN(6), time.Duration(1+r.IntN(60))*time.Second
	window, funnel := core.SlidingWindow(max, period), core.Funnel(capacity, core.Every(every))
	got, err := replay.Run(context.Background(), bytes.NewReader(log), replay.Options{
		Routes:     routes,
		Candidates: []replay.Candidate{{Limits: []core.Limit{window}}, {Action: actions[0], Limits: []core.Limit{funnel}}},
		ShowUsers:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]bool{}
	for _, of := range want.users {
		for u := range of {
			users[u] = true
		}
	}
	if a, b := [...]int{int(got.Lines), int(got.Skipped), int(got.Late), int(got.Unrouted), int(got.Requests), got.Users},
		[...]int{want.lines, want.skipped, want.late, want.left, want.requests, len(users)}; a != b {
		t.Errorf("lines, skipped, late, left out, requests, users are %v, want %v", a, b)
	}
	if got.From.UnixMicro() != want.from || got.To.UnixMicro() != want.to {
		t.Errorf("from %v to %v, want %v to %v", got.From, got.To, time.UnixMicro(want.from).UTC(), time.UnixMicro(want.to).UTC())
	}
	if len(got.Limits) != len(actions)+1 {
		t.Fatalf("%d rows of limits, want %d", len(got.Limits), len(actions)+1)
	}
	for i, row := range got.Limits {
		pass := sliding(max, period.Microseconds())
		if i == len(actions) {
			pass = leaking(capacity, every.Microseconds())
		}
		sameLimit(t, row, want.users[row.Action], pass)
	}
	sameFit(t, got, want)
}

func sameLimit(t *testing.T, got replay.LimitReport, users map[string][]int64, pass rule) {
	t.Helper()
	want, requests := judge(users, pass), 0
	for _, times := range users {
		requests += len(times)
	}
	hours := int64(0)
	for _, day := range got.Hours {
		for _, n := range day {
			hours += n
		}
	}
	if a, b := [...]int{int(got.Requests), int(got.Refused), got.Users, got.UsersRefused, int(hours)},
		[...]int{requests, want.refused, len(users), want.touched, want.refused}; a != b {
		t.Errorf("%s %s: requests, refused, users, users refused, refused by hour are %v, want %v", got.Action, got.Limit, a, b)
	}
	if got.LongestWait.Microseconds() != want.longest {
		t.Errorf("%s %s: the longest wait is %s, want %d µs", got.Action, got.Limit, got.LongestWait, want.longest)
	}
	for _, u := range got.Most {
		if int(u.Refused) != want.by[u.Name] {
			t.Errorf("%s %s: %s was refused %d times, want %d", got.Action, got.Limit, u.Name, u.Refused, want.by[u.Name])
		}
	}
	if len(got.Most) != min(10, want.touched) {
		t.Errorf("%s %s: %d users are listed, of %d", got.Action, got.Limit, len(got.Most), want.touched)
	}
}

// The fit is the least number that a naive replay finds by trying.
func sameFit(t *testing.T, got *replay.Report, want *recount) {
	t.Helper()
	for _, a := range got.Actions {
		users := want.users[a.Action]
		check := func(what any, got replay.Least, of func(n int) rule) {
			t.Helper()
			n := len(users)
			least := replay.Least{Nobody: leastNumber(users, 0, of), PerMille: leastNumber(users, n/1000, of), Percent: leastNumber(users, n/100, of)}
			if got != least {
				t.Errorf("%s %v: the fit is %v, want %v", a.Action, what, got, least)
			}
		}
		for _, w := range a.Windows {
			check(w.Period, w.Max, func(n int) rule { return sliding(n, w.Period.Microseconds()) })
			if last := w.Curve[len(w.Curve)-1]; last != (replay.Point{Max: w.Max.Nobody}) {
				t.Errorf("%s %s: the curve ends with %v", a.Action, w.Period, last)
			}
			for _, p := range w.Curve {
				if touched := judge(users, sliding(p.Max, w.Period.Microseconds())).touched; p.Share != float64(touched)/float64(a.Users) {
					t.Errorf("%s %s: max %d touches %g of %d users, want %d", a.Action, w.Period, p.Max, p.Share, a.Users, touched)
				}
			}
		}
		for _, f := range a.Funnels {
			n, d := map[core.Rate]int64{core.Every(time.Second): 1, core.Per(30, time.Minute): 2, core.Per(10, time.Minute): 6, core.Every(time.Minute): 60}[f.Rate], int64(1_000_000)
			check(f.Rate, f.Capacity, func(c int) rule { return leaking(c, n*d) })
		}
		if len(a.Windows) != 4 || len(a.Funnels) != 4 {
			t.Errorf("%s has %d windows and %d funnels", a.Action, len(a.Windows), len(a.Funnels))
		}
	}
}
