package echolimit

import (
	"log/slog"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Route is a KeyFunc that returns the method and the route's template, such as "POST
// /posts/:id/likes". It returns GET for HEAD, and OTHER for unusual methods such as PROPFIND. All
// requests that no route matched share the action "unmatched", also in a group.
//
// A route of Echo's Any is one action for all methods. The action is its template, such as
// "/posts/:id/likes".
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
