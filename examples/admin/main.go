// Command admin bans users who keep trying, and has an endpoint that shows who was refused in the last
// hour, over all processes, and shows and ends bans:
//
//	for i in $(seq 9); do curl -i -X POST -H 'Authorization: Bearer of-alice' 127.0.0.1:8080/replies; done
//	open http://127.0.0.1:8081/ # and /?banned
//	curl '127.0.0.1:8081/user?user=alice&action=reply'
//	curl -X DELETE '127.0.0.1:8081/ban?user=alice&action=reply' # without an action: from all
//
// Two processes that share a Redis:
//
//	export ADMIN_KEY=$(openssl rand -hex 16)
//	admin -redis 127.0.0.1:6379 -peers 127.0.0.1:8083 &
//	admin -redis 127.0.0.1:6379 -peers 127.0.0.1:8081 -addr 127.0.0.1:8082 -admin 127.0.0.1:8083 &
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// limiters are the limiters by action. In a fleet they share one Redis.
func limiters(store core.Store) map[string]*core.Limiter {
	bans := core.BanPolicy{
		Refusals: 3, Within: time.Minute,
		Bans: []time.Duration{10 * time.Minute, time.Hour},
	}
	return map[string]*core.Limiter{
		"reply": core.Must(core.Must(core.New(store, core.SlidingWindow(5, time.Minute))).With(bans)),
		"like":  core.Must(core.Must(core.New(store, core.SlidingWindow(15, time.Minute))).With(bans)),
	}
}

type userKey struct{} // of the user in the context

