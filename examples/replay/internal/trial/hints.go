package trial

// What a log may be that looks right and is not, and why one has no requests.

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/tailcut/tailcut/examples/replay/internal/fit"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
)

// few is how few users may be those of proxies, if there are many requests of each.
const few = 3

func (p *pipeline) hints(r *report.Report, early int64) []string {
	hints := append([]string(nil), p.notes...)
	hint := func(format string, args ...any) { hints = append(hints, fmt.Sprintf(format, args...)) }
	s, o := &p.sums, &p.options.Line
	var late int64
	for _, l := range r.LeftOut {
		late += l.Late
	}
	requests := r.Requests + r.Unrouted
	if late*10 > r.Requests {
		if s.falls*10 > 9*(late+requests) {
			hint("The lines are in order of time, but newest first: turn them round, as in tac FILE | replay -.")
		} else {
			hint("The log goes back in time by more than an hour %s. If its parts are newest first, give the files as arguments: replay puts them in order. If one line has an instant in the future, all that follow are late: remove it.", times(s.back))
		}
	}
	if s.unitless > 0 {
		hint("The duration of %d requests has no unit, and writers differ: log/slog writes ns, zerolog ms, zap s, and Caddy what it is told. So it is not used, and these requests count at their end. Name the unit with -unit, or leave it out with -field duration=-.", s.unitless)
	}
	if early*10 > r.Requests {
		hint("%d requests would have begun before the log, by their duration. Is its unit right? -unit names the unit, if the field does not; -field duration=- leaves it out.", early)
	}
	if s.zoneless > 0 && o.Zone == nil {
		hint("The times have no zone, and are taken as UTC. Name another one with -zone, such as -zone Europe/Berlin.")
	}
	cut := r.ByAddress && p.cut()
	if s.named*10 > requests && !cut {
		hint("The client of %d requests is no address, but a host name or another text. If it is not what tells users apart, name the field: -field address=NAME, or -format.", s.named)
	}
	const proxies = "If those are proxies, the log lacks the clients, or has them in another field: -user field:NAME or NUMBER."
	switch {
	case cut:
		hint("Nearly all addresses are cut: they end in .0, .x or ::, so a user is a network with all of its clients, and no number below is that of one client. Write whole addresses to the log, or a keyed hash of them, or a user's id, and name that with -field address=NAME or -user field:NAME.")
	case !r.ByAddress || r.Requests < 30:
	case r.Users <= few:
		hint("All requests come from %d addresses. "+proxies, r.Users)
	case p.private():
		hint("All clients have addresses of private networks. " + proxies)
	}
	if r.Users >= 30 && int64(r.Users)*10 > 9*r.Requests {
		hint("Nearly each request is of another user. Does %s tell who acts?", cmp.Or(o.User, line.UserAddress))
	}
	if text := p.probers(r); text != "" {
		hint("%s", text)
	}
	return hints
}

// cut reports whether nine of ten users are addresses without their ends. Of whole IPv4 addresses one in 256 ends
// in 0. Of IPv6 networks many do, so there must be more of them.
func (p *pipeline) cut() bool {
	users, short4, short6 := 0, 0, 0
	for _, s := range p.shards {
		users += len(s.users)
		for _, u := range s.users {
			if net, err := netip.ParsePrefix(u.name); err == nil {
				if ip := net.Addr().As16(); ip[6] == 0 && ip[7] == 0 {
					short6++
				}
			} else if i := strings.LastIndexByte(u.name, '.'); i > 0 && (u.name[i:] == ".0" || strings.Trim(u.name[i+1:], "xX*") == "") {
				short4++
			}
		}
	}
	return (short4 >= 3 || short6 >= 10) && (short4+short6)*10 >= users*9
}

// probers says what users who do nothing but health checks make of the smallest max, if they raise one.
func (p *pipeline) probers(r *report.Report) string {
	if p.sums.probes.n == 0 {
		return ""
	}
	others, probers := make([][]fit.Peaks, len(p.actions)), 0
	for _, s := range p.shards {
		for _, m := range s.members[1:] {
			if s.users[m.user].acts {
				others[m.action] = append(others[m.action], m.Peaks)
			} else {
				probers++
			}
		}
	}
	var text string
	worst := 1.0
	for i, of := range others {
		if len(of) == 0 || probers == 0 {
			continue
		}
		for j, w := range fit.Windows(of) {
			with, without := r.Actions[i].Windows[j].Max.Nobody, w.Max.Nobody
			if ratio := float64(with) / float64(max(1, without)); ratio > worst {
				worst = ratio
				text = fmt.Sprintf("Health checks such as %s set the smallest max that touches nobody: in %s it is %d with the users who do nothing else, and %d without them. Name the routes that you limit with -route, and leave health checks out.",
					shown(string(p.sums.probes.first.text)), report.Brief(w.Period), with, without)
			}
		}
	}
	return text
}

// private reports whether all users are addresses of private networks.
func (p *pipeline) private() bool {
	for _, s := range p.shards {
		for _, u := range s.users {
			if a, err := netip.ParseAddr(u.name); err != nil || !a.IsPrivate() {
				return false
			}
		}
	}
	return true
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// nothing returns the error that says why there is no request.
func nothing(r *report.Report, o Options) error {
	user := cmp.Or(o.Line.User, line.UserAddress)
	var left report.LeftOut
	for _, l := range r.LeftOut {
		left.Anonymous, left.Late, left.Long = left.Anonymous+l.Anonymous, left.Late+l.Late, left.Long+l.Long
	}
	switch {
	case r.Damage != nil:
		return fmt.Errorf("%w: the gzip stream is damaged (%v); unpack the log by hand", ErrNoRequest, r.Damage)
	case r.Lines == 0:
		return fmt.Errorf("%w: the log is empty", ErrNoRequest)
	case r.Unrouted > 0:
		first := r.FirstUnrouted
		if r.Redirected == r.Unrouted {
			first = r.FirstRedirected
		}
		return fmt.Errorf("%w: none of %d requests matches a route; compare the routes with the paths in the log, such as %s", ErrNoRequest, r.Unrouted, shown(first.Text))
	case left.Anonymous > 0:
		return fmt.Errorf("%w: none of %d requests names a user by %s; choose another source of users, such as -user field:NAME", ErrNoRequest, left.Anonymous, user)
	case left.Long > 0:
		return fmt.Errorf("%w: %d requests lasted for more than an hour; -field duration=- takes each at its end", ErrNoRequest, left.Long)
	}
	most := r.Skipped[0]
	for _, s := range r.Skipped {
		if s.Lines > most.Lines || !most.Reason.Lost() && s.Reason.Lost() {
			most = s
		}
	}
	for _, s := range r.Skipped {
		if text := s.First.Text; text == "{" || text == "[" || strings.HasPrefix(text, "[{") {
			return fmt.Errorf("%w: the log is JSON, but has no object on each line; jq -c writes it so: jq -c . FILE | replay -, or jq -c '.[]' if it is an array", ErrNoRequest)
		}
	}
	remedy := most.Reason.Remedy()
	if most.Reason == line.Message && strings.HasPrefix(most.First.Text, "{") {
		remedy = line.NoTarget.Remedy()
	}
	if remedy == "" {
		remedy = line.Unknown.Remedy()
	}
	return fmt.Errorf("%w: none of the %d lines is one; %d are %s. Line %d is %s. %s", ErrNoRequest, r.Lines, most.Lines, most.Reason, most.First.Line, shown(most.First.Text), remedy)
}

// shown is a line for a terminal.
func shown(text string) string {
	return "`" + strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text) + "`"
}
