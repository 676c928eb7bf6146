package nethttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// Two replies a minute, per user.
func ExampleLimit() {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(2, time.Minute)))
	user := keyfuncs.Header("X-User-ID") // set by our gateway, which checked it

	mux := http.NewServeMux()
	mux.Handle("POST /posts/{id}/replies",
		nethttp.Limit(replies, user, keyfuncs.Action("reply"))(http.HandlerFunc(reply201)))

	for range 3 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/posts/42/replies", nil)
		r.Header.Set("X-User-ID", "alice")
		mux.ServeHTTP(w, r)
		fmt.Printf("%d, remaining %s, retry after %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 201, remaining 1, retry after ""
	// 201, remaining 0, retry after ""
	// 429, remaining 0, retry after "60"
}

func reply201(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// A user may have two exports in progress, whose slots are free when the handler returns.
func ExampleLimit_inFlight() {
	exports := core.Must(core.New(memorystore.New(nil), core.InFlight(2), core.SlidingWindow(100, time.Hour)))
	var h http.Handler
	send := func() {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/exports", nil)
		r.Header.Set("X-User-ID", "alice")
		h.ServeHTTP(w, r)
		fmt.Printf("%d, retry after %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	atOnce := 0
	h = nethttp.Limit(exports, keyfuncs.Header("X-User-ID"), keyfuncs.Action("export"))(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) {
			if atOnce++; atOnce <= 2 {
				send() // while this one is in progress
			}
		}))
	send()
	send()
	// Output:
	// 429, retry after "1"
	// 200, retry after ""
	// 200, retry after ""
	// 200, retry after ""
}

// Two posts a minute per user, and three per organization. A refused post is charged to neither. The two
// actions differ, so a user and an organization may have the same id.
func ExampleLimitAll() {
	store := memorystore.New(nil)
	perUser := core.Must(core.New(store, core.SlidingWindow(2, time.Minute)))
	perOrg := core.Must(core.New(store, core.SlidingWindow(3, time.Minute)))

	mux := http.NewServeMux()
	mux.Handle("POST /posts", nethttp.LimitAll(
		nethttp.By(perUser, keyfuncs.Header("X-User-ID"), keyfuncs.Action("post")), // both set by our gateway
		nethttp.By(perOrg, keyfuncs.Header("X-Org-ID"), keyfuncs.Action("org-post")),
	)(http.HandlerFunc(reply201)))

	for _, user := range []string{"alice", "alice", "alice", "bob", "bob"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/posts", nil)
		r.Header.Set("X-User-ID", user)
		r.Header.Set("X-Org-ID", "org-7")
		mux.ServeHTTP(w, r)
		fmt.Printf("%s: %d, limit %s, remaining %s\n", user, w.Code, w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// alice: 201, limit 2, remaining 1
	// alice: 201, limit 2, remaining 0
	// alice: 429, limit 2, remaining 0
	// bob: 201, limit 3, remaining 0
	// bob: 429, limit 3, remaining 0
}

// Five replies a minute per user and 100 an hour per address. Each limit has an action of its
// own. Otherwise a user named like an address would share that address's ban.
func ExampleLimit_byUserAndAddress() {
	store := memorystore.New(nil)
	bans := core.BanPolicy{Refusals: 10, Within: time.Minute, Bans: []time.Duration{10 * time.Minute}}
	perUser := core.Must(core.Must(core.New(store, core.SlidingWindow(5, time.Minute))).With(bans))
	perAddress := core.Must(core.Must(core.New(store, core.SlidingWindow(100, time.Hour))).With(bans))

	h := nethttp.Limit(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("reply-address"))(http.HandlerFunc(reply201))
	h = nethttp.Limit(perUser, keyfuncs.Header("X-User-ID"), keyfuncs.Action("reply"))(h)

	send := func(user, from string) int {
		r := httptest.NewRequest("POST", "/posts/42/replies", nil)
		r.Header.Set("X-User-ID", user)
		r.RemoteAddr = from + ":4711"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for range 15 {
		send("203.0.113.77", "6.6.6.6") // until the user of that name is banned
	}
	fmt.Println(send("203.0.113.77", "6.6.6.6"))
	fmt.Println(send("alice", "203.0.113.77")) // has done nothing yet
	// Output:
	// 429
	// 201
}

// At a login no user is authenticated, and the name is a claim. So one limit is on the name
// and the address together: another address cannot lock the name's owner out. It counts failures only. One
// is on the address alone, which stops it from trying many names. The innermost is on all users
// together.
func ExampleLimit_login() {
	store := memorystore.New(nil)
	perName := core.Must(core.New(store, core.SlidingWindow(5, 15*time.Minute)))
	perAddress := core.Must(core.New(store, core.SlidingWindow(20, 15*time.Minute)))
	together := core.Must(core.New(store, core.Funnel(1000, core.Per(100, time.Second))))

	name := keyfuncs.BasicAuthUser()
	var login http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "wrong password", http.StatusUnauthorized)
	})
	login = nethttp.Limit(together, keyfuncs.Everyone, keyfuncs.Action("login-all"))(login)
	wrong := func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }
	login = nethttp.Config{OnlyFailures: wrong}.Limit(perName, keyfuncs.Join(name, keyfuncs.RemoteIP), keyfuncs.Action("login"))(login)
	login = nethttp.Limit(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("login-address"))(login)

	try := func(name, from string) {
		r := httptest.NewRequest("POST", "/login", nil)
		r.SetBasicAuth(name, "a guess")
		r.RemoteAddr = from + ":4711"
		w := httptest.NewRecorder()
		login.ServeHTTP(w, r)
		fmt.Println(name, "from", from, w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	for range 6 {
		try("alice", "6.6.6.6")
	}
	try("alice", "203.0.113.9") // the owner, at home
	// Output:
	// alice from 6.6.6.6 401 4
	// alice from 6.6.6.6 401 4
	// alice from 6.6.6.6 401 3
	// alice from 6.6.6.6 401 2
	// alice from 6.6.6.6 401 1
	// alice from 6.6.6.6 429 0
	// alice from 203.0.113.9 401 4
}

// A limit on all users together, for an expensive action.
func ExampleLimit_everyone() {
	reports := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(time.Minute))))
	h := nethttp.Limit(reports, keyfuncs.Everyone, keyfuncs.Action("report"))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a report") }))

	for _, user := range []string{"alice", "xiaoming"} {
		r := httptest.NewRequest("GET", "/report", nil)
		r.Header.Set("X-User-ID", user)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(user, w.Code)
	}
	// Output:
	// alice 200
	// xiaoming 429
}

