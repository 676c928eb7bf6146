package plans

// The differences between two documents, in a form for people.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A Change is a difference between two documents. Which fields are set depends on What.
type Change struct {
	What string `json:"what"` // WhatDefault, WhatLimits or another of these constants

	// Plan is the plan that has changed. Action is the action whose limits have changed.
	// Action is set only if What is WhatLimits. The action "*" stands for all actions that the
	// plan does not name.
	Plan   string `json:"plan,omitempty"`
	Action string `json:"action,omitempty"`

	// From and To are the old and the new value. Limits are in the form of core.Limit.String, with
	// the document's {zone} and {day}. Several limits are joined by " and ". A ban policy is
	// described in words. From is empty if there was no value before, and To if there is none now.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`

	// Users is the number of changed users, for WhatUsers and WhatZones. It counts only users that
	// at least one of the two documents names.
	Users int `json:"users,omitempty"`

	// Anew lists the limits that start with empty counts, because no limit before the change had
	// the same state. For example, the period or the zone of a window has changed, or a number of a
	// funnel. Each user can then spend the full quota of these limits once more. Anew leaves out an
	// action if it had no limits or the limit Nothing before, or has now.
	Anew string `json:"anew,omitempty"`
}

// The values of Change.What, each with the other fields that are set.
const (
	WhatDefault = "default" // the default plan: From, To, Anew
	WhatLimits  = "limits"  // the limits of an action: Plan, Action, From, To, Anew
	WhatBan     = "ban"     // a plan's ban policy: Plan, From, To
	WhatZone    = "zone"    // a plan's time zone: Plan, From, To, Anew
	WhatUsers   = "users"   // the plans of users whom a document names: From, To, Users, Anew
	WhatZones   = "zones"   // the time zones of users whom a document names: Users
)

// String describes the change in one line. It quotes a name or value that has characters that a
// terminal would not print.
func (c Change) String() string {
	var b strings.Builder
	switch c.What {
	case WhatLimits:
		fmt.Fprintf(&b, "plan %s, %s: ", shown(c.Plan), shown(c.Action))
	case WhatBan, WhatZone:
		fmt.Fprintf(&b, "plan %s, %s: ", shown(c.Plan), c.What)
	case WhatDefault:
		b.WriteString("default plan: ")
	case WhatUsers:
		fmt.Fprintf(&b, "plan of %s: ", users(c.Users))
	case WhatZones:
		fmt.Fprintf(&b, "zone of %s", users(c.Users))
	}
	if c.What != WhatZones {
		fmt.Fprintf(&b, "%s -> %s", shown(cmp.Or(c.From, "none")), shown(cmp.Or(c.To, "none")))
	}
	if c.Anew != "" {
		fmt.Fprintf(&b, "; starts anew: %s", shown(c.Anew))
	}
	return b.String()
}

// inLog formats changes for the log. It shortens long changes, and leaves out the changes after the
// first ten.
func inLog(changes []Change) string {
	const most, longest = 10, 200
	var texts []string
	for _, c := range changes[:min(len(changes), most)] {
		text := c.String()
		if cut := fmt.Sprintf("%.*s", longest, text); cut != text {
			text = cut + "..."
		}
		texts = append(texts, text)
	}
	if more := len(changes) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(texts, "; "), "none")
}

func users(n int) string {
	if n == 1 {
		return "1 user"
	}
	return fmt.Sprintf("%d users", n)
}

// Compare lists the differences between the document in force in the argument from and the document
// in force in the argument to. The two Plans may have different stores. If from is nil, everything
// in the other document is listed.
func Compare(from, to *Plans) []Change {
	before := &generation{}
	if from != nil {
		before = from.now.Load().generation
	}
	return compare(before, to.now.Load().generation)
}

func compare(from, to *generation) (changes []Change) {
	if a, b := from.normal.called(), to.normal.called(); a != b {
		changes = append(changes, Change{What: WhatDefault, From: a, To: b, Anew: anewInPlan(from.normal, to.normal)})
	}
	for _, name := range both(from.plans, to.plans) {
		changes = append(changes, comparePlans(name, from.plans[name], to.plans[name])...)
	}
	return append(changes, compareUsers(from, to)...)
}

