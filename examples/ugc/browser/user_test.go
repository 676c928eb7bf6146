package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Users' words are text, never markup.
func TestNothingTypedIsMarkup(t *testing.T) {
	const image = `<img src=x onerror="document.title='owned'">`
	inTwoFrameworks(t, func(t *testing.T, s *server) {
		w := open(t, s.url)
		w.types("#user", "<b>bold")
		w.types("#text", image)
		w.press("Post")
		w.text(".post:first-child .text", image)
		w.text(".post:first-child .author", "<b>bold")
		w.types(".post .answer input", image)
		w.press("Reply")
		w.text(".replies li", image)
		if n := get[int](w, `document.querySelectorAll("main img, main b b, main script").length`); n != 0 {
			t.Errorf("%d elements were made of what was typed", n)
		}
		if title := get[string](w, "document.title"); strings.Contains(title, "owned") {
			t.Error("a script of a user's ran")
		}
	})
}

// A name in any script is one; one that a header cannot bear is said to be wrong.
func TestNames(t *testing.T) {
	w := open(t, serve(t).url)
	w.types("#user", "老钱")
	w.left("reply", 5)
	w.press("Reply")
	w.left("reply", 4)
	w.text(".replies li", "老钱 me too")
	w.types("#user", "a,b")
	w.text("#notice", "name cannot be read")
	w.types("#user", "") // known by the address
	w.left("reply", 5)
	w.press("Reply")
	w.text(".replies li", "anonymous me too")
}

// Without an answer about a user the page shows no numbers, least of all another user's.
func TestAUserWithoutNumbers(t *testing.T) {
	w := open(t, serve(t).url)
	w.left("reply", 5)
	w.press("Hammer")
	w.state("reply", "banned")
	w.sees(button("Banned"))
	w.types("#user", "a,b")
	w.text("#notice", "name cannot be read")
	w.sees(`document.querySelector('[data-action="reply"] .remaining').innerText === "–"`)
	w.sees(`!document.querySelector('[data-action="reply"]').innerText.includes("banned")`)
	w.sees(button("Reply") + `?.getAttribute("aria-disabled") === "false"`)
	w.sees(`!document.querySelector(".drawer tbody").innerText`)
	w.types("#user", "alice")
	w.state("reply", "banned")
	w.sees(button("Banned"))
}

// All that a mouse does a keyboard does, in a narrow window too.
func TestKeyboard(t *testing.T) {
	w := open(t, serve(t).url)
	w.do(chromedp.EmulateViewport(360, 740), chromedp.Reload())
	w.left("reply", 5)
	reach := func(what string) {
		t.Helper()
		for range 30 {
			w.do(chromedp.KeyEvent("\t"))
			if get[bool](w, "document.activeElement?.matches("+fmt.Sprintf("%q", what)+")") {
				hidden := get[bool](w, `(() => {
					const r = document.activeElement.getBoundingClientRect();
					const at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
					return !document.activeElement.contains(at);
				})()`)
				if hidden {
					t.Errorf("%s has the focus and is hidden", what)
				}
				return
			}
		}
		t.Fatalf("the keyboard does not reach %s", what)
	}
	reach("#user")
	w.do(chromedp.KeyEvent("xiaoming"))
	reach("#text")
	w.do(chromedp.KeyEvent("By keyboard.\r"))
	w.text(".post .text", "By keyboard.")
	reach("#hammer")
	reach(`[data-like]`)
	w.do(chromedp.KeyEvent(" "))
	w.text(".likes", "1 like")
	reach(`.answer input`)
	w.do(chromedp.KeyEvent("By keyboard, too.\r"))
	w.text(".replies li", "xiaoming By keyboard, too.")
	reach("summary")
	w.do(chromedp.KeyEvent("\r"))
	w.text("#response", "201 Created")
}
