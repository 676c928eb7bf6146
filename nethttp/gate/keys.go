package gate

// What a request asks for: the user and the action of each subject, the limiter and the cost.

import (
	"errors"
	"hash/maphash"
	"net/http"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// ask fills in what the request asks for, and reports whether it could.
func (g *Gate[C]) ask(c C, a *attempt) bool {
	return g.keys(c, a) && (g.config.Limiter == nil || g.pick(c, a)) && (g.config.Cost == nil || g.price(c, a))
}

// keys asks for the user and the action of each subject.
func (g *Gate[C]) keys(c C, a *attempt) bool {
	found := false
	for i := range g.subjects {
		m := &g.subjects[i]
		a.asking = "user"
		user, err := m.User(c)
		if !a.key(user, err) {
			if m.Guests && errors.Is(a.failure, keyfuncs.ErrNoKey) {
				g.noteGuest(c, m, a.failure)
				continue
			}
			g.noteKeyless(c, m, &m.userless, a.failure)
			return false
		}
		m.userless.clear(m.manyUserless())
		if m.ported.open(manyPorts) {
			g.warnPort(m, user)
		}
		a.asking = "action"
		action, err := m.Action(c)
		if !a.key(action, err) {
			g.noteKeyless(c, m, &m.actionless, a.failure)
			return false
		}
		m.actionless.clear(manyKeyless)
		if !m.actions.knows(action) {
			g.warnActions(m, action)
		}
		if found {
			a.further = append(a.further, subject{m.Limiter, user, action, i})
		} else {
			found = true
			a.limiter, a.user, a.action, a.index = m.Limiter, user, action, i
		}
	}
	if found {
		a.failure = nil // of an optional one
	}
	return found
}

// pick asks Config.Limiter for the first subject's limiter, and derives it if the cost may change.
func (g *Gate[C]) pick(c C, a *attempt) bool {
	if a.index != 0 {
		return true
	}
	a.asking = "limiter"
	picked, err := g.config.Limiter(c)
	if err == nil && picked != nil {
		var p *pick
		if p, err = g.picked(picked); err == nil {
			a.limiter, a.picked = p.limiter, p.policy
		}
	}
	return err == nil || a.fail(http.StatusInternalServerError, err)
}

// picked returns the pick of a limiter. A Config.Limiter has one for each plan, say, so most are kept.
func (g *Gate[C]) picked(l *core.Limiter) (*pick, error) {
	at := &g.picks[maphash.Comparable(limiterSeed, l)%uint64(len(g.picks))]
	if p := at.Load(); p != nil && p.of == l {
		return p, nil
	}
	limiter, err := g.config.derived(l)
	if err != nil {
		return nil, err
	}
	limiters := []*core.Limiter{limiter}
	for i := range g.subjects[1:] {
		limiters = append(limiters, g.subjects[1+i].Limiter)
	}
	p := &pick{of: l, limiter: limiter, policy: newPolicy(limiters)}
	at.Store(p)
	return p, nil
}

// price asks Config.Cost.
func (g *Gate[C]) price(c C, a *attempt) bool {
	var err error
	a.asking = "cost"
	a.cost, err = g.config.Cost(c)
	return err == nil || a.fail(statusOf(err), err)
}
