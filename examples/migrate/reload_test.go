package migrate

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// limitReplies limits a handler by the numbers of a file, which reload reads again. After an error
// the numbers before it stay.
func limitReplies(store core.Store, path string, next http.Handler) (h http.Handler, reload func() error, err error) {
	var replies atomic.Pointer[core.Limiter]
	reload = func() error {
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		limiters, err := newLimiters(store, file, yaml.Unmarshal)
		if err != nil {
			return err
		}
		if limiters["reply"] == nil {
			return errors.New("the file has no limits of reply")
		}
		replies.Store(limiters["reply"])
		return nil
	}
	if err := reload(); err != nil {
		return nil, nil, err
	}
	h = nethttp.Config{
		Limiter: func(*http.Request) (*core.Limiter, error) { return replies.Load(), nil },
	}.Limit(replies.Load(), keyfuncs.RemoteIP, keyfuncs.Action("reply"))(next)
	return h, reload, nil
}

// onHangup calls reload on every SIGHUP.
func onHangup(reload func() error) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		for range hangup {
			if err := reload(); err != nil {
				slog.Error("the limits were not reloaded", "error", err)
			}
		}
	}()
}

func TestReloadedNumbersDecideAlike(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	passed := func(h http.Handler, n int) (passed int) {
		for _, code := range burst(h, n) {
			if code == http.StatusOK {
				passed++
			}
		}
		return passed
	}
	write("limits: {post: ['SlidingWindow(2, 1h)']}")
	if _, _, err := limitReplies(memorystore.New(nil), path, ok); err == nil {
		t.Error("a file without the action is no error")
	}
	write("limits: {reply: ['SlidingWindow(2, 1h)']}")
	h, reload, err := limitReplies(memorystore.New(nil), path, ok)
	if err != nil {
		t.Fatal(err)
	}
	if n := passed(h, 4); n != 2 {
		t.Errorf("%d pass, want 2", n)
	}
	reloaded := make(chan error)
	onHangup(func() error {
		err := reload()
		reloaded <- err
		return err
	})
	for _, step := range []struct {
		file string
		ok   bool
		pass int
	}{
		{"limits: {reply: ['SlidingWindow(0, 1h)']}", false, 0},
		{"limits: {reply: ['SlidingWindow(5, 1h)']}", true, 3}, // two of five have passed already
		{"limits: [", false, 0},
		{"limits: {reply: ['SlidingWindow(6, 1h)']}", true, 1},
	} {
		write(step.file)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-reloaded:
			if (err == nil) != step.ok {
				t.Errorf("%s: %v", step.file, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the signal did not come")
		}
		if n := passed(h, 4); n != step.pass {
			t.Errorf("%s: %d pass, want %d", step.file, n, step.pass)
		}
	}
}
