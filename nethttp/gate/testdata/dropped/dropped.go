// Package dropped has handlers that drop the decision of Allow.
package dropped

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	limitv5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/nethttp"
)

var uploads *core.Limiter

// NetHTTP drops the decision of nethttp.Allow. The other functions drop those of the adapters.
func NetHTTP(w http.ResponseWriter, r *http.Request) {
	nethttp.Allow(w, r, uploads, "alice", "upload", 1)
}

func Gin(c *gin.Context) { ginlimit.Allow(c, uploads, "alice", "upload", 1) }

func Echo(c echo.Context) error {
	echolimit.Allow(c, uploads, "alice", "upload", 1)
	return nil
}

func EchoV5(c *echov5.Context) error {
	limitv5.Allow(c, uploads, "alice", "upload", 1)
	return nil
}
