// Command roundtripper limits the calls that a program makes to other servers: three at
// once and two a second after that, to each host. Calls that come too fast wait. If a server answers
// with Retry-After, as GitHub does, all calls to it wait until then.
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
	calls := core.Must(core.New(memorystore.New(nil), core.Funnel(3, core.Per(2, time.Second))))
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
			fmt.Println("answered after", time.Since(start).Round(100*time.Millisecond))
		})
	}
	wg.Wait()
}
