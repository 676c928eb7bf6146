package migrate

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/httprate"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func httprateBefore(next http.Handler) http.Handler {
	return httprate.LimitBy(100, time.Minute, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	})(next)
}

func httprateAfter(next http.Handler) http.Handler {
	requests := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(100, time.Minute)))
	return nethttp.Limit(requests, keyfuncs.RemoteIP, keyfuncs.Action("request"))(next)
}

func TestHTTPRateLimitsAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := httprateBefore(ok), httprateAfter(ok)
		same(t, burst(before, 110), burst(after, 110), 100)
		time.Sleep(2 * time.Minute)
		same(t, burst(before, 110), burst(after, 110), 100)
	})
}
