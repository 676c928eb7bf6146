package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Every state passes axe and fits the window, wide and narrow, light and dark.
func TestLooks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := open(t, s.url)
	w.left("reply", 5)
	w.look("open")
	w.press("Reply")
	w.left("reply", 4)
	w.attempt("post", "Post")
	w.holdALike()
	w.keep("held")
	w.press("Hammer")
	w.state("reply", "banned")
	w.look("banned")
	for refused := false; !refused; refused = strings.Contains(w.tally("post"), "refused") {
		w.attempt("post", "Post")
	}
	w.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
	w.keep("picture")
	marks := strings.Repeat("\u0489", 400) + strings.Repeat("\u0301", 90) // nothing breaks such a line
	s.post(`{"text": "` + marks + `"}`)
	w.text(".post .text", marks)
	w.look("waiting")
	w.expectAway(true)
	s.kill()
	w.text("#away", "The server does not answer.")
	w.look("away")
}

// An action shows on the gauge, in the strip, in the forum and in the drawer.
func TestAUserActs(t *testing.T) {
	t.Parallel()
	inAllFrameworks(t, func(t *testing.T, s *server) {
		w := open(t, s.url)
		w.left("reply", 5)
		for action, want := range map[string]shown{
			"reply": {"open", 5, 5, 0}, "like": {"open", 15, 15, 0}, "post": {"open", 10, 3, 0},
		} {
			if got := w.gauge(action); got != want {
				t.Errorf("%s: %+v, want %+v", action, got, want)
			}
		}

		w.press("Reply")
		w.left("reply", 4)
		w.text(".replies li", "alice me too")
		w.text(`[data-lane="reply"]`, "1 passed")
		for range 4 { // one comes back every two seconds
			w.press("Like")
		}
		w.text(".likes", "4 likes")
		w.sees(`document.querySelector('[data-action="like"]').dataset.remaining < 15`)
		w.types("#text", "Good morning.")
		w.press("Post")
		w.sees(`document.querySelector('[data-action="post"]').dataset.remaining < 3`)
		w.text(".post:first-child .text", "Good morning.")

		w.text("#drawer", "TokenBucket(10")
		w.text("#request", "POST /posts")
		w.text("#request", "X-User-ID: alice")
		w.text("#response", "201 Created")
		w.text("#response", "x-ratelimit-remaining: 2")
	})
}

// A refusal says how long on the button, counts down, and wakes by itself.
func TestARefusedButtonWakes(t *testing.T) {
	t.Parallel()
	inTwoFrameworks(t, func(t *testing.T, s *server) {
		w := open(t, s.url)
		w.left("post", 3)
		// The gauge says when none is left, but a button sleeps only after a refusal.
		for refused := false; !refused; refused = strings.Contains(w.tally("post"), "refused") {
			w.types("#text", "Kept until it is sent.")
			w.attempt("post", "Post")
		}
		w.sees(button("Post in"))
		w.sees(`document.getElementById("text").value === "Kept until it is sent."`)
		w.hears("Posts: none left. The next is free in")
		if g := w.gauge("post"); g.State == "waiting" && (g.Retry < 1 || g.Retry > 6 || g.Remaining != 0) {
			t.Errorf("the gauge says %+v", g)
		}
		before := w.tally("post")
		w.press("Post") // it sleeps
		w.sees(button("Post") + `?.innerText === "Post"`)
		if g := w.gauge("post"); g.Remaining < 1 || g.State != "open" {
			t.Errorf("it woke and yet the gauge says %+v", g)
		}
		if now := w.tally("post"); now != before {
			t.Errorf("a sleeping button was pressed, and %s became %s", before, now)
		}
		w.attempt("post", "Post")
		w.sees(`document.getElementById("text").value === ""`)
		w.hears("Posts: 1 of 10 left.")
	})
}

