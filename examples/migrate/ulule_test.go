package migrate

import (
	"net/http"
	"testing"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func ululeBefore(next http.Handler) http.Handler {
	rate, err := limiter.NewRateFromFormatted("5-M")
	if err != nil {
		panic(err)
	}
	return stdlib.NewMiddleware(limiter.New(memory.NewStore(), rate)).Handler(next)
}

func ululeAfter(next http.Handler) http.Handler {
	replies := core.Must(core.New(memorystore.New(nil), core.FixedWindow(5, time.Minute)))
	return nethttp.Limit(replies, keyfuncs.RemoteIP, keyfuncs.Action("reply"))(next)
}

// The store starts a goroutine that never ends, so this is not in a bubble of synctest. No
// window of a minute that begins here ends here.
func TestUluleLimitsAlike(t *testing.T) {
	before, after := burst(ululeBefore(ok), 7), burst(ululeAfter(ok), 7)
	same(t, before, after, 5)
}
