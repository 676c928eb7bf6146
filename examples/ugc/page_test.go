package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

func TestThePageIsServed(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		for path, kind := range map[string]string{
			"/":               "text/html; charset=utf-8",
			"/page/style.css": "text/css; charset=utf-8",
			"/page/page.js":   "text/javascript; charset=utf-8",
			"/page/icon.svg":  "image/svg+xml",
		} {
			resp := c.do("GET", path, "", "")
			c.status(resp, http.StatusOK)
			c.header(resp, "Content-Type", kind)
			c.header(resp, "Content-Security-Policy", pagePolicy)
			c.header(resp, "X-Content-Type-Options", "nosniff")
		}
		for _, path := range []string{"/page/", "/page/none.js", "/page/../main.go", "/page.go"} {
			if resp := c.do("GET", path, "", ""); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
				t.Errorf("GET %s: %d", path, resp.StatusCode)
			}
		}
		page := c.do("GET", "/", "", "").body
		for _, want := range []string{
			"core.SlidingWindow(5, time.Minute)", "core.Funnel(15, core.Per(30, time.Minute))", "core.TokenBucket(10,",
			"The limits are kept in this process", `data-max-wait="1000"`,
		} {
			if !strings.Contains(page, want) {
				t.Errorf("the page does not have %s", want)
			}
		}
	})
}

// The browser is told to refuse what is inline or from elsewhere, so the page must have none.
func TestThePageLoadsNothingElse(t *testing.T) {
	if strings.Contains(pagePolicy, "unsafe") || strings.Contains(pagePolicy, "*") || strings.Contains(pagePolicy, "http") {
		t.Errorf("the policy is %s", pagePolicy)
	}
	foreign := regexp.MustCompile(`(https?:)?//[\w.]+\.\w+|\son\w+=|\sstyle=|@import|data:`)
	err := fs.WalkDir(pageFiles, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(pageFiles, path)
		text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "")
		if found := foreign.FindString(text); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c client) standing(user string) status {
	c.t.Helper()
	resp := c.do("GET", "/status", user, "")
	c.status(resp, http.StatusOK)
	for name := range resp.Header {
		if strings.Contains(name, "limit") || name == "Retry-After" {
			c.t.Errorf("GET /status is not limited and yet bears %s", name)
		}
	}
	var s status
	c.decode(resp, &s)
	return s
}

func TestStatusShowsTheLimitsOfAUser(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		for range 30 { // asking is free
			c.standing("alice")
		}
		begun := time.Now()
		for range 7 {
			c.do("POST", "/posts/1/replies", "alice", `{"text":"me too"}`)
		}
		c.status(c.do("POST", "/posts/1/likes", "alice", ""), http.StatusOK)
		c.status(c.do("POST", "/posts", "alice", `{"text":"hello"}`), http.StatusCreated)

		s := c.standing("alice")
		past := time.Since(begun)
		near := func(what string, got float64, whole time.Duration) {
			t.Helper()
			if most := millis(whole); got > most || got < most-millis(past)-1 {
				t.Errorf("%s: %v ms, want %v less at most %s", what, got, most, past)
			}
		}
		replies := s.Actions["reply"]
		if len(replies.Limits) != 2 {
			t.Fatalf("replies: %+v", replies)
		}
		five, three := replies.Limits[0], replies.Limits[1]
		if five.Quota != 5 || five.Remaining != 0 || five.Shadow || !three.Shadow || five.Unit != 0 {
			t.Errorf("replies: %+v", replies)
		}
		near("the next reply", five.Retry, time.Minute)
		near("all replies", five.Reset, time.Minute)
		if replies.Ban.Banned || replies.Ban.Refusals != 2 {
			t.Errorf("the ban: %+v", replies.Ban)
		}
		if like := s.Actions["like"].Limits[0]; like.Quota != 15 || like.Remaining < 14 || like.Retry != 0 || like.Unit != 2000 {
			t.Errorf("likes: %+v", like)
		}
		post := s.Actions["post"].Limits
		if len(post) != 2 || post[0].Quota != 10 || post[0].Remaining != 2 || post[1].Quota != 100 || post[1].Remaining != 99 {
			t.Errorf("posts: %+v", post)
		}
		if other := c.standing("xiaoming").Actions["reply"]; other.Limits[0].Remaining != 5 || other.Ban.Refusals != 0 {
			t.Errorf("another user's replies: %+v", other)
		}

		for range 5 {
			c.do("POST", "/posts/1/replies", "alice", `{"text":"me too"}`)
		}
		ban := c.standing("alice").Actions["reply"].Ban
		if !ban.Banned || ban.Level != 1 {
			t.Errorf("the ban: %+v", ban)
		}
		past = time.Since(begun)
		near("the ban", ban.Retry, time.Minute)
	})
}

