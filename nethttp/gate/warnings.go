package gate

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
	"unsafe"
)

// warnings are what is logged rarely, not for each request.
type warnings struct {
	unrouted     atomic.Bool // said that keyfuncs.Route found no pattern
	down, broken rarely
}

// handlers are the warnings of Decide, which has no gate.
var handlers warnings

// rarely lets something be said once a minute.
type rarely struct{ said atomic.Int64 }

const sayAgain = time.Minute

func (r *rarely) now() bool {
	was, now := r.said.Load(), int64(time.Since(start))
	return (was == 0 || now-was > int64(sayAgain)) && r.said.CompareAndSwap(was, now)
}

// warnTwice says once if this gate has decided the request before. The headers tell:
// the text of X-RateLimit-Limit is the gate's own and lies where no other text does. So
// the look costs nothing but to a request behind several limits.
func (g *Gate[C]) warnTwice(h http.Header, cost int) {
	outer := h[headerLimit]
	if len(outer) != 1 || cost == 0 {
		return
	}
	for i := range g.headers.quotas {
		if unsafe.StringData(outer[0]) == unsafe.StringData(g.headers.quotas[i].text) && g.twice.CompareAndSwap(false, true) {
			slog.Default().Warn(g.adapter+": one request has passed the same limit twice and was charged twice; its middleware is mounted twice, maybe on a group and on a route of it: take one away",
				"code", "charged-twice")
		}
	}
}
