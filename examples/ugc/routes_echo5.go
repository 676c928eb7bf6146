package main

import (
	"net/http"

	"github.com/labstack/echo/v5"

	echolimit "github.com/tailcut/tailcut/echolimit/echov5"
)

func echo5Routes(s *site) http.Handler {
	f, l := s.forum, s.limits
	e := echo.New()
	who := echolimit.From(user)
	refunds := echolimit.Config{FinalCost: func(_ *echo.Context, status int) int { return postCost(status) }}
	waits := echolimit.Config{MaxWait: likeMaxWait}
	e.GET("/", echo.WrapHandler(s.page))
	e.GET("/page/:file", echo.WrapHandler(s.page))
	e.GET("/status", echo5Handler(s.status))
	e.GET("/posts", echo5Handler(f.list))
	e.GET("/posts/:id", echo5Handler(f.show))
	e.POST("/posts", echo5Handler(f.createPost), refunds.Limit(l.post, who, echolimit.Action("post")))
	e.POST("/posts/:id/replies", echo5Handler(f.createReply), echolimit.Limit(l.reply, who, echolimit.Action("reply")))
	e.POST("/posts/:id/likes", echo5Handler(f.like), waits.Limit(l.like, who, echolimit.Action("like")))
	return e
}

func echo5Handler(e endpoint) echo.HandlerFunc {
	return func(c *echo.Context) error {
		a := e(c.Request(), c.Param("id"))
		if a.location != "" {
			c.Response().Header().Set(echo.HeaderLocation, a.location)
		}
		return c.JSON(a.status, a.body)
	}
}