type userKey struct{}

// Recovery, CORS and authentication are outside of the mux. So a browser's script can read a
// refusal, and the limit knows the user. The limit is on a pattern of the mux, which is the
// action.
func ExampleLimit_mounting() {
	posts := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))

	mux := http.NewServeMux()
	mux.Handle("POST /posts",
		nethttp.Limit(posts, keyfuncs.ContextValue(userKey{}), keyfuncs.Route)(http.HandlerFunc(reply201)))
	server := recovery(cors(auth(mux)))

	r := httptest.NewRequest("POST", "/posts", nil)
	r.Header.Set("Authorization", "Bearer of alice")
	r.Header.Set("Origin", "https://app.example")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	fmt.Println(w.Header().Get("Access-Control-Expose-Headers"))
	// Output:
	// 201 4
	// Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy
}

func recovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v == http.ErrAbortHandler {
				panic(v)
			} else if v != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// cors does in short what rs/cors does with Options{ExposedHeaders: nethttp.ExposedHeaders()}.
func cors(next http.Handler) http.Handler {
	exposed := strings.Join(nethttp.ExposedHeaders(), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://app.example")
		w.Header().Set("Access-Control-Expose-Headers", exposed)
		next.ServeHTTP(w, r)
	})
}

func auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer of ")
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// Plans, a cost by the request and your own answer. The windows of the two plans
// share their state, so a user who upgrades keeps what was used. A plan without a limit
// is skipped.
func ExampleConfig() {
	store := memorystore.New(nil)
	free := core.Must(core.New(store, core.FixedWindow(10, time.Hour)))
	paid := core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))

	exports := nethttp.Config{
		Limiter: func(r *http.Request) (*core.Limiter, error) {
			switch plan := r.Header.Get("X-Plan"); plan {
			case "free":
				return free, nil
			case "paid":
				return paid, nil
			default:
				return nil, fmt.Errorf("no such plan: %q", plan) // 500, and in the log
			}
		},
		Skip: func(r *http.Request) bool { return r.Header.Get("X-Plan") == "unlimited" },
		Cost: func(r *http.Request) (int, error) {
			if r.FormValue("format") == "pdf" {
				return 8, nil
			}
			return 1, nil
		},
		Deny: func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprintf(w, "upgrade, or come back in %s", d.RetryAfter.Round(time.Minute))
		},
	}
	h := exports.Limit(free, keyfuncs.Header("X-User-ID"), keyfuncs.Action("export"))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "an export") }))

	for _, plan := range []string{"free", "free", "paid", "unlimited"} {
		r := httptest.NewRequest("GET", "/export?format=pdf", nil)
		r.Header.Set("X-User-ID", "alice")
		r.Header.Set("X-Plan", plan)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(plan, w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Body)
	}
	// Output:
	// free 200 2 an export
	// free 429 2 upgrade, or come back in 1h0m0s
	// paid 200 984 an export
	// unlimited 200  an export
}

