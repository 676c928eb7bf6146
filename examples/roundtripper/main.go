// Command roundtripper limits the calls that a program makes to other servers: three at
// once and two a second after that, to each host. Calls that come too fast wait. If a server answers
// with Retry-After, as GitHub does, all calls to it wait until then.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
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
	host := strings.ToLower(r.URL.Host)
	if _, err := t.calls.Wait(r.Context(), t.account, host); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if pause := retryAfter(resp); pause > 0 {
		// Wait sits a ban out, in every process that shares the store.
		if err := t.calls.Ban(context.WithoutCancel(r.Context()), t.account, host, pause); err != nil {
			log.Print(err)
		}
	}
	return resp, nil
}

// retryAfter is how long the server wants no further request.
func retryAfter(resp *http.Response) time.Duration {
	if resp.StatusCode < 400 { // of a redirect it is about the new address
		return 0
	}
	after := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(after, 10, 24); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(after); err == nil {
		return time.Until(at)
	}
	return 0
}

func client(next http.RoundTripper) *http.Client {
	calls := core.Must(core.New(memorystore.New(nil), core.Funnel(3, core.Per(2, time.Second))))
	calls = core.Must(calls.With(core.BanPolicy{})) // for Ban
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
