package migrate

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/didip/tollbooth/v7"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func tollboothBefore(next http.Handler) http.Handler {
	lmt := tollbooth.NewLimiter(1, nil) // 1 a second
	lmt.SetBurst(5)
	lmt.SetIPLookups([]string{"RemoteAddr"})
	return tollbooth.LimitHandler(lmt, next)
}

func tollboothAfter(next http.Handler) http.Handler {
	replies := core.Must(core.New(memorystore.New(nil), core.TokenBucket(5, core.Per(1, time.Second))))
	return nethttp.Limit(replies, keyfuncs.RemoteIP, keyfuncs.Action("reply"))(next)
}

func TestTollboothLimitsAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := tollboothBefore(ok), tollboothAfter(ok)
		same(t, burst(before, 8), burst(after, 8), 5)
		time.Sleep(2500 * time.Millisecond)
		same(t, burst(before, 4), burst(after, 4), 2)
	})
}
