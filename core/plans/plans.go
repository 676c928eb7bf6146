package plans

// Plans: the document that is in force, and the limiters that it gives.

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
)

// Plans are the limits of a document. Another document can replace it at any time. It is safe for use by
// many goroutines.
type Plans struct {
	store    core.Store
	now      atomic.Pointer[inForce]
	rejected atomic.Uint64
	follower atomic.Pointer[follower]
	updates  sync.Mutex
}

// An inForce is a generation that is, or was, in force.
type inForce struct {
	*generation
	shown Generation
}

// New returns the plans of a document, over a store. The error is a [*DocumentError], or says what is wrong with
// the store. Either matches [core.ErrConfig].
func New(store core.Store, document []byte) (*Plans, error) {
	p := &Plans{store: store}
	if err := p.put(own(document)); err != nil {
		return nil, err
	}
	return p, nil
}

// own is a copy of a caller's document. One that is too long is only measured.
func own(document []byte) []byte {
	if len(document) > maxDocument {
		return document
	}
	return bytes.Clone(document)
}

// Update puts a document in force, or returns the error and leaves the last one in force: see [New]. Every
// decision is by one document as a whole. A document that is in force already changes nothing.
func (p *Plans) Update(document []byte) error {
	p.updates.Lock()
	defer p.updates.Unlock()
	return p.update(own(document))
}

// update is Update for a caller who has the lock, and who does not change the document.
func (p *Plans) update(document []byte) error {
	if bytes.Equal(document, p.now.Load().document) {
		return nil
	}
	err := p.put(document)
	if err != nil {
		p.rejected.Add(1)
		slog.Default().Error("plans: a document is rejected; the one before stays in force",
			"code", "plans-rejected", "version", version(document), "in_force", p.now.Load().version, "error", err)
		return err
	}
	now := p.now.Load().shown
	slog.Default().Info("plans: another document is in force", "code", "plans-changed", "version", now.Version, "number", now.Number, "changes", inLog(now.Changes))
	return nil
}

func (p *Plans) put(document []byte) error {
	g, err := compile(p.store, document)
	if err != nil {
		return err
	}
	next := &inForce{generation: g, shown: Generation{Number: 1, Version: g.version, Since: time.Now(), Document: document}}
	before := &generation{}
	if was := p.now.Load(); was != nil {
		before = was.generation
		next.shown.Number = was.shown.Number + 1
	}
	g.keep(before)
	next.shown.Changes = compare(before, g)
	p.now.Store(next)
	return nil
}

// A Generation is a document that is in force. It must not be changed.
type Generation struct {
	Number   int       `json:"number"`  // 1 for the document given to New, and 1 more for each that has replaced another
	Version  string    `json:"version"` // of the document's bytes; all replicas with one document have one version
	Since    time.Time `json:"since"`   // since when it is in force in this process
	Document []byte    `json:"document"`
	Changes  []Change  `json:"changes"` // to the generation before, or of the first one to nothing: see Compare
}

// Generation returns the document that is in force now.
func (p *Plans) Generation() Generation { return p.now.Load().shown }

// Rejected returns how many documents were not put in force because of an error. While a source is followed,
// a document, or a failure to load one, counts once.
func (p *Plans) Rejected() uint64 { return p.rejected.Load() }

// A Customer is what the program knows of a user. The zero Customer is nothing.
type Customer struct {
	Plan string // if the document gives the user no plan; empty for its default plan

	// Zone is the user's time zone, if the document gives it none; empty for the plan's zone. It is spelled as in
	// the time zone database: see core.CalendarWindow. A user whose zone changes starts anew, even if it is
	// another name of the same zone: PRC is Asia/Shanghai. So let no user change it at will.
	Zone string

	// Day is the day on which the user's months begin, 1 to 31, where a limit says month.from({day}); 0 is the
	// first. A user whose day changes starts anew.
	Day int
}

// Limiter returns the limiter of a user's plan for an action, or nil if the plan neither names the action nor
// has limits for "*". If Customer.Plan is not in the document, that is logged once, and the default plan
// decides.
//
// The error is that of a Customer.Zone which is not in the time zone database, or of a Customer.Day which no
// month has. The zone is looked up again after a minute.
func (p *Plans) Limiter(user, action string, c Customer) (*core.Limiter, error) {
	p.follow()
	g := p.now.Load()
	has, zone := g.of(user, c)
	l := has.of(action)
	if l == nil {
		return nil, nil
	}
	return g.in(p.store, has, l, zone, c.Day)
}

// Plan returns the name of a user's plan.
func (p *Plans) Plan(user string, c Customer) string {
	has, _ := p.now.Load().of(user, c)
	return has.name
}

// of is a user's plan and zone.
func (g *generation) of(user string, c Customer) (has *plan, zone string) {
	if has = g.users[user]; has == nil && c.Plan != "" {
		if has = g.plans[c.Plan]; has == nil && !g.strange.Swap(true) {
			slog.Default().Warn("plans: a user's plan is not in the document; the default plan decides",
				"code", "plan-unknown", "plan", fmt.Sprintf("%.*s", maxName, c.Plan), "version", g.version)
		}
	}
	if has == nil {
		has = g.normal
	}
	if z, ok := g.zones[user]; ok {
		return has, z
	}
	return has, c.Zone
}

// Pick makes the Config.Limiter of a middleware: it picks by the plan of the request's user, and by the action.
//
//	nethttp.Config{Limiter: plans.Pick(p, user, action, customer)}.Limit(others, user, action)
//
// user and action are those that Limit gets too: functions of package keyfuncs, or of ginlimit or echolimit.
// customer says what the program knows of the request's user. It may be nil. An error of it is answered 500.
// others decides about actions for which the plan has no limits.
//
//	func customer(r *http.Request) (plans.Customer, error) {
//		return plans.Customer{Plan: sessionOf(r).Plan}, nil
//	}
func Pick[C any](p *Plans, user, action func(C) (string, error), customer func(C) (Customer, error)) func(C) (*core.Limiter, error) {
	switch {
	case p == nil:
		panic("plans: Pick: the plans are nil; make them with plans.New")
	case user == nil || action == nil:
		panic("plans: Pick: the user or the action is nil; give the functions that Limit gets")
	}
	return func(c C) (*core.Limiter, error) {
		who, err := user(c)
		if err != nil {
			return nil, err
		}
		what, err := action(c)
		if err != nil {
			return nil, err
		}
		var known Customer
		if customer != nil {
			if known, err = customer(c); err != nil {
				return nil, err
			}
		}
		return p.Limiter(who, what, known)
	}
}
