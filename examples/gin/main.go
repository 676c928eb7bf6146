// Command gin limits one route of Gin: five replies a minute.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
)

func main() {
	log.Fatal(routes().Run("127.0.0.1:8080"))
}

func routes() *gin.Engine {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	limit := ginlimit.Limit(replies, ginlimit.From(keyfuncs.RemoteIP), ginlimit.Action("reply"))

	r := gin.Default()
	r.POST("/posts/:id/replies", limit, reply)
	return r
}

func reply(c *gin.Context) {
	c.Status(http.StatusCreated)
}