// A ban looks different from a limit, and another user is free.
func TestAHammererIsBanned(t *testing.T) {
	t.Parallel()
	inTwoFrameworks(t, func(t *testing.T, s *server) {
		w := open(t, s.url)
		w.left("reply", 5)
		w.press("Hammer")
		w.state("reply", "banned")
		w.text(`[data-lane="reply"]`, "5 passed, 4 refused, 11 banned")
		w.text(`[data-action="reply"]`, "banned")
		w.hears("Replies: banned for")
		w.hears("Hammer: 5 passed, 4 refused, 11 banned.")

		was := w.gauge("reply")
		if was.Remaining != 0 || was.Limit != 5 || was.Retry < 1 || was.Retry > 60 {
			t.Errorf("the gauge says %+v", was)
		}
		w.sees(fmt.Sprintf(`document.querySelector('[data-action="reply"]').dataset.retry < %d`, was.Retry))
		w.sees(`(() => {
			const retry = document.querySelector('[data-action="reply"]').dataset.retry;
			const b = ` + button("Banned") + `;
			return b.innerText === "Banned " + retry + " s" && b.getAttribute("aria-disabled") === "true";
		})()`)
		w.press("Banned") // sleeps
		w.text(`[data-lane="reply"]`, "11 banned")

		w.types("#user", "xiaoming")
		w.left("reply", 5)
		w.press("Reply")
		w.left("reply", 4)
		w.types("#user", "alice")
		w.state("reply", "banned")
		w.text(`[data-lane="reply"]`, "5 passed, 4 refused, 11 banned")
	})
}

// A like that comes a little too early waits for its turn, and shows that it does.
func TestAHeldLikeWaits(t *testing.T) {
	t.Parallel()
	inTwoFrameworks(t, func(t *testing.T, s *server) {
		w := open(t, s.url)
		w.left("like", 15)
		for range 3 { // on a slow machine a like looks held while it is under way
			w.holdALike()
			w.sees(`!document.querySelector('[data-action="like"]').dataset.held`)
			if strings.Contains(w.tally("like"), "held") {
				break
			}
		}
		w.text(`[data-lane="like"]`, "held")
		w.hears("Likes: one waits for its turn.")
	})
}

// holdALike likes until a like is held. On a slow machine its turn may have come before
// the click, or a like may be refused, after which the button sleeps.
func (w *window) holdALike() {
	w.t.Helper()
	likes := `document.querySelector('[data-action="like"]').dataset`
	for range 10 {
		for range w.gauge("like").Remaining {
			w.press("Like")
		}
		w.sees(`!document.querySelector('[data-for="like"][aria-disabled="true"]') && (` + likes + `.retry === "1" || ` + likes + `.remaining !== "0")`)
		before := w.tally("like")
		w.press("Like")
		w.sees(fmt.Sprintf(`%s.held || document.querySelector('[data-lane="like"] .tally').innerText !== %q`, likes, before))
		if get[bool](w, likes+`.held === "1" && Boolean(`+button("Like waits")+`)`) {
			return
		}
	}
	w.t.Fatal("no like was held")
}

// within checks that each window's action shows in all windows within a second. A busy
// machine may need another try, by another user.
func within(t *testing.T, windows ...*window) {
	t.Helper()
	for i, acting := range windows {
		var took time.Duration
		for try := range 5 {
			took = 0
			user := fmt.Sprintf("user %d.%d", i, try)
			for _, w := range windows {
				w.types("#user", user)
				w.left("reply", 5)
			}
			acting.press("Reply")
			acting.left("reply", 4)
			for _, w := range windows {
				took += w.left("reply", 4)
			}
			t.Logf("the action of window %d showed after %s", i, took)
			if took < time.Second {
				break
			}
		}
		if took >= time.Second {
			t.Errorf("the action of window %d showed only after %s", i, took)
		}
	}
}

func TestServersThatShareARedis(t *testing.T) { // by itself, since it holds an action to a second
	redis := redistest.Start(t)
	var windows []*window
	for _, name := range frameworks {
		windows = append(windows, open(t, serve(t, "-redis", redis.Addr, "-framework", name).url))
	}
	windows[0].text("header", "on Redis")
	within(t, windows...)
	windows[0].press("Hammer")
	for _, w := range windows {
		w.state("reply", "banned")
	}
}

// The page says that the server is away, and works again when it is back.
func TestAServerGoesAway(t *testing.T) {
	t.Parallel()
	inTwoFrameworks(t, func(t *testing.T, s *server) {
		w := open(t, s.url)
		w.left("reply", 5)
		w.press("Reply")
		w.left("reply", 4)
		for range 2 { // one comes back every two seconds
			w.press("Like")
		}
		w.text(".likes", "2 likes")

		w.expectAway(true)
		s.kill()
		w.text("#away", "The server does not answer.")
		w.left("like", 15) // time goes on all the same
		w.press("Reply")
		w.text("#notice", "No answer from the server.")

		s.run(strings.TrimPrefix(s.url, "http://"))
		w.left("reply", 5) // a new process, whose limits are whole
		w.sees(`document.getElementById("away").hidden`)
		w.expectAway(false)
		w.press("Reply")
		w.left("reply", 4)
	})
}

