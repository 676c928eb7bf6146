package echolimit

import (
	"log/slog"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/keyfuncs"
)

// Route is the KeyFunc of the method (HEAD as GET) and the route's template, such as
// "POST /posts/:id/likes". All requests that no route matched share the action
// "unmatched". A group with middleware has a route of Echo's own for whatever else is
// asked of it: such requests have that route's template, such as "GET /v1/*".
func Route(c echo.Context) (string, error) {
	path := c.Path()
	if c.Get(echo.ContextKeyHeaderAllow) != nil { // Echo sets a path for a 405, too
		path = ""
	}
	if path == "" {
		preRouting.look(c)
	}
	return keyfuncs.RouteTemplate(c.Request(), path), nil
}

// lookout finds out that Route is asked before Echo has routed the request, as with
// e.Pre. It looks at the first requests without a route.
type lookout struct {
	said   atomic.Bool
	looked atomic.Int32
}

var preRouting lookout

const firstLooks = 100

func (l *lookout) look(c echo.Context) {
	if l.said.Load() || l.looked.Load() >= firstLooks || c.Get(echo.ContextKeyHeaderAllow) != nil {
		return
	}
	l.looked.Add(1)
	e, r := c.Echo(), c.Request()
	router := e.Router()
	if of, ok := e.Routers()[r.Host]; ok {
		router = of
	}
	found := e.NewContext(r, nil)
	router.Find(r.Method, echo.GetPath(r), found)
	if found.Path() != "" && !l.said.Swap(true) {
		slog.Default().Warn("echolimit: Route is asked before Echo has found the route, so all requests share one limit; mount the limit with e.Use, on a group or on a route, not with e.Pre",
			"code", "before-routing")
	}
}
