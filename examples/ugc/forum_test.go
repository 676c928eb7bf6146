package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// All frameworks serve the same forum: whatever is tested here is tested in
// each, over a real connection.
func inAllFrameworks(t *testing.T, test func(t *testing.T, f client)) {
	for name, fw := range frameworks {
		t.Run(name, func(t *testing.T) {
			store, _ := newStore(t.Context(), "")
			srv := httptest.NewServer(served(slog.New(slog.DiscardHandler), fw.routes(newSite(fw.title, "in this process", newLimits(store)))))
			t.Cleanup(srv.Close)
			test(t, client{t, srv.URL})
		})
	}
}

type client struct {
	t   *testing.T
	url string
}

type response struct {
	*http.Response
	body string
}

func (c client) do(method, path, user, body string) response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if user != "" {
		r.Header.Set(userHeader, user)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response{resp, string(b)}
}

func (c client) show(id string) post {
	c.t.Helper()
	resp := c.do("GET", "/posts/"+id, "", "")
	c.status(resp, http.StatusOK)
	for name := range resp.Header {
		if strings.Contains(name, "limit") || name == "Retry-After" {
			c.t.Errorf("GET is not limited and yet bears %s", name)
		}
	}
	var p post
	c.decode(resp, &p)
	return p
}

func (c client) status(resp response, want int) {
	c.t.Helper()
	if resp.StatusCode != want {
		c.t.Fatalf("status %d, want %d; %s", resp.StatusCode, want, resp.body)
	}
}

func (c client) decode(resp response, v any) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(resp.body), v); err != nil {
		c.t.Fatalf("%v in %q", err, resp.body)
	}
}

func (c client) header(resp response, name, want string) {
	c.t.Helper()
	if got := resp.Header.Get(name); got != want {
		c.t.Errorf("%s: %q, want %q", name, got, want)
	}
}

const (
	limited = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	banned  = "https://github.com/tailcut/tailcut#banned"
)

// refused checks a refusal of that kind. retry is what it would say if no time had passed since
// the instant begun, when the first of the actions was sent.
func (c client) refused(resp response, quota int, retry time.Duration, begun time.Time, kind string) {
	c.t.Helper()
	c.status(resp, http.StatusTooManyRequests)
	c.header(resp, "X-RateLimit-Limit", strconv.Itoa(quota))
	c.header(resp, "X-RateLimit-Remaining", "0")
	c.header(resp, "Cache-Control", "no-store")
	c.header(resp, "Content-Type", "application/problem+json")

	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	least, most := ceil(retry-time.Since(begun)), ceil(retry)
	if err != nil || after < least || after > most {
		c.t.Errorf("Retry-After: %q, want %d to %d", resp.Header.Get("Retry-After"), least, most)
	}
	var problem struct {
		Type, Title, Detail string
		Status              int
		RetryAfter          int `json:"retry_after"`
	}
	c.decode(resp, &problem)
	if problem.Status != 429 || problem.Type != kind || problem.Title == "" || problem.Detail == "" || problem.RetryAfter != after {
		c.t.Errorf("the problem is %+v, with Retry-After %d", problem, after)
	}
}

func ceil(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

func TestSixReplies(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		begun := time.Now()
		for i := range 5 {
			resp := c.do("POST", "/posts/1/replies", "alice", `{"text":"me too"}`)
			c.status(resp, http.StatusCreated)
			c.header(resp, "X-RateLimit-Limit", "5")
			c.header(resp, "X-RateLimit-Remaining", strconv.Itoa(4-i))
			c.header(resp, "Retry-After", "")
		}
		c.refused(c.do("POST", "/posts/1/replies", "alice", `{"text":"one too many"}`), 5, time.Minute, begun, limited)
		if p := c.show("1"); len(p.Replies) != 5 || p.Replies[4] != (reply{5, "alice", "me too"}) {
			t.Errorf("the post's replies are %+v", p.Replies)
		}
		// What one user did is nothing to another, nor to one without a name. Characters are counted, not bytes.
		c.status(c.do("POST", "/posts/1/replies", strings.Repeat("钱", maxAuthor), `{"text":"`+strings.Repeat("好", maxText)+`"}`), http.StatusCreated)
		c.status(c.do("POST", "/posts/1/replies", "", `{"text":"hello"}`), http.StatusCreated)
		if p := c.show("1"); len(p.Replies) != 7 || p.Replies[6].Author != "anonymous" {
			t.Errorf("the post's replies are %+v", p.Replies)
		}
	})
}