func TestStatusWithoutAnAnswer(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		resp := c.do("GET", "/status", "a,b", "")
		c.status(resp, http.StatusBadRequest)
		if !strings.Contains(resp.body, "name") {
			t.Errorf("%q does not say what is wrong", resp.body)
		}
	})
	for name, fw := range frameworks {
		t.Run(name+"-store-fails", func(t *testing.T) {
			srv := httptest.NewServer(fw.routes(newSite(fw.title, "nowhere", newLimits(broken{}))))
			t.Cleanup(srv.Close)
			c := client{t, srv.URL}
			c.status(c.do("GET", "/status", "alice", ""), http.StatusServiceUnavailable)
		})
	}
}

// A broken store has no answer.
type broken struct{}

func (broken) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{}, nil, errors.New("the store is down")
}

func (broken) Reset(context.Context, string, string, []core.Limit) error {
	return errors.New("the store is down")
}

func TestTheNewestPostsAreListed(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		var before, after listing
		resp := c.do("GET", "/posts", "", "")
		c.status(resp, http.StatusOK)
		c.decode(resp, &before)
		c.status(c.do("POST", "/posts", "alice", `{"text":"hello"}`), http.StatusCreated)
		c.decode(c.do("GET", "/posts", "", ""), &after)
		if len(before.Posts) != 1 || len(after.Posts) != 2 || after.Posts[0].Text != "hello" || after.Posts[0].Replies == nil {
			t.Errorf("the posts were %+v and are %+v", before, after)
		}
		if after.Version == before.Version || c.standing("").Version != after.Version {
			t.Errorf("the version was %d and is %d, the status says %d", before.Version, after.Version, c.standing("").Version)
		}
	})
}

// A list is short however much there is.
func TestAListIsBounded(t *testing.T) {
	f := newForum()
	for i := range 50 {
		if _, err := f.addPost("alice", fmt.Sprint("post ", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxReplies {
		if _, err := f.addReply(51, "alice", fmt.Sprint("reply ", i)); err != nil {
			t.Fatal(err)
		}
	}
	list := f.newest()
	if len(list.Posts) != shownPosts || list.Posts[0].ID != 51 || list.Posts[0].Text != "post 49" {
		t.Fatalf("%d posts, the first is %+v", len(list.Posts), list.Posts[0])
	}
	first := list.Posts[0]
	if len(first.Replies) != shownReplies || first.Earlier != maxReplies-shownReplies || first.Replies[shownReplies-1].Text != "reply 99" {
		t.Errorf("%d replies, %d earlier", len(first.Replies), first.Earlier)
	}
}

// Never is a time too long for the page to count down; JSON must bear it all the same.
func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]float64{
		0: 0, time.Microsecond: 0.001, 1500 * time.Millisecond: 1500, core.Never: float64(math.MaxInt64) / 1e6,
	} {
		if got := millis(d); got != want {
			t.Errorf("%s is %v ms", d, got)
		}
	}
}

// A page of another site reaches this server if its name resolves to a loopback address. The
// browser then takes the two for one site.
func TestAnotherNameForLoopbackIsRefused(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		for host, want := range map[string]int{
			"127.0.0.1:8080": 200, "localhost:8080": 200, "[::1]:8080": 200, "localhost": 200, "127.0.0.1": 200,
			"evil.example:8080": 421, "evil.example": 421, "127.0.0.1.evil.example": 421, "192.0.2.1": 421,
		} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", c.url+"/posts", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("the host %q gets %d, want %d", host, resp.StatusCode, want)
			}
		}
	})
}

// A page of another site cannot act for its visitor, who is known by the address.
func TestOtherSitesCannotWrite(t *testing.T) {
	inAllFrameworks(t, func(t *testing.T, c client) {
		for _, path := range []string{"/posts", "/posts/1/replies", "/posts/1/likes"} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", c.url+path, strings.NewReader(`{"text":"hello"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "text/plain")
			r.Header.Set("Origin", "https://elsewhere.example")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden || resp.Header.Get("X-RateLimit-Limit") != "" {
				t.Errorf("POST %s: status %d, limit %q", path, resp.StatusCode, resp.Header.Get("X-RateLimit-Limit"))
			}
		}
		if p := c.show("1"); len(p.Replies) != 0 || p.Likes != 0 {
			t.Errorf("the post is %+v", p)
		}
	})
}
