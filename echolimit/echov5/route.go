package echolimit

import (
	"log/slog"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Route is a KeyFunc that returns the method and the route's template, such as "POST
// /posts/:id/likes". HEAD counts as GET, and unusual methods such as PROPFIND count as OTHER. All
// requests that no route matched share the action "unmatched", also in a group.
//
// If a route was made with Echo's Any, the requests of all methods share one action. The action is
// the route's template, such as "/posts/:id/likes".
func Route(c *echo.Context) (string, error) {
	route := c.RouteInfo()
	path := route.Path
	switch route.Method {
	case echo.RouteNotFound: // Echo adds such a route to a group with middleware
		path = ""
	case echo.RouteAny:
		return path, nil
	case "":
		if route.Name == "" && saidBeforeRouting.Due() {
			slog.Default().Warn("echolimit: Route is asked before Echo has found the route, so all requests share one limit; mount the limit with e.Use, on a group or on a route, not with e.Pre",
				"code", "before-routing")
		}
	}
	return keyfuncs.RouteTemplate(c.Request(), path), nil
}

var saidBeforeRouting notice.Once
