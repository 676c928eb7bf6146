package trial

// Two documents of plans, tried side by side.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/plans"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
)

// Documents are two documents of plans: what would To change, for whom From is in force? From may be nil:
// then nobody was refused before. A user has the plan and the zone that the document names, or else its default
// plan and that plan's zone, and a month for {day} begins on the first. A user's actions follow the log even after a refusal, so a plan's ban may refuse more than it would.
type Documents struct {
	From, To []byte
}

const firstDay = "A log does not tell on which day a customer's month begins, so it begins on the first where a limit has {day}."

// changes are the differences of the documents, and the actions of the documents that the log's routes do not
// have. It is an error if one of the documents cannot be tried, or if the routes have none of their actions.
func (d *Documents) changes(actions []string) (c report.Comparison, err error) {
	from, err := d.open(d.From, memorystore.New(nil))
	if err != nil {
		return c, fmt.Errorf("the document of -against: %w", err)
	}
	to, err := d.open(d.To, memorystore.New(nil))
	if err != nil {
		return c, fmt.Errorf("the document of -plans: %w", err)
	}
	tried := false
	for _, p := range []*plans.Plans{from, to} {
		if p == nil {
			continue
		}
		for _, l := range plans.Compare(nil, p) {
			if strings.Contains(l.To, "{day}") {
				c.Notes = []string{firstDay}
			}
			switch {
			case l.What != plans.WhatLimits:
			case strings.Contains(l.To, "InFlight("):
				return c, fmt.Errorf("plan %s, %s: %s cannot be tried: InFlight frees a slot when an action ends, and a replay does not follow actions to their end", l.Plan, l.Action, l.To)
			case l.Action == "*" || slices.Contains(actions, l.Action):
				tried = true
			case !slices.Contains(c.Untried, l.Action):
				c.Untried = append(c.Untried, l.Action)
			}
		}
	}
	if !tried {
		return c, fmt.Errorf("the documents have limits for %.200s, and the log has only the action %.200s; add a route, such as 'POST /replies=%.80s'", strings.Join(c.Untried, ", "), strings.Join(actions, ", "), c.Untried[0])
	}
	c.Changes = plans.Compare(from, to)
	return c, nil
}

// open returns the plans of a document, or nil if there is none.
func (d *Documents) open(document []byte, store core.Store) (*plans.Plans, error) {
	if document == nil {
		return nil, nil
	}
	p, err := plans.New(store, document)
	var broken *plans.DocumentError
	if errors.As(err, &broken) {
		return nil, fmt.Errorf("it has an error\n%w", err)
	}
	return p, err
}

// A comparison is the documents on a shard.
type comparison struct {
	from, to *plans.Plans
	impacts  map[subject]*impact
}

// A subject is a plan and an action. If a user has another plan by the other document, both are the plan.
type subject struct {
	plan   string
	action uint16
}

// An impact is what the change does to the users of a plan, in one action.
type impact struct {
	requests, before, after int64
	refused, passed         map[uint32]int64 // by user: what only the new document refuses, and only the old one
}

func (d *Documents) compare(s *shard) (*comparison, error) {
	from, err := d.open(d.From, s.store())
	if err != nil {
		return nil, err
	}
	to, err := d.open(d.To, s.store())
	return &comparison{from, to, make(map[subject]*impact)}, err
}

// planOf is a user's plan, or both plans if they differ.
func (c *comparison) planOf(user string) string {
	to := c.to.Plan(user, plans.Customer{})
	if c.from == nil {
		return to
	}
	if from := c.from.Plan(user, plans.Customer{}); from != to {
		return from + " -> " + to
	}
	return to
}

// act is one action by both documents.
func (c *comparison) act(number uint32, user, action string, id uint16, cost int) error {
	key := subject{c.planOf(user), id}
	i := c.impacts[key]
	if i == nil {
		i = &impact{refused: map[uint32]int64{}, passed: map[uint32]int64{}}
		c.impacts[key] = i
	}
	before, err := allows(c.from, user, action, cost)
	if err != nil {
		return err
	}
	after, err := allows(c.to, user, action, cost)
	if err != nil {
		return err
	}
	i.requests++
	if !before {
		i.before++
	}
	if !after {
		i.after++
	}
	switch {
	case before && !after:
		i.refused[number]++
	case after && !before:
		i.passed[number]++
	}
	return nil
}

// allows reports whether plans allow an action. What has no limits is allowed.
func allows(p *plans.Plans, user, action string, cost int) (bool, error) {
	if p == nil {
		return true, nil
	}
	l, err := p.Limiter(user, action, plans.Customer{})
	if err != nil || l == nil {
		return true, err
	}
	d, err := l.AllowN(context.Background(), user, action, cost)
	return d.Allowed, err
}

// impacts are those of all shards, by plan and action.
func (p *pipeline) impacts(name func(string) string) (all []report.Impact) {
	rows := map[subject]*report.Impact{}
	for _, s := range p.shards {
		if s.versus == nil {
			continue
		}
		for key, i := range s.versus.impacts {
			row := rows[key]
			if row == nil {
				row = &report.Impact{Plan: key.plan, Action: p.actions[key.action]}
				rows[key] = row
			}
			row.Requests += i.requests
			row.Before += i.before
			row.After += i.after
			s.affected(&row.Refused, i.refused)
			s.affected(&row.Passed, i.passed)
		}
		for _, m := range s.members[1:] {
			if row := rows[subject{s.versus.planOf(s.users[m.user].name), m.action}]; row != nil {
				row.Users++
			}
		}
	}
	for _, row := range rows {
		row.Refused.Shorten(mostRefused, name)
		row.Passed.Shorten(mostRefused, name)
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b report.Impact) int {
		return cmp.Or(cmp.Compare(a.Plan, b.Plan), cmp.Compare(slices.Index(p.actions, a.Action), slices.Index(p.actions, b.Action)))
	})
	return all
}

func (s *shard) affected(to *report.Affected, users map[uint32]int64) {
	to.Users += len(users)
	for u, n := range users {
		to.Requests += n
		to.Most = append(to.Most, report.RefusedUser{Name: s.users[u].name, Refused: n, IDs: int(s.users[u].ids)})
	}
}
