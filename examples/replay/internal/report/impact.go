package report

// What a new document of plans would do.

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/tailcut/tailcut/core/plans"
)

// A Comparison is what a new document of plans would have done in place of an old one.
type Comparison struct {
	Changes []plans.Change `json:"changes"`
	Untried []string       `json:"untried,omitempty"` // actions of the documents that no route has
	Notes   []string       `json:"notes,omitempty"`   // what the log does not tell
	Impacts []Impact       `json:"impacts"`           // by plan, then by action; those that have requests
}

// An Impact is what the new document would have done to the users of a plan, in one action. If it gives
// them another plan, Plan is "free -> pro".
type Impact struct {
	Plan     string   `json:"plan"`
	Action   string   `json:"action"`
	Requests int64    `json:"requests"`
	Users    int      `json:"users"`
	Before   int64    `json:"refused_before"` // requests that the old document refuses
	After    int64    `json:"refused_after"`
	Refused  Affected `json:"newly_refused"` // what only the new document refuses
	Passed   Affected `json:"newly_passed"`  // what only the old document refuses
}

// Affected are requests, and the users who made them.
type Affected struct {
	Requests int64         `json:"requests"`
	Users    int           `json:"users"`
	Most     []RefusedUser `json:"-"` // the ten with the most
}

// Shorten keeps those who have the most, and gives them their names.
func (a *Affected) Shorten(most int, name func(string) string) {
	slices.SortFunc(a.Most, func(x, y RefusedUser) int {
		return cmp.Or(cmp.Compare(y.Refused, x.Refused), cmp.Compare(x.Name, y.Name))
	})
	a.Most = slices.Clone(a.Most[:min(len(a.Most), most)])
	for i := range a.Most {
		a.Most[i].Name = name(a.Most[i].Name)
	}
}

func writeComparison(w io.Writer, c *Comparison) {
	fmt.Fprintf(w, "\nWhat the new plans change\n")
	for _, change := range c.Changes {
		fmt.Fprintf(w, "  %s\n", Printable(change.String()))
	}
	if len(c.Changes) == 0 {
		fmt.Fprintf(w, "  nothing\n")
	}
	for _, action := range c.Untried {
		fmt.Fprintf(w, "  Not tried, since no route has the action: %s\n", Printable(action))
	}
	for _, note := range c.Notes {
		fmt.Fprintf(w, "  %s\n", note)
	}
	for _, i := range c.Impacts {
		fmt.Fprintf(w, "\nplan %s, %s: %s by %s\n", Printable(i.Plan), Printable(i.Action), count(i.Requests, "request"), count(int64(i.Users), "user"))
		fmt.Fprintf(w, "    refused       %s before (%s), %s after (%s)\n", group(i.Before), percent(i.Before, i.Requests), group(i.After), percent(i.After, i.Requests))
		writeAffected(w, "newly refused", &i.Refused)
		writeAffected(w, "newly passed", &i.Passed)
	}
}

func writeAffected(w io.Writer, title string, a *Affected) {
	if a.Requests == 0 {
		fmt.Fprintf(w, "    %-13s none\n", title)
		return
	}
	fmt.Fprintf(w, "    %-13s %s of %s\n", title, count(a.Requests, "request"), count(int64(a.Users), "user"))
	for i, u := range a.Most {
		title := ""
		if i == 0 {
			title = "most"
		}
		fmt.Fprintf(w, "      %-11s %s (%s)\n", title, Printable(u.Name), group(u.Refused))
	}
}
