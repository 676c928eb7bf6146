// Command quota is a paid API: a plan's requests a month, in the customer's time zone, and a page of use
// for the customer.
//
//	quota -redis 127.0.0.1:6379
//	curl -i -H 'Authorization: Bearer key-alice' 127.0.0.1:8080/v1/report
//	curl -H 'Authorization: Bearer key-alice' 127.0.0.1:8080/usage
//
// Without -redis the counts are lost when the program ends. So that a crash of Redis does not lose them
// either, give it appendonly yes.
package main

import (
	"flag"
	"html/template"
	"log"
	"net/http"
	"strings"
	"time"
	_ "time/tzdata" // the time zones, on a machine that has none

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// A plan is a number of requests a month. A customer who changes the plan keeps what was used. One who
// changes the zone begins a new month.
type plan struct {
	customer string
	month    int
	zone     string
}

var plans = map[string]plan{ // by API key
	"key-alice": {"alice", 10_000, "Asia/Shanghai"},
	"key-bob":   {"bob", 100, "America/New_York"},
}

// An account is a customer's limiter, and the zone of the customer's months.
type account struct {
	plan
	loc     *time.Location
	limiter *core.Limiter
}

type api struct {
	accounts map[string]*account // by API key
	guests   *core.Limiter       // without a key: so many a day and address
}

// newAPI makes the limiters at start-up. PerUser counts all routes together. The funnel has room for 10
// requests at once and then lets 2 a second through. What it refuses is not charged to the month.
func newAPI(store core.Store) (*api, error) {
	guests, err := core.New(store, core.CalendarWindow(10, core.Day, nil))
	if err != nil {
		return nil, err
	}
	a := &api{map[string]*account{}, guests}
	for key, p := range plans {
		loc, err := time.LoadLocation(p.zone)
		if err != nil {
			return nil, err
		}
		month, flow := core.CalendarWindow(p.month, core.Month, loc), core.Funnel(10, core.Per(2, time.Second))
		limiter, err := core.New(store, month.Named("month").PerUser(), flow.Named("flow").PerUser())
		if err != nil {
			return nil, err
		}
		a.accounts[key] = &account{p, loc, limiter}
	}
	return a, nil
}

func key(r *http.Request) string { return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") }

func (a *api) customer(r *http.Request) (string, error) {
	if account := a.accounts[key(r)]; account != nil {
		return account.customer, nil
	}
	return "", keyfuncs.ErrNoKey
}

func (a *api) limiter(r *http.Request) (*core.Limiter, error) {
	if account := a.accounts[key(r)]; account != nil {
		return account.limiter, nil
	}
	return a.guests, nil
}

func (a *api) routes() http.Handler {
	config := nethttp.Config{
		Headers: gate.XRateLimitAndIETF,
		Limiter: a.limiter,
	}
	limit := config.Limit(a.guests, keyfuncs.First(a.customer, keyfuncs.RemoteIP), keyfuncs.Route)
	mux := http.NewServeMux()
	mux.Handle("GET /v1/report", limit(http.HandlerFunc(report)))
	mux.HandleFunc("GET /usage", a.usage)
	return mux
}

func report(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a report\n")) }

// usage shows the customer what is left of the month. To look at it costs nothing.
func (a *api) usage(w http.ResponseWriter, r *http.Request) {
	account := a.accounts[key(r)]
	if account == nil {
		http.Error(w, "the key is unknown", http.StatusBadRequest)
		return
	}
	s, err := account.limiter.Status(r.Context(), account.customer, "usage")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	month := s.Limits[0]
	used := account.month - month.Remaining
	u := use{Name: account.customer, Used: used, Quota: account.month}
	if used > 0 { // until the first request no count has begun
		u.Until = time.Now().Add(month.ResetAfter).Round(time.Second).In(account.loc).Format("2 January 2006, 15:04 MST")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_ = page.Execute(w, u)
}

type use struct {
	Name        string
	Used, Quota int
	Until       string
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Use of this month</title>
<h1>Requests of {{.Name}} this month</h1>
<p><meter min="0" max="{{.Quota}}" value="{{.Used}}"></meter> {{.Used}} of {{.Quota}}</p>
{{with .Until}}<p>The count begins anew on {{.}}.</p>{{end}}
</html>
`))

func main() {
	server := flag.String("redis", "", "the host:port of a Redis that keeps the counts (default: in this process)")
	flag.Parse()
	store := core.Store(memorystore.New(nil))
	if *server != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *server, ContextTimeoutEnabled: true})
		store = core.Fallback(redisstore.New(rdb, nil), store)
	}
	a, err := newAPI(store)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", a.routes()))
}
