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

// Plans has the limits of a document. Another document can replace it at any time. Plans is safe
// for use by many goroutines.
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

// New returns the plans of a document over a store. The error is a [*DocumentError], or says what
// is wrong with the store. Both match [core.ErrConfig].
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

// Update puts a document in force. If the document has an error, Update returns it as [New] does,
// and the document in force stays. Each decision is made by one document. Updating to the document
// that is in force already changes nothing.
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

// Rejected returns how many times a document was not put in force because of an error. While p
// follows a source, the same broken document, or failures to load one in a row, count once.
func (p *Plans) Rejected() uint64 { return p.rejected.Load() }

// A Customer is what the program knows of a user. The zero Customer means that it knows nothing.
type Customer struct {
	Plan string // if the document gives the user no plan; empty for its default plan

	// Zone is the user's time zone, unless the document names one for the user. If it is empty, the
	// plan's zone counts. Spell it as in the time zone database: see core.CalendarWindow. If the
	// zone of a user changes, the user's counts start anew, even if it is another name of the same
	// zone, as PRC is of Asia/Shanghai. So do not let users change it at will.
	Zone string

	// Day is the day, 1 to 31, on which the user's months begin if a limit says month.from({day}).
	// 0 means the first. If the day of a user changes, the user's counts start anew.
	Day int
}

// Limiter returns the limiter of a user's plan for an action. It is nil if the plan does not name
// the action and has no limits for "*". If Customer.Plan is not in the document, that is logged
// once, and the default plan decides.
//
// If Customer.Zone is not in the time zone database, or Customer.Day is not the day of a month,
// Limiter returns an error. It looks up the zone again after a minute.
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
		if has = g.plans[c.Plan]; has == nil && g.strange.Due() {
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

// Pick makes the Config.Limiter of a middleware. It picks a limiter by the plan of the request's
// user and by the action.
//
//	nethttp.Config{Limiter: plans.Pick(p, user, action, customer)}.Limit(others, user, action)
//
// Give user and action to both Pick and Limit. They are functions of package keyfuncs, ginlimit or
// echolimit. customer says what the program knows of the request's user. It may be nil. If it
// returns an error, the answer is 500. The limiter others decides about actions for which the plan
// has no limits.
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
