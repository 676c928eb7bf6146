package browser

// The driver of the browser: windows, clicks, and the things that are seen.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds every wait for the page.
const patience = 30 * time.Second

var screens = flag.String("screens", "", "the `directory` for a picture of every state")

// chromium starts one Chromium for all tests, when the first of them needs it.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // the pages are ours, and CI runs as root
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(patience))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	atEnd = append(atEnd, end)
	browser, _ := chromedp.NewContext(allocator)
	return browser, chromedp.Do(browser)
})

// atEnd has the functions that run after all tests.
var atEnd []func()

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // they mostly wait; the command line may say another number
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	os.Exit(code)
}

// A window is a page in a separate browser profile.
type window struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // the browser's complaints
	away   bool     // the server is, so that failed requests are no fault
	asked  int      // requests of the page
}

// expectAway says whether requests may fail for want of a server.
func (w *window) expectAway(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// requests is how many requests the page has sent.
func (w *window) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// complaints returns the faults so far.
func (w *window) complaints() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.faults)
}

// open opens the page of a server. When the test ends it fails if the page asked
// another server, broke its Content-Security-Policy, or threw an error.
func open(t *testing.T, url string) *window {
	t.Helper()
	browser, err := chromium()
	if err != nil {
		const say = "chromium is not installed; get it with: apt-get install chromium (Debian)"
		if os.Getenv("TAILCUT_CHROMIUM") == "required" {
			t.Fatalf("%s: %v", say, err)
		}
		t.Skip(say)
	}
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	w := &window{t: t, ctx: ctx}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, fault := range w.faults {
			t.Error(fault)
		}
	})
	// The window lives as long as the context of this first call, so it has no timeout.
	if err := chromedp.Listen(ctx, func(event any) { w.watch(url, event) }); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	w.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(url), chromedp.Evaluate[chromedp.Void](`
		window.heard = "";
		new MutationObserver(() => { heard += document.getElementById("announce").innerText + "\n"; })
			.observe(document.getElementById("announce"), {childList: true, characterData: true, subtree: true});`))
	return w
}

func (w *window) watch(url string, event any) {
	fault := ""
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		w.asked++
		if !strings.HasPrefix(e.Request.URL, url+"/") {
			fault = "the page asks for " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		fault = "the page throws " + e.ExceptionDetails.Exception.Description
	case *log.EventEntryAdded:
		// The browser logs every answer that is an error; refusals are meant to be.
		meant := e.Entry.Source == log.EntrySourceNetwork && (w.away || strings.Contains(e.Entry.Text, "status of 4"))
		if e.Entry.Level == log.EntryLevelError && !meant {
			fault = "the browser says " + e.Entry.Text
		}
	}
	if fault != "" {
		w.faults = append(w.faults, fault)
	}
}

func (w *window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, end := context.WithTimeout(w.ctx, patience)
	defer end()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.t.Fatal(err)
	}
}

