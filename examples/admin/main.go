// Command admin bans users who keep trying, and has an endpoint that shows who is refused most right
// now, and shows and ends bans:
//
//	for i in $(seq 9); do curl -i -X POST -H 'X-User-ID: alice' 127.0.0.1:8080/replies; done
//	open http://127.0.0.1:8081/
//	curl 127.0.0.1:8081/users/alice/reply
//	curl -X DELETE 127.0.0.1:8081/users/alice/reply/ban
package main

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"log"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// limiters are the limiters by action. In a fleet they share one Redis, and one admin
// endpoint is enough.
func limiters(store core.Store) map[string]*core.Limiter {
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
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

// admin is the endpoint. It has no login: serve it where only admins can reach it. On
// a loopback address it answers only requests whose Host is localhost or such an address.
func admin(limiters map[string]*core.Limiter, m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { mostRefused(w, r, limiters, m) })
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
	return local(mux)
}

// local refuses a request that comes over loopback under another name. By DNS rebinding, a
// page of another site can give its own name a loopback address, and then counts as of the same site.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		host := (&url.URL{Host: r.Host}).Hostname()
		if at != nil && at.IP.IsLoopback() && host != "localhost" && !net.ParseIP(host).IsLoopback() {
			http.Error(w, "the host is not localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"path": url.PathEscape}).Parse(pageText))

// A refused user is a row of the page.
type refused struct {
	metrics.RefusedUser
	Ban string // how long it lasts
}

// mostRefused writes the page of the users with the most refusals.
func mostRefused(w http.ResponseWriter, r *http.Request, limiters map[string]*core.Limiter, m *metrics.Metrics) {
	var rows []refused
	for _, u := range m.MostRefused(20) {
		row := refused{RefusedUser: u}
		if l := limiters[u.Action]; l != nil {
			s, err := l.Status(r.Context(), u.User, u.Action)
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			if s.Ban.Banned {
				row.Ban = seconds(s.Ban.RetryAfter)
			}
		}
		rows = append(rows, row)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := page.Execute(w, rows); err != nil {
		log.Print(err)
	}
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
	m := metrics.New(&metrics.Options{ShowUsers: true})
	ls := limiters(m.Watch(memorystore.New(nil)))
	go func() { log.Fatal(http.ListenAndServe("127.0.0.1:8081", admin(ls, m))) }()
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", public(ls)))
}
