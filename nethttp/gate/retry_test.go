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

	"github.com/hashicorp/go-retryablehttp"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// A client that honours Retry-After, and would else come back within a millisecond,
// waits as long as it was told and gets through the first time it comes back.
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
			return s.Take(t.Context(), c)
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
				client := retryablehttp.NewClient()
				client.Logger, client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = nil, 1, time.Millisecond, time.Millisecond
				client.HTTPClient = s.Client()
				var refused time.Time
				var told time.Duration
				client.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) {
					if strconv.Itoa(resp.StatusCode) == tt.name {
						n, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
						refused, told = time.Now(), time.Duration(n)*time.Second
					}
				}
				ask := func() {
					req, err := retryablehttp.NewRequestWithContext(t.Context(), "POST", s.URL+"/replies/7", []byte("again"))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("X-User-ID", "alice")
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "done" {
						t.Errorf("%d, %s", resp.StatusCode, body)
					}
				}
				for try := 0; told == 0 && try < 5; try++ { // a machine may sleep through the window
					tt.refuse(ask)
					ask()
				}
				if waited := time.Since(refused); told < time.Second || told > 2*time.Second || waited < told || waited > told+10*time.Second {
					t.Errorf("it was told to wait %s and waited %s", told, waited)
				}
			})
		}
	}
}
