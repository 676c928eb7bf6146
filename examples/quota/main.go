// Command quota is a paid API: a plan's requests a month, in the customer's time zone. A month of the plan pro
// begins on the day of the invoice, and only that plan includes exports. A customer gets a mail when 80 % of the
// month's requests are used, and when all are. The plans are in a document, which can be changed while the program
// runs. Start two replicas, and change the file:
//
//	quota -redis 127.0.0.1:6379 -plans plans.json
//	quota -redis 127.0.0.1:6379 -plans plans.json -addr 127.0.0.1:8082 -admin 127.0.0.1:8083
//	curl -i -H 'Authorization: Bearer key-alice' 127.0.0.1:8080/v1/report
//	curl -i -H 'Authorization: Bearer key-bob' 127.0.0.1:8080/v1/export
//	curl -H 'Authorization: Bearer key-alice' 127.0.0.1:8080/usage
//	sed 's/(100, month/(150, month/' plans.json >new.json && mv new.json plans.json
//
// 127.0.0.1:8081 is a page of the plans in force. It also tells what another document would change, and for
// whom. With -key quota:plans the document is the value of that key in Redis, and SET changes it.
//
// Without -redis the counts are lost when the program ends. So that a crash of Redis does not lose them
// either, give it appendonly yes.
package main

import (
	"cmp"
	"context"
	_ "embed"
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
	"github.com/tailcut/tailcut/core/plans"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// An account is what the program knows of a customer. Here it would ask its database. The document says what
// the plans are, and that carol has another one than she pays for.
type account struct {
	customer, plan, zone string
	day                  int // of the invoice
}

var accounts = map[string]account{ // by API key
	"key-alice": {"alice", "pro", "Asia/Shanghai", 17},
	"key-bob":   {"bob", "free", "America/New_York", 0},
	"key-carol": {"carol", "free", "Europe/Paris", 0},
}

// document has the plans that the program starts with.
//
//go:embed plans.json
var document []byte

const reportRoute = "GET /v1/report"

type api struct {
	store  core.Store
	plans  *plans.Plans
	others *core.Limiter // for what the document has no limits for
	send   func(mail)    // a request waits for it, so a real one puts the mail into a queue
}

func newAPI(store core.Store) (a *api, err error) {
	a = &api{send: func(m mail) { log.Print(m) }}
	a.store = core.Observe(store, a.notify)
	if a.plans, err = plans.New(a.store, document); err == nil {
		a.others, err = core.New(a.store, core.SlidingWindow(60, time.Minute))
	}
	return a, err
}

// accountOf returns the account of a request, or the zero account of a guest.
func accountOf(r *http.Request) account {
	return accounts[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
}

func accountNamed(customer string) (account, bool) {
	for _, account := range accounts {
		if account.customer == customer {
			return account, true
		}
	}
	return account{}, false
}

func customer(r *http.Request) (string, error) {
	if name := accountOf(r).customer; name != "" {
		return name, nil
	}
	return "", keyfuncs.ErrNoKey
}

// known is what the program knows of the request's user. A guest has the document's default plan.
func (a account) known() plans.Customer {
	return plans.Customer{Plan: a.plan, Zone: a.zone, Day: a.day}
}

func known(r *http.Request) (plans.Customer, error) { return accountOf(r).known(), nil }

func (a *api) routes() http.Handler {
	user := keyfuncs.First(customer, keyfuncs.RemoteIP)
	config := nethttp.Config{
		Headers: gate.XRateLimitAndIETF,
		Forbid:  true, // what a plan does not include is 403
		Limiter: plans.Pick(a.plans, user, keyfuncs.Route, known),
	}
	limit := config.Limit(a.others, user, keyfuncs.Route)
	mux := http.NewServeMux()
	mux.Handle(reportRoute, limit(http.HandlerFunc(report)))
	mux.Handle("GET /v1/export", limit(http.HandlerFunc(report)))
	mux.HandleFunc("GET /usage", a.usage)
	return mux
}

func report(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a report\n")) }

// limiter is that of the customer's reports.
func (a *api) limiter(p *plans.Plans, account account) (*core.Limiter, error) {
	limiter, err := p.Limiter(account.customer, reportRoute, account.known())
	return cmp.Or(limiter, a.others), err
}

// usage shows the customer what is left of the month. To look at it costs nothing.
func (a *api) usage(w http.ResponseWriter, r *http.Request) {
	account := accountOf(r)
	if account.customer == "" {
		http.Error(w, "the key is unknown", http.StatusBadRequest)
		return
	}
	u := use{Name: account.customer}
	limiter, err := a.limiter(a.plans, account)
	var s core.Status
	if err == nil {
		s, err = limiter.Status(r.Context(), account.customer, reportRoute)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	for _, l := range s.Limits {
		if l.Limit.Name() != "month" {
			continue
		}
		u.Quota, u.Used, u.Left = l.Limit.Quota(), l.Used, l.Remaining
		if zone, err := time.LoadLocation(account.zone); err == nil {
			u.Until = time.Now().Add(l.EndsAfter).Round(time.Second).In(zone).Format("2 January 2006, 15:04 MST")
		}
	}
	show(w, usagePage, u)
}

type use struct {
	Name              string
	Quota, Used, Left int
	Until             string
}

var usagePage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Use of this month</title>
<h1>Requests of {{.Name}} this month</h1>
{{if .Quota}}<p><meter min="0" max="{{.Quota}}" value="{{.Used}}"></meter> {{.Used}} of {{.Quota}}, {{.Left}} left</p>{{else}}<p>There is no quota a month.</p>{{end}}
{{with .Until}}<p>The count begins anew on {{.}}.</p>{{end}}
</html>
`))

func show(w http.ResponseWriter, page *template.Template, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err := page.Execute(w, data); err != nil {
		log.Print(err)
	}
}

// fromRedis is a source of plans: the value of a key.
func fromRedis(rdb redis.UniversalClient, key string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return rdb.Get(ctx, key).Bytes() }
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "the address of the API")
	admin := flag.String("admin", "127.0.0.1:8081", "the address of the page of the plans; it has no login")
	server := flag.String("redis", "", "the host:port of a Redis that keeps the counts (default: in this process)")
	file := flag.String("plans", "", "the file of the plans, which may change (default: those of the program)")
	key := flag.String("key", "", "in place of a file, the key in Redis whose value is the document")
	flag.Parse()

	store, rdb := core.Store(memorystore.New(nil)), (*redis.Client)(nil)
	if *server != "" {
		rdb = redis.NewClient(&redis.Options{Addr: *server, ContextTimeoutEnabled: true})
		store = core.Fallback(redisstore.New(rdb, nil), store)
	}
	a, err := newAPI(store)
	switch {
	case err != nil:
	case *file != "":
		err = a.plans.Follow(plans.File(*file))
	case *key != "" && rdb == nil:
		log.Fatal("quota: -key needs -redis")
	case *key != "":
		_ = a.plans.Follow(fromRedis(rdb, *key)) // if Redis does not answer, that is in the log
	}
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.ListenAndServe(*admin, a.admin())) }()
	log.Fatal(http.ListenAndServe(*addr, a.routes()))
}
