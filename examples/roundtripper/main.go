// Command roundtripper limits the calls that a program makes to other servers: three at
// once and two a second after that, to each host. Calls that come too fast wait.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A transport waits for its turn before it sends a request.
type transport struct {
	next    http.RoundTripper
	calls   *core.Limiter
	account string // whose quota it is at the other server
}

// RoundTrip returns core.ErrRefused at once if there is no turn before the request's
// deadline.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := t.calls.Wait(r.Context(), t.account, strings.ToLower(r.URL.Host)); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	return t.next.RoundTrip(r)
}

func client(next http.RoundTripper) *http.Client {
	calls := core.Must(core.New(memorystore.New(nil), core.Funnel(3, core.Per(2, time.Second))))
	return &http.Client{Transport: &transport{next: next, calls: calls, account: "our-account"}}
}

func main() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	c := client(http.DefaultTransport)
	start := time.Now()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			resp, err := c.Get(api.URL)
			if err != nil {
				log.Fatal(err)
			}
			_ = resp.Body.Close()
			fmt.Println("answered after", time.Since(start).Round(100*time.Millisecond))
		})
	}
	wg.Wait()
}