// login stands for your own check of a token or a session. It believes everybody.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer of-")
		if !ok || name == "" {
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

func public(limiters map[string]*core.Limiter) http.Handler {
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	mux := http.NewServeMux()
	for pattern, action := range map[string]string{"POST /replies": "reply", "POST /likes": "like"} {
		mux.Handle(pattern, login(nethttp.Limit(limiters[action], keyfuncs.ContextValue(userKey{}), keyfuncs.Action(action))(done)))
	}
	return mux
}

// An endpoint is what admins use. It has no login: serve it where only admins can reach it. On
// a loopback address it answers only requests whose Host is localhost or such an address.
type endpoint struct {
	limiters map[string]*core.Limiter
	metrics  *metrics.Metrics
	peers    []string // the admin endpoints of the other processes, as host:port
}

func (e *endpoint) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", e.mostRefused)
	mux.HandleFunc("GET /refused", e.refused)
	// The user is in the query: as a part of the path "." and ".." would be another page.
	handle := func(pattern string, f func(w http.ResponseWriter, r *http.Request, l *core.Limiter, user, action string) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			user, action := r.URL.Query().Get("user"), r.URL.Query().Get("action")
			l := e.limiters[action]
			if l == nil && (action != "" || r.Method != http.MethodDelete) {
				http.Error(w, "there is no such action", http.StatusNotFound)
			} else if err := f(w, r, l, user, action); errors.Is(err, core.ErrNoUser) {
				http.Error(w, "the user is missing", http.StatusBadRequest)
			} else if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	handle("GET /user", show)
	handle("DELETE /ban", e.letIn)
	return local(http.NewCrossOriginProtection().Handler(mux))
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

var page = template.Must(template.New("page").Parse(pageText))

// What the page shows.
type (
	pageOf struct {
		Users  []refusedUser
		Banned bool     // it lists banned users only
		Rest   uint64   // refusals that a user may have who is not listed
		Silent []string // the processes that have not answered
	}
	refusedUser struct {
		metrics.RefusedUser
		Link string // to the user's limits and ban; "" for a hash, whose user nobody knows
		Ago  string // since the last refusal
		Ban  string // from which actions, and for how long
	}
)

// mostRefused writes the page of the users with the most refusals, over all processes. With ?banned it looks at
// more users, and shows those who are banned. A banned user who has not tried for an hour is not listed.
func (e *endpoint) mostRefused(w http.ResponseWriter, r *http.Request) {
	all, silent := e.lists(r.Context())
	p, n := pageOf{Silent: silent, Banned: r.URL.Query().Has("banned")}, 20
	if p.Banned {
		n = listed
	}
	most := metrics.MergeRefused(n, all...)
	p.Rest = most.Rest
	for _, u := range most.Users {
		row := refusedUser{RefusedUser: u, Ago: spoken(time.Since(u.Last))}
		if e.limiters[u.Action] != nil && !u.Hashed {
			row.Link = "/user?" + url.Values{"user": {u.User}, "action": {u.Action}}.Encode()
			var err error
			if row.Ban, err = e.bans(r.Context(), u.User); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		if row.Ban != "" || u.Hashed || !p.Banned {
			p.Users = append(p.Users, row)
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := page.Execute(w, p); err != nil {
		log.Print(err)
	}
}

// bans are a user's bans, such as "like for 10m, reply for 1h".
func (e *endpoint) bans(ctx context.Context, user string) (string, error) {
	var all []string
	for _, action := range slices.Sorted(maps.Keys(e.limiters)) {
		s, err := e.limiters[action].Status(ctx, user, action)
		if err != nil {
			return "", err
		}
		if s.Ban.Banned {
			all = append(all, action+" for "+spoken(s.Ban.RetryAfter))
		}
	}
	return strings.Join(all, ", "), nil
}

// refused is this process's list, for the other processes.
func (e *endpoint) refused(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(e.metrics.MostRefused(listed))
}

// lists are the lists of all processes, and which of them have not answered.
func (e *endpoint) lists(ctx context.Context) (all []metrics.RefusedUsers, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	all = make([]metrics.RefusedUsers, len(e.peers)+1)
	all[len(e.peers)] = e.metrics.MostRefused(listed)
	failed := make([]error, len(e.peers))
	var asked sync.WaitGroup
	for i, peer := range e.peers {
		asked.Go(func() { all[i], failed[i] = ask(ctx, peer) })
	}
	asked.Wait()
	for i, err := range failed {
		if err != nil {
			log.Print(err)
			all[i] = metrics.RefusedUsers{}
			silent = append(silent, e.peers[i])
		}
	}
	return all, silent
}

// ask asks another process for its list.
func ask(ctx context.Context, peer string) (list metrics.RefusedUsers, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+peer+"/refused", nil)
	if err != nil {
		return list, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return list, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return list, fmt.Errorf("%s answers %s", peer, resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&list)
	return list, err
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

// spoken is a time for people: 45s, 10m, 1h5m.
func spoken(d time.Duration) string {
	s := seconds(d)
	if d >= 10*time.Minute {
		s = seconds((d + time.Minute - 1).Truncate(time.Minute))
	}
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// letIn lets a user do an action again, or every action if there is none given. Reset is first: between the two
// calls an attempt would start the next ban if the limit were still used up.
func (e *endpoint) letIn(w http.ResponseWriter, r *http.Request, _ *core.Limiter, user, action string) error {
	for of, l := range e.limiters {
		if action != "" && action != of {
			continue
		}
		if err := l.Reset(r.Context(), user, of); err != nil {
			return err
		}
		if err := l.Unban(r.Context(), user, of); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listed is how many users of each process are asked for.
const listed = 1000

// watching counts who is refused, by name. The key is the same in all processes, for the users who
// are shown as hashes: their names are too long.
func watching(key string) *metrics.Metrics {
	o := &metrics.Options{RefusedWindow: time.Hour, ShowUsers: true}
	if key != "" {
		o.HashKey = []byte(key)
	}
	return metrics.New(o)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "the host:port for users")
	adminAddr := flag.String("admin", "127.0.0.1:8081", "the host:port for admins")
	peers := flag.String("peers", "", "the host:port of the other processes' admin endpoints, with commas between them")
	server := flag.String("redis", "", "the host:port of a Redis that the processes share (default: in this process)")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("admin: unknown argument %q; see -h", flag.Arg(0))
	}

	store := core.Store(memorystore.New(nil))
	if *server != "" {
		store = core.Fallback(redisstore.New(redis.NewClient(&redis.Options{Addr: *server, ContextTimeoutEnabled: true}), nil), store)
	}
	m := watching(os.Getenv("ADMIN_KEY"))
	e := &endpoint{limiters: limiters(m.Watch(store)), metrics: m}
	if *peers != "" {
		e.peers = strings.Split(*peers, ",")
	}
	go func() { log.Fatal(http.ListenAndServe(*adminAddr, e.handler())) }()
	log.Fatal(http.ListenAndServe(*addr, public(e.limiters)))
}
