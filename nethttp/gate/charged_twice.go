package gate

import (
	"log/slog"
	"net/http"
	"unsafe"
)

// warnTwice logs once if this gate has decided the request before. It compares addresses:
// if the string in X-RateLimit-Limit is the gate's own, the gate has set it. So only a
// request behind several limits pays for the check.
func (g *Gate[C]) warnTwice(h http.Header, cost int) {
	outer := h[headerLimit]
	if len(outer) != 1 || cost == 0 {
		return
	}
	for i := range g.headers.quotas {
		if unsafe.StringData(outer[0]) == unsafe.StringData(g.headers.quotas[i].text) && g.twice.CompareAndSwap(false, true) {
			slog.Default().Warn(g.adapter+": one request has passed the same limit twice and was charged twice; its middleware is mounted twice, maybe on a group and on a route of it: remove one",
				"code", "charged-twice")
		}
	}
}
