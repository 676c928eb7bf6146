package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// ErrNoRequest is the error of a log that has no request to replay. The error says why.
var ErrNoRequest = errors.New("replay: no usable request")

// The formats of a log. The text of an nginx log_format is one too: see the package's documentation.
const (
	FormatAuto     = "auto"     // each line by itself: JSON if it starts with a brace, else Combined
	FormatCombined = "combined" // Common or Combined Log Format
	FormatJSON     = "json"     // a JSON object on each line
)

// The users of a log. "field:NAME" reads a field of a JSON line or a variable of a log_format, and
// "field:NUMBER" a field of a line in Combined Log Format, where the address is field 1. In JSON,
// request.user is the field user of the object request.
const (
	UserAddress = "address"  // the client's address, IPv6 by /64 as in package keyfuncs
	UserAuth    = "authuser" // the name that the client has authenticated itself with
	userField   = "field:"
)

// AllActions is the action of every request if there are no routes.
const AllActions = "all"

// maxCost is the highest cost of an action. A line with a higher one is skipped.
const maxCost = 1_000_000_000

// Options say how Run reads a log and which limits it tries. With the zero value Run reads every
// format, a user is an address, all requests are one action, and no limit is tried.
type Options struct {
	Format string // FormatAuto, also if empty, or another one
	User   string // UserAddress, also if empty, or another one
	Fields Fields

	// IDs says which user ids are counted behind each of the most refused users: UserAuth, also if
	// empty and users are addresses, or a field. An address with many ids may be an office.
	IDs string

	// Routes give requests their actions. A request that matches none is left out. Without
	// routes all requests have the action AllActions.
	Routes []Route

	// Candidates are tried independently of each other.
	Candidates []Candidate

	// ShowUsers puts the users' names into the report. By default it has hashes of them, with a
	// random key per report.
	ShowUsers bool
}

// Fields are the names of the fields of a JSON line, or of the variables of a log_format. If a name is
// empty, Run looks for the names that nginx, Caddy, Envoy, log/slog and zap use. "-" means that there is
// no such field. A name with dots leads into nested objects.
type Fields struct {
	// Time is the time of the request's end, as RFC 3339 (https://www.rfc-editor.org/rfc/rfc3339),
	// as in Common Log Format, or as a number of seconds, milliseconds, microseconds or
	// nanoseconds since 1970.
	Time string

	// Duration is how long the request took; the time less the duration is the instant of its
	// start. It is a text such as 1.5ms, or a number: in the unit that the field's name ends
	// with (_s, _ms, _us, _ns), else in seconds. If there is a field "time", whole numbers are
	// nanoseconds, as log/slog writes them.
	Duration string

	Address string // the client's address, with or without a port
	Method  string
	Path    string // the request's target, with or without a query
	Request string // both, as in "GET / HTTP/1.1"
	Cost    string // the action's cost: a whole number from 0 to 1,000,000,000; 1 if there is no such field
}

// A Route gives the requests that match a pattern of [net/http.ServeMux] an action. The pattern has no
// host.
type Route struct {
	Pattern string // such as "POST /posts/{id}/replies"
	Action  string
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

// Run replays a log, which may be compressed with gzip. It reads to the end of the log, and needs
// memory for the users and for the actions of an hour: see the package's documentation.
//
// Lines that are not requests never stop it. It returns an error for a bad option, which matches
// [core.ErrConfig]; [ErrNoRequest]; ctx's own error; or the reader's. A damaged or truncated gzip
// stream is not an error: the report covers what could be read, and Damage says what is wrong.
func Run(ctx context.Context, log io.Reader, o Options) (*Report, error) {
	routes, actions, err := newRoutes(o.Routes)
	if err != nil {
		return nil, err
	}
	o.User = cmp.Or(o.User, UserAddress)
	if o.User == UserAddress {
		o.IDs = cmp.Or(o.IDs, UserAuth)
	}
	if err := o.validate(actions); err != nil {
		return nil, err
	}
	p := newPipeline(o, routes, actions)
	if err := p.run(ctx, log); err != nil {
		return nil, err
	}
	report := p.report()
	if report.Requests == 0 {
		return nil, report.nothing(o)
	}
	return report, nil
}

func (o *Options) validate(actions []string) error {
	if err := o.validateUsers(); err != nil {
		return err
	}
	switch o.Format {
	case "", FormatAuto, FormatCombined, FormatJSON:
	default:
		if !o.isLogFormat() {
			return configError("format %q is unknown; use %s, %s or %s, or the text of an nginx log_format", o.Format, FormatAuto, FormatCombined, FormatJSON)
		}
		if _, err := newLogFormat(o, values{}); err != nil {
			return err
		}
	}
	for _, c := range o.Candidates {
		if i := slices.IndexFunc(c.Limits, func(l core.Limit) bool { return l.IsShadow() }); i >= 0 {
			return configError("%s refuses nobody; leave Shadow out, since a replay is a dry run", c.Limits[i])
		}
		if _, err := core.New(memorystore.New(nil), c.Limits...); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		for i := range c.Limits {
			if c.Limits[i].Rule().TakesSlots() {
				return configError("%s cannot be tried: it frees a slot when an action ends, and a replay does not follow actions to their end; try a window or a Funnel", c.Limits[i])
			}
		}
		switch {
		case c.Action == "" || slices.Contains(actions, c.Action):
		case len(o.Routes) == 0:
			return configError("limit %s is for the action %q, but there are no routes, so all requests are the action %s; add a route, such as 'POST /%[2]s=%[2]s'", c, c.Action, AllActions)
		default:
			return configError("limit %s is for the action %q, and the routes have only %s", c, c.Action, strings.Join(actions, ", "))
		}
	}
	return nil
}

func (o *Options) validateUsers() error {
	if field, ok := strings.CutPrefix(o.User, userField); o.User != UserAddress && o.User != UserAuth && (!ok || field == "") {
		return configError("user %q is unknown; use %s, %s, field:NAME or field:NUMBER", o.User, UserAddress, UserAuth)
	}
	switch field, ok := strings.CutPrefix(o.IDs, userField); {
	case o.IDs != "" && o.IDs != UserAuth && (!ok || field == ""):
		return configError("ids %q are unknown; use %s, field:NAME or field:NUMBER", o.IDs, UserAuth)
	case o.IDs == o.User:
		return configError("user and ids are both %s; leave the ids out, or choose others", o.User)
	}
	return nil
}

// isLogFormat reports whether the format is the text of a log_format, which has variables.
func (o *Options) isLogFormat() bool { return strings.Contains(o.Format, "$") }

func configError(format string, args ...any) error {
	return fmt.Errorf("replay: %s%w", fmt.Sprintf(format, args...), quiet{})
}

// quiet adds to an error that it matches core.ErrConfig, and no words.
type quiet struct{}

func (quiet) Error() string        { return "" }
func (quiet) Is(target error) bool { return target == core.ErrConfig }
