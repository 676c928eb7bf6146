package examples

// The README's snippets. The bodies of the Examples, without what they print, limitPosts and
// TestFiveRepliesAMinute stand in it as they stand here. readme_test.go checks that.

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

type userKey struct{} // your login stores the user's id in the request's context under this key

func limitPosts(rdb redis.UniversalClient, createPost http.Handler) http.Handler {
	// If Redis is down, each process counts by itself.
	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
	posts := core.Must(core.New(store,
		core.SlidingWindow(5, time.Minute),
		core.FixedWindow(100, 24*time.Hour)))

	user := keyfuncs.ContextValue(userKey{})
	return nethttp.Limit(posts, user, keyfuncs.Action("post"))(createPost)
}

func Example_who() {
	// The user's id, or for guests the address. Addresses begin with ~2: and so equal no user's id.
	userOrGuest := keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)

	// The address in X-Forwarded-For or Forwarded, if your own proxies in 10.1.2.0/24 have sent it.
	client := keyfuncs.ForwardedIP(netip.MustParsePrefix("10.1.2.0/24"))

	fmt.Println(userOrGuest(guest("203.0.113.9")))                     // ~2:203.0.113.9
	fmt.Println(userOrGuest(member("alice")))                          // alice
	fmt.Println(client(forwarded("10.1.2.3", "6.6.6.6, 203.0.113.9"))) // 203.0.113.9: the client made up 6.6.6.6
	// Output:
	// ~2:203.0.113.9 <nil>
	// alice <nil>
	// 203.0.113.9 <nil>
}

func TestFiveRepliesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
		for i := range 12 {
			if i == 6 {
				time.Sleep(time.Minute) // takes no time
			}
			d, err := replies.Allow(t.Context(), "alice", "reply")
			if err != nil || d.Allowed != (i != 5 && i != 11) { // all but the 6th and the 12th
				t.Fatalf("reply %d: %+v, %v", i+1, d, err)
			}
		}
	})
}

// The README shows the response to the sixth of five replies a minute.
func TestResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, time.December, 1, 12, 0, 0, 0, time.UTC))) // synctest begins in 2000
		h := nethttp.PerIP(5, time.Minute)(reply)
		var refused strings.Builder
		for i := range 6 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/replies", nil))
			if i < 5 {
				continue
			}
			fmt.Fprintf(&refused, "HTTP/1.1 %d %s\n", w.Code, http.StatusText(w.Code))
			if err := w.Header().Write(&refused); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&refused, "\n%s", w.Body)
		}
		if shown := fences(readme(t, "../README.md"), "http"); len(shown) != 1 || flat(shown[0]) != flat(refused.String()) {
			t.Errorf("the README shows %q, the response is\n%s", shown, &refused)
		}
	})
}

// On a busy machine each call of Redis may time out and be decided by the fallback, so only the first of
// the posts is sent.
func TestThePostsAreLimited(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	w := httptest.NewRecorder()
	limitPosts(rdb, createPost).ServeHTTP(w, member("alice"))
	if got := w.Header().Get("X-RateLimit-Remaining"); w.Code != http.StatusCreated || got != "4" {
		t.Errorf("got %d, remaining %q, want 4", w.Code, got)
	}
}
