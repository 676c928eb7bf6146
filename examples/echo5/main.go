// Command echo5 limits one route of Echo v5: five replies a minute.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	echolimit "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
)

func main() {
	log.Fatal(routes().Start("127.0.0.1:8080"))
}

func routes() *echo.Echo {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	limit := echolimit.Limit(replies, echolimit.From(keyfuncs.RemoteIP), echolimit.Action("reply"))

	e := echo.New()
	e.POST("/posts/:id/replies", reply, limit)
	return e
}

func reply(c *echo.Context) error {
	return c.NoContent(http.StatusCreated)
}
