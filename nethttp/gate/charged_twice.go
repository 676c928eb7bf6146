package gate

import (
	"log/slog"
	"net/http"
	"sync/atomic"
)

// A twiceCheck looks for a middleware that is mounted twice. Then every request inside another limit
// shows the same limit twice, and the second time the cost less remains. Other limits may show the
// same by chance, but not every time.
type twiceCheck struct {
	others atomic.Bool  // whether a request inside another limit has shown something else
	same   atomic.Int32 // how many have shown that
}

// manySame is after how many requests it is no chance.
const manySame = 5

// warnTwice logs once if the headers that a limit further out has set are this one's own.
func (g *Gate[C]) warnTwice(h http.Header, a *attempt) {
	if a.cost == 0 || !a.decision.Allowed || g.twice.others.Load() || g.twice.same.Load() >= manySame {
		return
	}
	limit, _ := number(h[headerLimit])
	remaining, _ := number(h[headerRemaining])
	if limit != int64(a.decision.Limit) || remaining != int64(a.decision.Remaining+a.cost) {
		g.twice.others.Store(true)
	} else if g.twice.same.Add(1) == manySame {
		slog.Default().Warn(g.framework.Name()+": one request has passed the same limit twice and was charged twice; its middleware is mounted twice, maybe on a group and on a route of it: remove one",
			"code", "charged-twice")
	}
}
