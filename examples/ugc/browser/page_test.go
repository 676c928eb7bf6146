package browser

import "testing"

func TestStates(t *testing.T) {
	w := open(t, "http://127.0.0.1:8123")
	w.types("#user", t.Name())
	w.left("reply", 5)
	w.look("open")
	w.press("Reply")
	w.left("reply", 4)
	w.look("one")
	for range 15 {
		w.press("Like")
	}
	w.press("Post")
	w.press("Post")
	w.press("Post")
	w.press("Post")
	w.press("Reply")
	w.look("waiting")
	w.press("Hammer")
	w.state("reply", "banned")
	w.look("banned")
}