// A funnel that smooths: a request that may pass within a second waits for its turn. Any
// other is refused.
func ExampleConfig_maxWait() {
	likes := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(100*time.Millisecond))))
	h := nethttp.Config{MaxWait: time.Second}.Limit(likes, keyfuncs.RemoteIP, keyfuncs.Action("like"))(http.HandlerFunc(reply201))

	begun := time.Now()
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/likes", nil))
		fmt.Println(w.Code)
	}
	fmt.Println("in at least 200 ms:", time.Since(begun) >= 200*time.Millisecond)
	// Output:
	// 201
	// 201
	// 201
	// in at least 200 ms: true
}

// A request that the server fails to serve costs nothing.
func ExampleConfig_finalCost() {
	exports := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(2, time.Hour)))
	export := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("broken") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := nethttp.Config{FinalCost: func(_ *http.Request, status int) int {
		if status >= 500 {
			return 0
		}
		return 1
	}}.Limit(exports, keyfuncs.RemoteIP, keyfuncs.Action("export"))(export)

	for _, target := range []string{"/?broken", "/?broken", "/?broken", "/", "/", "/"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", target, nil))
		fmt.Println(target, w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// /?broken 500 1
	// /?broken 500 1
	// /?broken 500 1
	// / 200 1
	// / 200 0
	// / 429 0
}

// At a login right passwords count nothing, and five wrong ones lock the name for the client's address.
func ExampleConfig_onlyFailures() {
	failures := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, 15*time.Minute)))
	checkPassword := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	h := nethttp.Config{OnlyFailures: func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }}.
		Limit(failures, keyfuncs.Join(keyfuncs.BasicAuthUser(), keyfuncs.RemoteIP), keyfuncs.Action("login"))(checkPassword)

	for _, try := range []struct {
		password string
		times    int
	}{{"secret", 100}, {"a guess", 5}, {"secret", 1}} {
		codes := map[int]int{}
		for range try.times {
			r := httptest.NewRequest("POST", "/login", nil)
			r.SetBasicAuth("alice", try.password)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			codes[w.Code]++
		}
		fmt.Println(try.password, codes)
	}
	// Output:
	// secret map[200:100]
	// a guess map[401:5]
	// secret map[429:1]
}

