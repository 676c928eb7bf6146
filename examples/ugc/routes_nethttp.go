package main

import (
	"encoding/json"
	"net/http"

	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func nethttpRoutes(s *site) http.Handler {
	f, l := s.forum, s.limits
	mux := http.NewServeMux()
	refunds := nethttp.Config{FinalCost: func(_ *http.Request, status int) int { return postCost(status) }}
	waits := nethttp.Config{MaxWait: likeMaxWait}
	mux.Handle("GET /{$}", s.page)
	mux.Handle("GET /page/{file}", s.page)
	mux.Handle("GET /status", nethttpHandler(s.status))
	mux.Handle("GET /posts", nethttpHandler(f.list))
	mux.Handle("GET /posts/{id}", nethttpHandler(f.show))
	mux.Handle("POST /posts", refunds.Limit(l.post, user, keyfuncs.Action("post"))(nethttpHandler(f.createPost)))
	mux.Handle("POST /posts/{id}/replies", nethttp.Limit(l.reply, user, keyfuncs.Action("reply"))(nethttpHandler(f.createReply)))
	mux.Handle("POST /posts/{id}/likes", waits.Limit(l.like, user, keyfuncs.Action("like"))(nethttpHandler(f.like)))
	return mux
}

func nethttpHandler(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := e(r, r.PathValue("id"))
		if a.location != "" {
			w.Header().Set("Location", a.location)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_ = json.NewEncoder(w).Encode(a.body) // it fails if the client has disconnected
	})
}
