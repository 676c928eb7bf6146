// Command admin bans users who keep trying, and has an endpoint that shows and ends
// bans:
//
//	curl -i -X POST -H 'X-User-ID: alice' 127.0.0.1:8080/replies
//	curl 127.0.0.1:8081/users/alice/reply
//	curl -X DELETE 127.0.0.1:8081/users/alice/reply/ban
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// limiters are the limiters by action. In a fleet they share one Redis, and one admin
// endpoint is enough.
func limiters() map[string]*core.Limiter {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	return map[string]*core.Limiter{
		"reply": core.Must(replies.With(core.BanPolicy{
			Refusals: 3, Within: time.Minute,
			Bans: []time.Duration{10 * time.Minute, time.Hour},
		})),
	}
}

func public(limiters map[string]*core.Limiter) http.Handler {
	reply := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	mux := http.NewServeMux()
	mux.Handle("POST /replies", nethttp.Limit(limiters["reply"], keyfuncs.Header("X-User-ID"), keyfuncs.Action("reply"))(reply))
	return mux
}

// admin is the endpoint. It has no login: serve it where only admins can reach it.
func admin(limiters map[string]*core.Limiter) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(w http.ResponseWriter, r *http.Request, l *core.Limiter, user, action string) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			user, action := r.PathValue("user"), r.PathValue("action")
			l := limiters[action]
			if l == nil {
				http.Error(w, "there is no such action", http.StatusNotFound)
			} else if err := f(w, r, l, user, action); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	handle("GET /users/{user}/{action}", show)
	handle("DELETE /users/{user}/{action}/ban", unban)
	return mux
}

type (
	status struct {
		Limits []limit `json:"limits"`
		Ban    ban     `json:"ban"`
	}
	limit struct {
		Limit      string `json:"limit"`
		Remaining  int    `json:"remaining"`
		RetryAfter string `json:"retry_after"`
	}
	ban struct {
		Banned     bool   `json:"banned"`
		RetryAfter string `json:"retry_after"`
		Refusals   int    `json:"refusals"`
		Level      int    `json:"level"`
	}
)

func show(w http.ResponseWriter, r *http.Request, l *core.Limiter, user, action string) error {
	s, err := l.Status(r.Context(), user, action)
	if err != nil {
		return err
	}
	answer := status{Ban: ban{s.Ban.Banned, seconds(s.Ban.RetryAfter), s.Ban.Refusals, s.Ban.Level}}
	for _, ls := range s.Limits {
		answer.Limits = append(answer.Limits, limit{ls.Limit.String(), ls.Remaining, seconds(ls.RetryAfter)})
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(answer)
}

// seconds rounds up, so that the user is not told to retry too early.
func seconds(d time.Duration) string {
	return ((d + time.Second - 1) / time.Second * time.Second).String()
}

// unban ends the ban. The limit is still used up; Reset gives back the full quota.
func unban(w http.ResponseWriter, r *http.Request, l *core.Limiter, user, action string) error {
	if err := l.Unban(r.Context(), user, action); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func main() {
	ls := limiters()
	go func() { log.Fatal(http.ListenAndServe("127.0.0.1:8081", admin(ls))) }()
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", public(ls)))
}