// Plans with funnels. A funnel of other numbers is another funnel, so each plan has its
// own state: a user who upgrades begins with a full quota, and a user who goes back finds
// the old one as it was. Windows of one length share their state, as in the example of Config.
func ExampleConfig_plans() {
	store := memorystore.New(nil)
	plans := map[string]*core.Limiter{
		"free": core.Must(core.New(store, core.Funnel(2, core.Per(2, time.Hour)))),
		"paid": core.Must(core.New(store, core.Funnel(100, core.Per(100, time.Hour)))),
	}
	h := nethttp.Config{
		Limiter: func(r *http.Request) (*core.Limiter, error) {
			if l, ok := plans[r.Header.Get("X-Plan")]; ok {
				return l, nil
			}
			return nil, fmt.Errorf("no such plan: %q", r.Header.Get("X-Plan"))
		},
	}.Limit(plans["free"], keyfuncs.Header("X-User-ID"), keyfuncs.Action("export"))(http.HandlerFunc(reply201))

	for _, plan := range []string{"free", "free", "free", "paid", "free"} {
		r := httptest.NewRequest("POST", "/export", nil)
		r.Header.Set("X-User-ID", "alice")
		r.Header.Set("X-Plan", plan)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(plan, w.Code, w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	// Output:
	// free 201 1 of 2
	// free 201 0 of 2
	// free 429 0 of 2
	// paid 201 99 of 100
	// free 429 0 of 2
}

// To change limits while the program runs, keep the limiter in an atomic.Pointer that
// Config.Limiter reads. Past actions count towards the new numbers.
func ExampleConfig_changes() {
	store := memorystore.New(nil)
	perHour := func(n int) *core.Limiter { return core.Must(core.New(store, core.SlidingWindow(n, time.Hour))) }
	var now atomic.Pointer[core.Limiter]
	now.Store(perHour(5))

	h := nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return now.Load(), nil }}.
		Limit(now.Load(), keyfuncs.RemoteIP, keyfuncs.Action("export"))(http.HandlerFunc(reply201))
	ask := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/export", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	for range 4 {
		ask()
	}
	now.Store(perHour(3)) // too many already
	ask()
	now.Store(perHour(8))
	ask()
	// Output:
	// 201 4 of 5
	// 201 3 of 5
	// 201 2 of 5
	// 201 1 of 5
	// 429 0 of 3
	// 201 3 of 8
}

// With Keep the handler knows how much is left.
func ExampleDecision() {
	likes := core.Must(core.New(memorystore.New(nil), core.Funnel(15, core.Per(30, time.Minute))))
	h := nethttp.Config{Keep: true}.Limit(likes, keyfuncs.RemoteIP, keyfuncs.Action("like"))(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			d, _ := nethttp.Decision(r)
			fmt.Printf("%d of %d likes are left\n", d.Remaining, d.Limit)
		}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/likes", nil))
	// Output: 14 of 15 likes are left
}

// A proxy whose backend limits too: the client gets one set of headers, the proxy's.
func ExampleExposedHeaders() {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "99")
	}))
	defer backend.Close()
	target, _ := url.Parse(backend.URL)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(response *http.Response) error {
			for _, name := range nethttp.ExposedHeaders() {
				if name != "Retry-After" {
					response.Header.Del(name)
				}
			}
			return nil
		},
	}
	calls := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	h := nethttp.Limit(calls, keyfuncs.RemoteIP, keyfuncs.Action("call"))(proxy)

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code, w.Header().Values("X-RateLimit-Remaining"))
	// Output: 200 [4]
}

// To test limits without waiting, make the memorystore in a bubble of testing/synctest. It
// then uses the bubble's clock, and a sleep takes no time.
func TestTheLimitOnReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
		h := nethttp.Limit(replies, keyfuncs.Header("X-User-ID"), keyfuncs.Action("reply"))(http.HandlerFunc(reply201))
		post := func() int {
			r := httptest.NewRequest("POST", "/posts/42/replies", nil)
			r.Header.Set("X-User-ID", "alice")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}

		for i := range 5 {
			if code := post(); code != http.StatusCreated {
				t.Fatalf("reply %d: status %d", i+1, code)
			}
			time.Sleep(time.Second)
		}
		if code := post(); code != http.StatusTooManyRequests {
			t.Errorf("the sixth reply: status %d", code)
		}
		time.Sleep(55 * time.Second) // the first is now a minute ago
		if code := post(); code != http.StatusCreated {
			t.Errorf("a minute later: status %d", code)
		}
	})
}
