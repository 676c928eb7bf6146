package echolimit

import (
	"log/slog"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/keyfuncs"
)

// Route is a KeyFunc that returns the method and the route's template, such as "POST
// /posts/:id/likes". HEAD counts as GET, and unusual methods such as PROPFIND count as OTHER. All
// requests that no route matched share the action "unmatched".
//
// If a group has middleware, Echo adds a route to it that catches all requests. If only this route
// matches a request, the action has the template of this route, such as "GET /v1/*".
//
// Echo's Any makes a route for each method, and so several actions with separate quotas. To limit
// them together, use [Action].
func Route(c echo.Context) (string, error) {
	path := c.Path()
	if c.Get(echo.ContextKeyHeaderAllow) != nil { // Echo answers 405, and has set a path all the same
		path = ""
	} else if path == "" {
		lookForPre(c)
	}
	return keyfuncs.RouteTemplate(c.Request(), path), nil
}

// looks is the number of requests without a route that lookForPre has looked at.
var looks atomic.Int64

const firstLooks = 100

// lookForPre warns once if Route is called before Echo has routed the request, as with e.Pre. It
// looks only at the first requests without a route.
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
