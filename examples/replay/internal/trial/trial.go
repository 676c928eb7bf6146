package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/source"
)

// ErrNoRequest is the error of a log that has no request to replay. The error says why.
var ErrNoRequest = errors.New("no usable request")

// Options say how a log is read and which limits are tried. With the zero value lines are read in every
// format, a user is an address, all requests are one action, and no limit is tried.
type Options struct {
	Line line.Options

	// Routes give requests their actions. A request that matches none is left out. Without
	// routes all requests have the action route.All.
	Routes []route.Route

	// Candidates are tried independently of each other.
	Candidates []Candidate

	// Plans are documents to compare, if To is not nil.
	Plans Documents

	// ShowUsers puts the users' names into the report. By default it has hashes of them, with a
	// random key per report.
	ShowUsers bool
}

// A Candidate is a limiter to try: its limits, and for which action. If Action is empty, it is tried on
// every action. Each action is then counted separately, as with a limiter that several routes share, and
// a limit with PerUser counts them together. A [core.BanPolicy] cannot be tried; its bans would refuse
// more requests. Neither can core.InFlight, since a replay does not follow actions to their end, nor a
// shadow limit, since it refuses nobody.
type Candidate struct {
	Action string
	Limits []core.Limit
}

// String returns the limits as core.ParseLimit reads them, joined by " and ".
func (c Candidate) String() string {
	texts := make([]string, len(c.Limits))
	for i, l := range c.Limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, " and ")
}

// A Trial replays logs with some options.
type Trial struct {
	options Options
	routes  *route.Routes
	actions []string
	changes report.Comparison // of the documents, without a log
}

// New returns an error, which says what to change, if the options cannot be.
func New(o Options) (*Trial, error) {
	routes, actions, err := route.New(o.Routes)
	if err != nil {
		return nil, err
	}
	if _, err := line.New(o.Line); err != nil {
		return nil, err
	}
	if err := o.validate(actions); err != nil {
		return nil, err
	}
	t := &Trial{options: o, routes: routes, actions: actions}
	if o.Plans.To != nil {
		if t.changes, err = o.Plans.changes(actions); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Run replays logs. Several are merged, in the order of time. It reads to their ends, and needs
// memory for the users and for the actions of an hour: see the package's documentation.
//
// Lines that are not requests never stop it. It returns [ErrNoRequest], ctx's own error, or that of a reader or
// of a log that is no text. A damaged or truncated gzip stream is not an error: the report covers what could
// be read, and Damage says what is wrong.
func (t *Trial) Run(ctx context.Context, logs ...source.Log) (*report.Report, error) {
	p := newPipeline(t.options, t.routes, t.actions)
	if err := p.run(ctx, logs); err != nil {
		return nil, err
	}
	r := p.report()
	if r.Requests == 0 {
		return nil, nothing(r, t.options)
	}
	if r.Comparison != nil {
		r.Comparison.Changes, r.Comparison.Untried, r.Comparison.Notes = t.changes.Changes, t.changes.Untried, t.changes.Notes
	}
	return r, nil
}

func (o *Options) validate(actions []string) error {
	for _, c := range o.Candidates {
		if i := slices.IndexFunc(c.Limits, func(l core.Limit) bool { return l.IsShadow() }); i >= 0 {
			return fmt.Errorf("%s refuses nobody; leave Shadow out, since a replay is a dry run", c.Limits[i])
		}
		if _, err := core.New(memorystore.New(nil), c.Limits...); err != nil {
			return err
		}
		for i := range c.Limits {
			if c.Limits[i].TakesSlots() {
				return fmt.Errorf("%s cannot be tried: it frees a slot when an action ends, and a replay does not follow actions to their end; try a window or a Funnel", c.Limits[i])
			}
		}
		switch {
		case c.Action == "" || slices.Contains(actions, c.Action):
		case len(o.Routes) == 0:
			return fmt.Errorf("limit %s is for the action %q, but there are no routes, so all requests are the action %s; add a route, such as 'POST /%[2]s=%[2]s'", c, c.Action, route.All)
		default:
			return fmt.Errorf("limit %s is for the action %q, and the routes have only %s", c, c.Action, strings.Join(actions, ", "))
		}
	}
	return nil
}
