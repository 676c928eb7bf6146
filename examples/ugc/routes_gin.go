package main

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/ginlimit"
)

func ginRoutes(s *site) http.Handler {
	f, l := s.forum, s.limits
	gin.SetMode(gin.ReleaseMode) // in debug mode it prints every route
	r := gin.New()
	who := ginlimit.From(user)
	refunds := ginlimit.Config{FinalCost: func(_ *gin.Context, status int) int { return postCost(status) }}
	waits := ginlimit.Config{MaxWait: likeMaxWait}
	r.GET("/", gin.WrapH(s.page))
	r.GET("/page/:file", gin.WrapH(s.page))
	r.GET("/status", ginHandler(s.status))
	r.GET("/posts", ginHandler(f.list))
	r.GET("/posts/:id", ginHandler(f.show))
	r.POST("/posts", refunds.Limit(l.post, who, ginlimit.Action("post")), ginHandler(f.createPost))
	r.POST("/posts/:id/replies", ginlimit.Limit(l.reply, who, ginlimit.Action("reply")), ginHandler(f.createReply))
	r.POST("/posts/:id/likes", waits.Limit(l.like, who, ginlimit.Action("like")), ginHandler(f.like))
	return r
}

func ginHandler(e endpoint) gin.HandlerFunc {
	return func(c *gin.Context) {
		a := e(c.Request, c.Param("id"))
		if a.location != "" {
			c.Header("Location", a.location)
		}
		c.JSON(a.status, a.body)
	}
}
