package gate_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// A client that waits as long as Retry-After says gets through the first time it comes back.
func TestAClientThatHonoursRetryAfterGetsThrough(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for seconds, and the tests are short")
	}
	var broken atomic.Int32 // how often the store still fails
	failing := func(s core.Store) core.Store {
		return gatetest.Answers(func(c core.Charge) (core.Decision, error) {
			if broken.Add(-1) >= 0 {
				return core.Decision{}, errors.New("down")
			}
			d, _, err := s.Take(t.Context(), c)
			return d, err
		})
	}
	for _, ad := range adapters {
		for _, tt := range []struct {
			name   string
			store  core.Store
			refuse func(ask func()) // sees to it that the next one is refused
		}{
			{"429", memorystore.New(nil), func(ask func()) { ask() }},
			{"503", failing(memorystore.New(nil)), func(func()) { broken.Store(1) }},
		} {
			t.Run(ad.Name+"/"+tt.name, func(t *testing.T) {
				gatetest.Capture(t)
				limiter := core.Must(core.New(tt.store, core.FixedWindow(1, time.Second)))
				s := httptest.NewServer(ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{{Limiter: limiter}}}}}.Filled()))
				defer s.Close()
				var told time.Duration
				send := func() (int, string) {
					req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/replies/7", nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("X-User-ID", "alice")
					resp, err := s.Client().Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if strconv.Itoa(resp.StatusCode) == tt.name {
						n, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
						told = time.Duration(n) * time.Second
						time.Sleep(told)
					}
					body, _ := io.ReadAll(resp.Body)
					return resp.StatusCode, string(body)
				}
				ask := func() {
					status, body := send()
					if strconv.Itoa(status) == tt.name {
						status, body = send()
					}
					if status != 200 || body != "done" {
						t.Errorf("%d, %s", status, body)
					}
				}
				for try := 0; told == 0 && try < 5; try++ { // a machine may sleep through the window
					tt.refuse(ask)
					ask()
				}
				if told < time.Second || told > 2*time.Second {
					t.Errorf("it was told to wait %s", told)
				}
			})
		}
	}
}
