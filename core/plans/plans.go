package plans

// Plans holds a compiled document, replaces it, and picks limiters from it.

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
)

// Plans holds the limits of a document, and returns the limiter for a user and an action.
// [Plans.Update] replaces the document while the program runs. Plans is safe for concurrent use.
type Plans struct {
	store    core.Store
	now      atomic.Pointer[inForce]
	rejected atomic.Uint64
	follower atomic.Pointer[follower]
	updates  sync.Mutex
}

// An inForce is a compiled document, and what Plans.Generation returns while it is in force.
type inForce struct {
	*generation
	shown Generation
}

// New returns a Plans whose document is in force, and whose limiters use store. If the document is
// wrong, the error is a [*DocumentError]. Any other error says what is wrong with the store. All
// errors match [core.ErrConfig].
func New(store core.Store, document []byte) (*Plans, error) {
	p := &Plans{store: store}
	if err := p.put(own(document)); err != nil {
		return nil, err
	}
	return p, nil
}

// own returns a copy of a caller's document. It does not copy a document that is too long, because
// compile rejects that without keeping it.
func own(document []byte) []byte {
	if len(document) > maxDocument {
		return document
	}
	return bytes.Clone(document)
}

// Update puts a document in force, in place of the present one. If the document has an error,
// Update returns the same error as [New], and the present document stays in force. Each decision
// uses one document, either the old or the new one. If the document is in force already, Update
// does nothing.
func (p *Plans) Update(document []byte) error {
	p.updates.Lock()
	defer p.updates.Unlock()
	return p.update(own(document))
}

// update is Update for a caller that holds p.updates, and that will not change the document.
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
	g.reuse(before)
	next.shown.Changes = compare(before, g)
	p.now.Store(next)
	return nil
}

// A Generation describes the document that is in force. The program must not change it.
type Generation struct {
	Number   int       `json:"number"`  // 1 for the document of New; each later document has the next number
	Version  string    `json:"version"` // a digest of the document, so it is the same on all replicas with the same document
	Since    time.Time `json:"since"`   // when this process put the document in force
	Document []byte    `json:"document"`
	Changes  []Change  `json:"changes"` // from the previous document, as Compare lists them; everything, for the first document
}

// Generation describes the document that is in force now.
func (p *Plans) Generation() Generation { return p.now.Load().shown }

// Rejected returns how often a document was not put in force because of an error. If p follows a
// source, a broken document counts once, even if the source returns it several times in a row.
// Failures of the source in a row count once too.
func (p *Plans) Rejected() uint64 { return p.rejected.Load() }

// A Customer is what the program knows about a user. All fields are optional.
type Customer struct {
	Plan string // counts if the document does not name the user; if empty or not in the document, the user has the default plan

	// Zone is the user's time zone, for limits with {zone}. It counts if the document names no zone
	// for the user. If it is empty, the plan's zone counts. Spell it as in the time zone database:
	// see core.CalendarWindow.
	//
	// If a user's zone changes, the user's counts in these limits start anew, even if both names
	// mean the same zone, as PRC and Asia/Shanghai do. So do not let users change their zone at
	// will.
	Zone string

	// Day is the day on which the user's months begin, from 1 to 31, for limits with
	// month.from({day}). 0 means 1. If a user's day changes, the user's counts in these limits
	// start anew.
	Day int
}

// Limiter returns the limiter that the user's plan has for an action. If the plan does not name the
// action, Limiter returns the limiter for "*". If there is no "*" either, it returns nil.
//
// If the document does not name the user, and has no plan c.Plan, the user has the default plan. If
// c.Plan is not empty then, a warning is logged, once for each document.
//
// The limiter may depend on c.Zone or c.Day. If so, Limiter returns an error if c.Zone is not in
// the time zone database or c.Day is not within 1 to 31. A zone that was not found is looked up
// again after a minute.
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

// Plan returns the name of the user's plan.
func (p *Plans) Plan(user string, c Customer) string {
	has, _ := p.now.Load().of(user, c)
	return has.name
}

// of returns the plan and the time zone of a user.
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

// Pick returns a function for the field Limiter of a middleware's Config. The function picks the
// limiter that the user's plan has for the request's action.
//
//	nethttp.Config{Limiter: plans.Pick(p, user, action, customer)}.Limit(others, user, action)
//
// Pass the same user and action to Pick and to Limit. Both are functions such as those of keyfuncs,
// ginlimit or echolimit. If the plan has no limits for an action, the limiter others decides.
//
// customer returns what the program knows about the request's user. It may be nil. If it returns an
// error, the response is 500.
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
