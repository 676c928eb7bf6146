package nethttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
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
