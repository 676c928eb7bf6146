package main

// Mails to a customer whose quota is nearly used up, and to one whose quota is used up.

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A mail tells a customer how much of a month's quota is used, and when the month ends.
type mail struct {
	customer       string
	percent, quota int
	ends           time.Time
}

func (m mail) String() string {
	return fmt.Sprintf("mail to %s: %d %% of %d requests are used; the count begins anew on %s", m.customer, m.percent, m.quota, m.ends.Format(time.RFC3339))
}

// notify is called with every decision. It sends a mail once in each of a customer's months for 80 % of the
// quota, and once for 100 %: the plan's limit of one "mail" a month counts on the same store, so one request to
// one of all replicas passes it. A quota that changes is another action, so its mails are sent too.
//
// The 80 % are those of the shadow limit "mail", which is near when a fifth is left: the decision itself may be
// about the flow. A mail is lost if the process ends, or the store does not answer, at that moment. While Redis
// does not answer each replica counts by itself, and may send a mail once more.
func (a *api) notify(ctx context.Context, o core.Observation) {
	account, known := accountNamed(o.User)
	if !known || o.Err != nil || o.Peek {
		return
	}
	d := o.Decision
	if month := o.Limits[d.Binding]; month.Name() == "month" && d.Remaining == 0 {
		a.once(ctx, account, 100, month.Quota())
	} else if near := o.Limits[d.Shadow]; near.Name() == "mail" && d.Reason == core.ReasonNear {
		a.once(ctx, account, 80, near.Quota())
	}
}

func (a *api) once(ctx context.Context, account account, percent, quota int) {
	var d core.Decision
	limiter, err := a.plans.Limiter(account.customer, "mail", account.known())
	if err == nil && limiter != nil {
		d, err = limiter.Allow(context.WithoutCancel(ctx), account.customer, fmt.Sprintf("mail %d%% of %d", percent, quota))
	}
	if err != nil {
		log.Printf("a mail is not sent: %v", err)
	} else if d.Allowed {
		a.send(mail{account.customer, percent, quota, time.Now().Add(d.ResetAfter)})
	}
}
