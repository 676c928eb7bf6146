package echolimit

import (
	"log/slog"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/keyfuncs"
)

// Route is a KeyFunc that returns the method (HEAD as GET) and the route's template, such as
// "POST /posts/:id/likes". All requests that no route matched share the action
// "unmatched". For a group with middleware Echo adds a catch-all route: requests that only
// this route matches have its template, such as "GET /v1/*". e.Any makes a route for each method, and each is an
// action with a quota of its own: give such a limit a name with [Action].
func Route(c echo.Context) (string, error) {
	path := c.Path()
	if c.Get(echo.ContextKeyHeaderAllow) != nil { // Echo sets a path for a 405 too
		path = ""
	} else if path == "" {
		lookForPre(c)
	}
	return keyfuncs.RouteTemplate(c.Request(), path), nil
}

// looks counts the requests without a route.
var looks atomic.Int64

const firstLooks = 100

// lookForPre warns once if Route is called before Echo has routed the request, as with e.Pre. It
// looks at the first requests without a route.
func lookForPre(c echo.Context) {
	if looks.Add(1) > firstLooks {
		return
	}
	e, r := c.Echo(), c.Request()
	router := e.Router()
	if of, ok := e.Routers()[r.Host]; ok {
		router = of
	}
	found := e.NewContext(r, nil)
	router.Find(r.Method, echo.GetPath(r), found)
	if found.Path() != "" && looks.Swap(firstLooks+1) <= firstLooks {
		slog.Default().Warn("echolimit: Route is asked before Echo has found the route, so all requests share one limit; mount the limit with e.Use, on a group or on a route, not with e.Pre",
			"code", "before-routing")
	}
}