func TestSixteenLikes(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		likes := 0
		for end := time.Now().Add(20 * time.Second); ; {
			user, begun := fmt.Sprint("alice", likes), time.Now()
			for range 15 {
				resp := c.do("POST", "/posts/1/likes", user, "")
				c.status(resp, http.StatusOK)
				likes++
				var got struct{ Likes int }
				if c.decode(resp, &got); got.Likes != likes {
					t.Errorf("%d likes, want %d", got.Likes, likes)
				}
			}
			resp := c.do("POST", "/posts/1/likes", user, "")
			if time.Since(begun) > time.Second && time.Now().Before(end) {
				// A busy machine: it may have waited, and passed. The next user tries.
				if resp.StatusCode == http.StatusOK {
					likes++
				}
				continue
			}
			c.refused(resp, 15, 2*time.Second, begun, limited)
			c.header(resp, "Retry-After", "2")
			break
		}
		if p := c.show("1"); p.Likes != likes {
			t.Errorf("the post has %d likes, want %d", p.Likes, likes)
		}
	})
}

func TestFourPosts(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		begun := time.Now()
		for i := range 3 {
			resp := c.do("POST", "/posts", "alice", `{"text":"hello"}`)
			c.status(resp, http.StatusCreated)
			c.header(resp, "X-RateLimit-Limit", "10")
			c.header(resp, "X-RateLimit-Remaining", strconv.Itoa(2-i))
			c.header(resp, "Location", "/posts/"+strconv.Itoa(i+2))
		}
		c.refused(c.do("POST", "/posts", "alice", `{"text":"hello"}`), 10, 6*time.Second, begun, limited)
		if p := c.show("4"); p.ID != 4 || p.Author != "alice" || p.Text != "hello" {
			t.Errorf("the third post is %+v", p)
		}
		c.status(c.do("GET", "/posts/5", "", ""), http.StatusNotFound)
	})
}

// Five refusals are a minute's ban, told as such.
func TestAUserWhoDoesNotStopIsBanned(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		begun := time.Now()
		for i := range 11 {
			resp := c.do("POST", "/posts/1/replies", "alice", `{"text":"me too"}`)
			switch {
			case i < 5:
				c.status(resp, http.StatusCreated)
			case i < 9:
				c.refused(resp, 5, time.Minute, begun, limited)
			default:
				c.refused(resp, 5, time.Minute, begun, banned)
			}
		}
		c.status(c.do("POST", "/posts/1/replies", "xiaoming", `{"text":"hello"}`), http.StatusCreated)
		c.status(c.do("POST", "/posts", "alice", `{"text":"hello"}`), http.StatusCreated) // it is from replies only
	})
}

// A like that has to wait for less than a second waits.
func TestALikeWaits(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		t.Parallel()
		begun := time.Now()
		for range 15 {
			c.status(c.do("POST", "/posts/1/likes", "alice", ""), http.StatusOK)
		}
		time.Sleep(1200 * time.Millisecond)
		resp := c.do("POST", "/posts/1/likes", "alice", "")
		c.status(resp, http.StatusOK)
		if after := time.Since(begun); after < 2*time.Second {
			t.Errorf("it passed after %s", after)
		}
		if p := c.show("1"); p.Likes != 16 {
			t.Errorf("the post has %d likes, want 16", p.Likes)
		}
	})
}

// A post that failed costs nothing; only what the forum keeps is counted.
func TestAFailedPostIsGivenBack(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		for range 5 {
			resp := c.do("POST", "/posts", "alice", `{"text":""}`)
			c.status(resp, http.StatusBadRequest)
			c.header(resp, "X-RateLimit-Remaining", "2") // as charged
		}
		for i := range 3 {
			resp := c.do("POST", "/posts", "alice", `{"text":"hello"}`)
			c.status(resp, http.StatusCreated)
			c.header(resp, "X-RateLimit-Remaining", strconv.Itoa(2-i))
		}
		// Likes and replies are not given back.
		c.status(c.do("POST", "/posts/9/replies", "alice", `{"text":"hello"}`), http.StatusNotFound)
		c.header(c.do("POST", "/posts/1/replies", "alice", `{"text":"hello"}`), "X-RateLimit-Remaining", "3")
	})
}

