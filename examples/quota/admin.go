package main

// The page of the plans: what is in force, what another document would change, and for whom.

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core/plans"
)

//go:embed page.html
var pageText string

var plansPage = template.Must(template.New("page").Funcs(template.FuncMap{
	"lines": func(limits string) string { return strings.ReplaceAll(limits, " and ", "\n") },
}).Parse(pageText))

// A view is what the page shows.
type view struct {
	InForce  plans.Generation
	All      []plans.Change // that is in force
	Rejected uint64

	Proposed string // the text in the form
	Compared bool
	Problems []plans.Problem // of the proposed document
	Changes  []plans.Change
	Customers
}

// Customers are the customers, and who would feel the proposed document.
type Customers struct {
	Feel  []feeling
	Named bool // whether anybody would
}

// A feeling is what a customer has now, and would have.
type feeling struct {
	Customer, Action string
	Now, Then        has
}

// Felt reports whether the customer would notice: the plan is another one, or what is left.
func (f feeling) Felt() bool { return f.Now != f.Then }

// Worse reports whether the customer could not act any more.
func (f feeling) Worse() bool { return f.Now.Wait == "" && f.Then.Wait != "" }

type has struct {
	Plan string
	Left string // of each limit
	Wait string // until an action passes; empty if one passes now
}

// admin is the page. It has no login: serve it where only admins can reach it. It puts nothing in force. To
// compare documents takes time, so a page of another site cannot have an admin's browser do so.
func (a *api) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		_ = a.plans.Refresh(r.Context()) // an error is in the log, and counts as rejected
		g := a.plans.Generation()
		show(w, plansPage, view{InForce: g, All: plans.Compare(nil, a.plans), Rejected: a.plans.Rejected(), Proposed: string(g.Document)})
	})
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 256<<10)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "the document is too large for this page", http.StatusRequestEntityTooLarge)
			return
		}
		v := view{InForce: a.plans.Generation(), All: plans.Compare(nil, a.plans), Rejected: a.plans.Rejected(), Compared: true}
		v.Proposed = strings.ReplaceAll(r.PostForm.Get("document"), "\r\n", "\n") // as a form sends it
		proposed, err := plans.New(a.store, []byte(v.Proposed))
		var broken *plans.DocumentError
		switch {
		case errors.As(err, &broken):
			v.Problems = broken.Problems
		case err == nil:
			v.Changes = plans.Compare(a.plans, proposed)
			v.Customers, err = a.feel(r, proposed)
		}
		if err != nil && broken == nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		show(w, plansPage, v)
	})
	return local(http.NewCrossOriginProtection().Handler(mux))
}

// local refuses a request that comes over loopback under another name: see examples/admin.
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

// feel asks both documents about every customer. Both count on the same store, so the Status by the limits of
// the proposed one tells what the customer would have right now. It charges nothing.
func (a *api) feel(r *http.Request, proposed *plans.Plans) (c Customers, err error) {
	for _, account := range accounts {
		f := feeling{Customer: account.customer, Action: reportRoute}
		if f.Now, err = a.has(r, a.plans, account); err == nil {
			f.Then, err = a.has(r, proposed, account)
		}
		if err != nil {
			return c, err
		}
		c.Feel = append(c.Feel, f)
		c.Named = c.Named || f.Felt()
	}
	slices.SortFunc(c.Feel, func(a, b feeling) int { return strings.Compare(a.Customer, b.Customer) })
	return c, nil
}

func (a *api) has(r *http.Request, p *plans.Plans, account account) (h has, err error) {
	h.Plan = p.Plan(account.customer, account.known())
	limiter, err := a.limiter(p, account)
	if err != nil {
		return h, err
	}
	status, err := limiter.Status(r.Context(), account.customer, reportRoute)
	longest := status.Ban.RetryAfter
	var left []string
	for _, l := range status.Limits {
		if !l.Limit.IsShadow() {
			left = append(left, fmt.Sprintf("%d of %d by %s", l.Remaining, l.Limit.Quota(), cmp.Or(l.Limit.Name(), l.Limit.Identity())))
			longest = max(longest, l.RetryAfter)
		}
	}
	h.Left = strings.Join(left, ", ")
	if longest > 0 {
		h.Wait = wait(longest)
	}
	return h, err
}

// wait rounds up to whole seconds, or to hours if it is long.
func wait(d time.Duration) string {
	unit := time.Second
	if d > 24*time.Hour {
		unit = time.Hour
	}
	return strings.TrimSuffix(strings.TrimSuffix(((d+unit-1)/unit*unit).String(), "0s"), "0m")
}
