package memorystore

import (
	"bytes"
	"log"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/tailcut/tailcut/core"
)

// A program that makes a store for every request is told so, once.
func TestDroppedStoresAreNoticed(t *testing.T) {
	var kept []*Store
	request := func(o *Options) *Store {
		store := New(o)
		if d, err := core.Must(core.New(store, core.FixedWindow(1, time.Hour))).Allow(ctx, "alice", "reply"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		return store
	}
	for _, tt := range []struct {
		name  string
		pause time.Duration
		make  func()
		want  int
	}{
		{"one for each request", 0, func() { request(nil) }, 1},
		{"one for each request, with options", time.Second, func() { request(&Options{MaxKeys: 1000}) }, 1},
		{"one for each tenant, kept", 0, func() { kept = append(kept, request(&Options{MaxKeys: 1})) }, 0},
		{"one now and then", time.Minute, func() { request(nil) }, 0},
		{"simulations", 0, func() { request(&Options{Clock: time.Now}) }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			watched.stores, watched.got, watched.since = [manyStores]weak.Pointer[Store]{}, 0, time.Time{}
			var text bytes.Buffer
			before, out, flags := slog.Default(), log.Writer(), log.Flags()
			slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
			defer func() { slog.SetDefault(before); log.SetOutput(out); log.SetFlags(flags) }()
			for i := range 2000 {
				tt.make()
				time.Sleep(tt.pause)
				if i%100 == 0 {
					runtime.GC()
				}
			}
			if got := strings.Count(text.String(), "code=store-dropped"); got != tt.want {
				t.Errorf("%s: %d warnings, want %d: %s", tt.name, got, tt.want, &text)
			}
		})
	}
	runtime.KeepAlive(kept)
}