// get evaluates JavaScript in the page, and waits if it is a promise.
func get[T any](w *window, expression string) T {
	w.t.Helper()
	ctx, end := context.WithTimeout(w.ctx, patience)
	defer end()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		w.t.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

// sees waits until a condition, in JavaScript, holds, and returns how long that took.
func (w *window) sees(condition string) time.Duration {
	w.t.Helper()
	start := time.Now()
	for !get[bool](w, "Boolean("+condition+")") {
		if time.Since(start) > patience {
			w.t.Fatalf("never seen: %s\nThe page shows:\n%s", condition, get[string](w, "document.body.innerText"))
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// text waits until an element that a selector names has a text in it.
func (w *window) text(selector, text string) {
	w.t.Helper()
	w.sees(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))`, selector, text))
}

// hears waits until a screen reader was given something to say.
func (w *window) hears(words string) {
	w.t.Helper()
	w.sees(fmt.Sprintf(`heard.includes(%q)`, words))
}

// tally returns the strip's words about an action.
func (w *window) tally(action string) string {
	w.t.Helper()
	return get[string](w, fmt.Sprintf(`document.querySelector('[data-lane="%s"] .tally').innerText`, action))
}

// attempt presses a button and waits until the strip shows the outcome.
func (w *window) attempt(action, label string) {
	w.t.Helper()
	before := w.tally(action)
	w.press(label)
	w.sees(fmt.Sprintf(`document.querySelector('[data-lane="%s"] .tally').innerText !== %q`, action, before))
}

// A shown has the numbers of a gauge.
type shown struct {
	State                   string
	Limit, Remaining, Retry int
}

func (w *window) gauge(action string) shown {
	w.t.Helper()
	return get[shown](w, fmt.Sprintf(`(() => {
		const d = document.querySelector('[data-action="%s"]').dataset;
		return {State: d.state ?? "", Limit: Number(d.limit ?? -1), Remaining: Number(d.remaining ?? -1), Retry: Number(d.retry ?? 0)};
	})()`, action))
}

// left waits until so many of an action are left, and returns how long that took.
func (w *window) left(action string, n int) time.Duration {
	w.t.Helper()
	return w.sees(fmt.Sprintf(`document.querySelector('[data-action="%s"]').dataset.remaining === "%d"`, action, n))
}

// state waits until an action's gauge is in a state.
func (w *window) state(action, state string) {
	w.t.Helper()
	w.sees(fmt.Sprintf(`document.querySelector('[data-action="%s"]').dataset.state === "%s"`, action, state))
}

// button is a JavaScript expression for the first button whose label begins so.
func button(label string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("button")].find((b) => b.innerText.startsWith(%q))`, label)
}

// press clicks with a mouse on the first button whose label begins so. The page may move the button before the click
// comes: a new reply that is shown moves those below it. Such a click misses, and is made again.
func (w *window) press(label string) {
	w.t.Helper()
	w.sees(button(label))
	for start := time.Now(); !get[bool](w, "Boolean(window.pressed)"); {
		if time.Since(start) > patience {
			w.t.Fatalf("no click meets the button %q", label)
		}
		at := get[struct{ X, Y float64 }](w, fmt.Sprintf(`(() => {
			const b = %s;
			b.addEventListener("click", () => { window.pressed = true; }, {once: true});
			b.scrollIntoView({block: "center"});
			const r = b.getBoundingClientRect();
			return {X: r.x + r.width / 2, Y: r.y + r.height / 2};
		})()`, button(label)))
		w.do(chromedp.MouseClickXY(at.X, at.Y))
	}
	w.do(chromedp.Evaluate[chromedp.Void]("window.pressed = false"))
}

// hide has the page believe that nobody sees it.
func (w *window) hide(hidden bool) {
	w.t.Helper()
	w.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`
		Object.defineProperty(document, "hidden", {configurable: true, get: () => %t});
		document.dispatchEvent(new Event("visibilitychange"))`, hidden)))
}

// types replaces the text of a field, with a keyboard.
func (w *window) types(selector, text string) {
	w.t.Helper()
	w.do(chromedp.Focus(chromedp.CSS(selector)))
	w.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.select()"), chromedp.KeyEvent("\b"), chromedp.KeyEvent(text))
}

// looks are how the page may be looked at.
var looks = []struct {
	name          string
	width, height int64
	scheme        string
}{
	{"wide-light", 1200, 900, "light"},
	{"wide-dark", 1200, 900, "dark"},
	{"narrow-light", 360, 740, "light"},
	{"narrow-dark", 360, 740, "dark"},
}

// look checks the page as it is, in every look: axe finds nothing serious, and nothing
// is wider than the window. With -screens it keeps pictures.
func (w *window) look(name string) {
	w.t.Helper()
	for _, l := range looks {
		w.do(chromedp.EmulateViewport(l.width, l.height))
		w.media(&emulation.MediaFeature{Name: "prefers-color-scheme", Value: l.scheme})
		w.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
		w.settle()
		if wider := get[float64](w, "document.documentElement.scrollWidth - innerWidth"); wider > 0 {
			w.t.Errorf("%s, %s: the page is %v px wider than the window, by %s", name, l.name, wider, get[string](w, `[...document.querySelectorAll("body *")]
				.filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 120)).join("\n")`))
		}
		w.axe(name + ", " + l.name)
		w.keep(name + "-" + l.name)
	}
	w.do(chromedp.EmulateViewport(1200, 900))
	w.media()
	w.settle()
}

// settle waits until the colours have moved from one scheme to the other.
func (w *window) settle() {
	w.t.Helper()
	w.sees(`document.getAnimations().every((a) => a.effect.target.matches(".ring *"))`)
}

func (w *window) media(features ...*emulation.MediaFeature) {
	w.t.Helper()
	if _, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		w.t.Fatal(err)
	}
}

// keep keeps a picture of the window, with -screens.
func (w *window) keep(name string) {
	w.t.Helper()
	if *screens == "" {
		return
	}
	time.Sleep(400 * time.Millisecond) // what the gauges show moves there
	png, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(*screens, name+".png"), png, 0o644)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// axe fails the test for each serious or critical finding of axe-core.
func (w *window) axe(where string) {
	w.t.Helper()
	if !get[bool](w, `"axe" in window`) {
		script, err := os.ReadFile("testdata/axe/axe.min.js")
		if err != nil {
			w.t.Fatal(err)
		}
		w.do(chromedp.Evaluate[chromedp.Void](string(script)))
	}
	found := get[string](w, `axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => v.help + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join("; "))))`)
	var violations []string
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		w.t.Fatalf("axe says %q", found)
	}
	for _, v := range violations {
		w.t.Errorf("%s: %s", where, v)
	}
}
