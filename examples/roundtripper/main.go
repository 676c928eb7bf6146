// Command roundtripper limits the calls that a program makes to other servers: to each host nine a second, one
// every 111 ms, since the server allows ten. Calls that come too fast wait. If a server answers 429 or 503
// with Retry-After, all calls to it wait until then.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp/roundtripper"
)

func client(next http.RoundTripper) *http.Client {
	calls := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Per(9, time.Second))))
	return &http.Client{Transport: roundtripper.New(next, calls, "our-account"), Timeout: time.Minute}
}

func main() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	c := client(nil)
	start := time.Now()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			resp, err := c.Get(api.URL)
			if err != nil {
				log.Fatal(err)
			}
			_ = resp.Body.Close()
			fmt.Println("answered after", time.Since(start).Round(time.Millisecond))
		})
	}
	wg.Wait()
}