// A new process has other posts, under the same ids and of the same version.
func TestAServerIsReplaced(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := open(t, s.url)
	w.left("reply", 5)
	w.types("#text", "Of the old server.")
	w.press("Post")
	w.text(".post .text", "Of the old server.")

	w.hide(true)
	w.expectAway(true) // the last question may be under way
	s.kill()
	s.run(strings.TrimPrefix(s.url, "http://"))
	s.post(`{"text": "Of the new server."}`)
	w.hide(false)
	w.text(".post .text", "Of the new server.")
	w.sees(`!document.getElementById("posts").innerText.includes("Of the old server.")`)
}

// Nonsense in place of an answer, from a proxy for example, does not end the page. Nor does
// an action that only a newer server has.
func TestSomethingElseAnswers(t *testing.T) {
	t.Parallel()
	forum, err := url.Parse(serve(t).url)
	if err != nil {
		t.Fatal(err)
	}
	var nonsense atomic.Value
	nonsense.Store("")
	proxy := httputil.NewSingleHostReverseProxy(forum)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch said := nonsense.Load().(string); {
		case said != "":
			_, _ = io.WriteString(w, said)
		case r.URL.Path == "/status":
			answer := httptest.NewRecorder()
			proxy.ServeHTTP(answer, r)
			_, _ = io.WriteString(w, strings.Replace(answer.Body.String(), `"actions":{`, `"actions":{"share":{},`, 1))
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	w := open(t, front.URL)
	w.left("reply", 5)
	for i, said := range []string{"<p>Please log in to this network.", `{"actions":{"share":{}}}`, `{"actions":{"reply":{},"like":{},"post":{}}}`} {
		nonsense.Store(said)
		w.text("#away", "The server does not answer.")
		nonsense.Store("")
		w.sees(`document.getElementById("away").hidden`)
		w.press("Reply")
		w.left("reply", 4-i)
	}
}

// A page that is seen asks about twice a second, one that is hidden does not ask.
func TestHowOftenThePageAsks(t *testing.T) {
	t.Parallel()
	w := open(t, serve(t).url)
	w.left("reply", 5)
	const look = 3 * time.Second
	asked := func() int {
		before := w.requests()
		time.Sleep(look)
		return w.requests() - before
	}
	if n := asked(); n < 1 || n > 9 {
		t.Errorf("it asks %d times in %s", n, look)
	}
	w.hide(true)
	if n := asked(); n > 1 {
		t.Errorf("it is hidden and asks %d times in %s", n, look)
	}
	w.hide(false)
	if n := asked(); n < 1 {
		t.Error("it is seen again and does not ask")
	}
}

// With prefers-reduced-motion nothing is animated.
func TestReducedMotion(t *testing.T) {
	t.Parallel()
	w := open(t, serve(t).url)
	w.media(&emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	w.left("reply", 5)
	w.press("Hammer")
	w.state("reply", "banned")
	for range 20 {
		if n := get[int](w, "document.getAnimations().length"); n != 0 {
			t.Fatalf("%d animations", n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// The browser's complaints fail the tests above, so the harness must notice them.
func TestFaultsAreSeen(t *testing.T) {
	t.Parallel()
	w := open(t, serve(t).url)
	w.left("reply", 5)
	w.do(chromedp.Evaluate[chromedp.Void](`
		setTimeout(() => { throw new Error("thrown") });
		setTimeout(() => { document.body.append(Object.assign(document.createElement("img"), {src: "http://127.0.0.1:1/x.png"})) });
		setTimeout(() => { document.body.insertAdjacentHTML("beforeend", "<p>") });`))
	end := time.Now().Add(patience)
	for {
		said := strings.Join(w.complaints(), "\n")
		if strings.Contains(said, "thrown") && strings.Contains(said, "img-src") && strings.Contains(said, "TrustedHTML") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the browser complains only of\n%s", said)
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.mu.Lock()
	w.faults = nil
	w.mu.Unlock()
}