// both returns the keys that are in at least one of the maps, sorted.
func both[K cmp.Ordered, V any](a, b map[K]V) []K {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func comparePlans(name string, from, to *plan) (changes []Change) {
	for _, action := range actions(from, to) {
		a, b := from.of(action), to.of(action)
		if a.String() != b.String() {
			changes = append(changes, Change{What: WhatLimits, Plan: name, Action: action, From: a.String(), To: b.String(), Anew: anewLimits(a, b)})
		}
	}
	if a, b := from.banText(), to.banText(); a != b {
		changes = append(changes, Change{What: WhatBan, Plan: name, From: a, To: b})
	}
	if from != nil && to != nil && from.zone != to.zone {
		changes = append(changes, Change{What: WhatZone, Plan: name, From: from.zone, To: to.zone, Anew: anewInPlan(from, to)})
	}
	return changes
}

// actions returns the actions that at least one of the plans names. They are sorted, but "*" comes
// last.
func actions(a, b *plan) []string {
	all := both(a.actions(), b.actions())
	if i := slices.Index(all, anyOther); i >= 0 {
		all = append(slices.Delete(all, i, i+1), anyOther)
	}
	return all
}

// called returns the plan of a name. An empty name means the default plan.
func (g *generation) called(name string) *plan {
	if name == "" {
		return g.normal
	}
	return g.plans[name]
}

// banText describes the plan's ban policy. It returns "" if there is none.
func (p *plan) banText() string {
	if p == nil || p.ban == nil {
		return ""
	}
	b := p.ban
	text := "by hand"
	if b.Refusals > 0 {
		var bans []string
		for _, d := range b.Bans {
			bans = append(bans, short(d))
		}
		text = fmt.Sprintf("after %d refusals within %s for %s", b.Refusals, short(b.Within), strings.Join(bans, ", "))
	}
	if b.ForgetAfter != 0 {
		text += ", forgotten after " + short(b.ForgetAfter)
	}
	if b.PerUser {
		text += ", from all actions"
	}
	return text
}

// short formats a duration as package core does, such as 1m instead of 1m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	return strings.Replace(s, "h0m", "h", 1)
}

// anewLimits returns the texts of the limits in to that share no state with a limit in from, joined
// by " and ". It returns "" if from or to is nil, or has the limit Nothing.
func anewLimits(from, to *limits) string {
	if from == nil || to == nil || slices.ContainsFunc(slices.Concat(from.limits, to.limits), isNothing) {
		return ""
	}
	var texts []string
	for i, l := range to.limits {
		continues := slices.ContainsFunc(from.limits, func(was core.Limit) bool {
			return was.Identity() == l.Identity() && was.IsPerUser() == l.IsPerUser()
		})
		if !continues {
			texts = append(texts, to.texts[i])
		}
	}
	return strings.Join(texts, " and ")
}

// anewInPlan returns the limits that start with empty counts for a user whose plan changes.
func anewInPlan(from, to *plan) string {
	var texts []string
	for _, action := range actions(from, to) {
		if text := anewLimits(from.of(action), to.of(action)); text != "" {
			texts = append(texts, shown(action)+": "+text)
		}
	}
	return strings.Join(texts, ", ")
}

// compareUsers counts the users whose plan has changed, for each pair of an old and a new plan, and
// the users whose zone has changed. It looks only at users whom at least one document names.
func compareUsers(from, to *generation) (changes []Change) {
	type move struct{ from, to string }
	moves := map[move]int{}
	for user, p := range to.users {
		if was := from.users[user]; was.called() != p.called() {
			moves[move{was.called(), p.called()}]++
		}
	}
	for user, was := range from.users {
		if to.users[user] == nil {
			moves[move{was.called(), ""}]++
		}
	}
	sorted := slices.SortedFunc(maps.Keys(moves), func(a, b move) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	for _, m := range sorted {
		changes = append(changes, Change{
			What: WhatUsers, From: m.from, To: m.to, Users: moves[m],
			Anew: anewInPlan(from.called(m.from), to.called(m.to)),
		})
	}
	zones := 0
	for user, zone := range to.zones {
		if from.zones[user] != zone {
			zones++
		}
	}
	for user := range from.zones {
		if _, still := to.zones[user]; !still {
			zones++
		}
	}
	if zones > 0 {
		changes = append(changes, Change{What: WhatZones, Users: zones})
	}
	return changes
}