// The log tells of what was refused and of what the shadow limit would refuse,
// and of no user.
func TestObserved(t *testing.T) {
	var log bytes.Buffer
	store, _ := newStore(t.Context(), "")
	l := newLimits(observed(store, slog.New(slog.NewTextHandler(&log, nil))))
	for range 11 {
		if _, err := l.reply.Allow(t.Context(), "alice", "reply"); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, said, _ := strings.Cut(strings.TrimSpace(line), " action=")
		got = append(got, said)
	}
	want := []string{"reply allowed=true reason=near limit=shadow:sliding:1m:three bans=0"}
	for range 2 {
		want = append(want, "reply allowed=true reason=shadowed limit=shadow:sliding:1m:three bans=0")
	}
	for range 4 {
		want = append(want, "reply allowed=false reason=limited limit=sliding:1m bans=0")
	}
	for range 2 {
		want = append(want, "reply allowed=false reason=banned limit=ban bans=1")
	}
	if !slices.Equal(got, want) {
		t.Errorf("log:\n got %q\nwant %q", got, want)
	}
}

func TestWhatCannotBeServed(t *testing.T) {
	for _, test := range []struct {
		name, method, path, user, body string
		status                         int
	}{
		{"no such post", "GET", "/posts/2", "", "", 404},
		{"not a number", "GET", "/posts/first", "", "", 404},
		{"reply to no post", "POST", "/posts/2/replies", "", `{"text":"hello"}`, 404},
		{"like of no post", "POST", "/posts/0/likes", "", "", 404},
		{"not JSON", "POST", "/posts", "", `{"text":`, 400},
		{"nothing", "POST", "/posts", "", "", 400},
		{"two values", "POST", "/posts", "", `{"text":"a"}{"text":"b"}`, 400},
		{"no text", "POST", "/posts/1/replies", "", `{"text":"  "}`, 400},
		{"long text", "POST", "/posts", "", `{"text":"` + strings.Repeat("好", maxText+1) + `"}`, 400},
		{"long name", "POST", "/posts", strings.Repeat("钱", maxAuthor+1), `{"text":"a"}`, 400},
		{"large body", "POST", "/posts", "", `{"text":"` + strings.Repeat("x", maxBody) + `"}`, 413},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			inAllFrameworks(t, func(t *testing.T, c client) {
				resp := c.do(test.method, test.path, test.user, test.body)
				c.status(resp, test.status)
				var got struct{ Error string }
				if c.decode(resp, &got); got.Error == "" {
					t.Errorf("no reason in %q", resp.body)
				}
				if limited := resp.Header.Get("X-RateLimit-Limit") != ""; limited != (test.method == "POST") {
					t.Errorf("X-RateLimit-Limit is there: %t", limited)
				}
			})
		})
	}
}

// A text must not keep the body alive that it was cut from.
func TestAShortTextTakesLittleMemory(t *testing.T) {
	f := newForum()
	body := `{"text": "` + strings.Repeat(" ", maxBody-100) + `x"}`
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const posts = 500
	for range posts {
		r := httptest.NewRequest("POST", "/posts", strings.NewReader(body))
		r.Header.Set(userHeader, strings.Repeat("\u00a0", 4000)+"alice")
		if a := f.createPost(r, ""); a.status != http.StatusCreated {
			t.Fatal(a)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / posts; each > 1000 {
		t.Errorf("a post of one character takes %d bytes", each)
	}
	runtime.KeepAlive(f)
}

func TestForumIsBounded(t *testing.T) {
	f := newForum()
	for range maxReplies {
		if _, err := f.addReply(1, "alice", "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.addReply(1, "alice", "hello"); err != errFull {
		t.Errorf("reply %d: %v", maxReplies+1, err)
	}
	for range maxPosts - 1 {
		if _, err := f.addPost("alice", "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.addPost("alice", "hello"); err != errFull {
		t.Errorf("post %d: %v", maxPosts+1, err)
	}
	if a := failed(errFull); a.status != http.StatusInsufficientStorage {
		t.Errorf("a full forum answers %d", a.status)
	}
}
