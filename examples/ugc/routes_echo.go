package main

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/echolimit"
)

func echoRoutes(s *site) http.Handler {
	f, l := s.forum, s.limits
	e := echo.New() // it prints its banner in Start, which we do not call
	who := echolimit.From(user)
	refunds := echolimit.Config{FinalCost: func(_ echo.Context, status int) int { return postCost(status) }}
	waits := echolimit.Config{MaxWait: likeMaxWait}
	e.GET("/", echo.WrapHandler(s.page))
	e.GET("/page/:file", echo.WrapHandler(s.page))
	e.GET("/status", echoHandler(s.status))
	e.GET("/posts", echoHandler(f.list))
	e.GET("/posts/:id", echoHandler(f.show))
	e.POST("/posts", echoHandler(f.createPost), refunds.Limit(l.post, who, echolimit.Action("post")))
	e.POST("/posts/:id/replies", echoHandler(f.createReply), echolimit.Limit(l.reply, who, echolimit.Action("reply")))
	e.POST("/posts/:id/likes", echoHandler(f.like), waits.Limit(l.like, who, echolimit.Action("like")))
	return e
}

func echoHandler(e endpoint) echo.HandlerFunc {
	return func(c echo.Context) error {
		a := e(c.Request(), c.Param("id"))
		if a.location != "" {
			c.Response().Header().Set(echo.HeaderLocation, a.location)
		}
		return c.JSON(a.status, a.body)
	}
}
