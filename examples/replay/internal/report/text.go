package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/examples/replay/internal/fit"
)

// Text writes the report for a terminal.
func Text(to io.Writer, r *Report) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s by %s in %s.\n", count(r.Requests, "request"), count(int64(r.Users), "user"), count(r.Lines, "line"))
	fmt.Fprintf(w, "From %s to %s.\n", instant(r.From), instant(r.To))
	for _, note := range notes(r) {
		fmt.Fprintln(w, note)
	}
	if r.Comparison != nil {
		writeComparison(w, r.Comparison)
	}
	for _, a := range r.Actions {
		fmt.Fprintf(w, "\n%s: %s by %s\n", Printable(a.Name), count(a.Requests, "request"), count(int64(a.Users), "user"))
		for _, l := range r.Limits {
			if l.Action == a.Name {
				writeLimit(w, &l, zone(r))
			}
		}
		if a.Requests > 0 {
			writeFit(w, &a)
		}
	}
	return w.Flush()
}

// loud is the share of the requests that are lost from which on the report begins with it.
const loud = 0.01

// notes say what was not replayed, and what one has to know of the rest.
func notes(r *Report) (lines []string) {
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if lost, share := r.Lost(); share >= loud {
		note("%s of the requests may be lost: %s.", percent(lost, int64(float64(lost)/share)), group(lost))
	}
	var others int64
	var kinds []string
	for _, s := range r.Skipped {
		if !s.Reason.Lost() {
			others += s.Lines
			kinds = append(kinds, group(s.Lines)+" "+s.Reason.String())
		}
	}
	if others > 0 {
		note("Lines that are not requests: %s (%s).", group(others), strings.Join(kinds, "; "))
	}
	for _, s := range r.Skipped {
		if s.Reason.Lost() {
			note("%s", strings.TrimSpace(fmt.Sprintf("Lost lines, %s: %s, the first is line %s of %s. %s",
				s.Reason, group(s.Lines), group(s.First.Line), Printable(s.First.Name), s.Reason.Remedy())))
		}
	}
	if n := r.Unrouted - r.Redirected; n > 0 {
		note("Left out requests that match no route: %s. The first is %s.", group(n), r.FirstUnrouted)
	}
	if r.Redirected > 0 {
		note("Left out requests that an http.ServeMux redirects: %s. The first is %s. If your router takes such paths, they count there.", group(r.Redirected), r.FirstRedirected)
	}
	left := func(format string, of func(LeftOut) int64) {
		var sum int64
		var by []string
		for _, l := range r.LeftOut {
			if n := of(l); n > 0 {
				sum += n
				by = append(by, Printable(l.Action)+" "+group(n))
			}
		}
		switch {
		case sum == 0:
		case len(r.LeftOut) > 1:
			note(format, group(sum)+" ("+strings.Join(by, ", ")+")")
		default:
			note(format, group(sum))
		}
	}
	kind := "Left out"
	if r.ByAddress {
		kind = "Lost"
	}
	left(kind+" requests that name no user: %s.", func(l LeftOut) int64 { return l.Anonymous })
	left("Lost requests that are more than an hour out of order: %s.", func(l LeftOut) int64 { return l.Late })
	left("Lost requests that lasted for more than an hour: %s. To take each at its end, leave out durations with -field duration=-.", func(l LeftOut) int64 { return l.Long })
	lines = append(lines, r.Hints...)
	if r.WholeSeconds {
		note("The log has whole seconds: all requests of a second count as one instant.")
	}
	if r.Damage != nil {
		note("The gzip stream is damaged or cut off: the report covers what comes before.")
	}
	return lines
}

func writeLimit(w io.Writer, l *Limit, zone string) {
	fmt.Fprintf(w, "\n  %s\n", l.Text)
	if l.Refused == 0 {
		fmt.Fprintf(w, "    refuses nobody\n")
		return
	}
	fmt.Fprintf(w, "    refuses       %s of %s requests (%s)\n", group(l.Refused), group(l.Requests), percent(l.Refused, l.Requests))
	fmt.Fprintf(w, "    touches       %s of %s users (%s)\n", group(int64(l.UsersRefused)), group(int64(l.Users)), percent(int64(l.UsersRefused), int64(l.Users)))
	fmt.Fprintf(w, "    longest wait  %s\n", longestWait(l))
	fmt.Fprintf(w, "    by hour       %s  0 to 23 o'clock, %s\n", bars(byHour(l.Hours)), zone)
	for i, u := range l.Most {
		title := ""
		if i == 0 {
			title = "most refused"
		}
		ids := ""
		if u.IDs > 0 {
			ids = "; " + count(int64(u.IDs), "user id")
		}
		fmt.Fprintf(w, "    %-12s  %s (%s%s)\n", title, Printable(u.Name), group(u.Refused), ids)
	}
}

// longestWait says also how many refusals no wait ends.
func longestWait(l *Limit) string {
	switch l.Never {
	case 0:
		return Brief(l.LongestWait)
	case l.Refused:
		return "never"
	}
	return fmt.Sprintf("%s; %s never", Brief(l.LongestWait), group(l.Never))
}

func writeFit(w io.Writer, a *Action) {
	row := func(name string, l fit.Least) {
		fmt.Fprintf(w, "    %-9s %9s %16s %14s\n", name, group(int64(l.Nobody)), group(int64(l.PerMille)), group(int64(l.Percent)))
	}
	head := func(title string) {
		fmt.Fprintf(w, "\n  %s\n    %-9s %9s %16s %14s\n", title, "", "nobody", "0.1% of users", "1% of users")
	}
	head("The smallest max of a SlidingWindow that touches at most")
	for _, f := range a.Windows {
		row(Brief(f.Period), f.Max)
	}
	head("The smallest capacity of a Funnel that touches at most")
	for _, f := range a.Funnels {
		row(rate(f.Rate), f.Capacity)
	}
	limit, touched := suggestion(a)
	if limit == "" {
		fmt.Fprintf(w, "\n  %s\n", noGuess)
		return
	}
	fmt.Fprintf(w, "\n  A first guess, per minute, touches %s. Compare the tables:\n    %s\n", touched, limit)
}

// noGuess stands in place of a first guess that is too high for every limit.
const noGuess = "No limit has a max above 1,000,000,000. To limit these users per minute, count costs in a larger unit, such as kB."

// suggestion is a line of Go for a limit a minute, and whom it touches: at most a thousandth of the
// users, or if they are few a hundredth or none. It is a guess: a few heavy users may be
// spammers, or an office behind one address. The line is empty if no limit is as high.
func suggestion(a *Action) (line, touched string) {
	fit := a.Windows[0].Max
	n, touched := fit.Nobody, "none of these users"
	switch {
	case a.Users >= 1000:
		n, touched = fit.PerMille, "at most 0.1% of these users"
	case a.Users >= 100:
		n, touched = fit.Percent, "at most 1% of these users"
	}
	kind := "SlidingWindow"
	switch {
	case n > 1_000_000_000:
		return "", ""
	case n > 50_000_000:
		kind = "FixedWindow"
	case n > 10_000:
		kind = "MovingWindow"
	}
	return fmt.Sprintf("limiter, err := core.New(store, core.%s(%d, time.Minute))", kind, n), touched
}

func byHour(h Hours) (sum [24]int64) {
	for _, day := range h {
		for i, n := range day {
			sum[i] += n
		}
	}
	return sum
}

// bars is a row of small bars, the highest for the most. A dot is 0.
func bars(counts [24]int64) string {
	most := int64(1)
	for _, n := range counts {
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range counts {
		if n == 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[(n*8-1)/most])
	}
	return b.String()
}

// Printable quotes a name that could harm a terminal.
func Printable(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// String is the text of the place and where it is.
func (p Place) String() string {
	return fmt.Sprintf("%s, line %s of %s", Printable(p.Text), group(p.Line), Printable(p.Name))
}

func instant(t time.Time) string { return t.Format("2006-01-02 15:04:05") + " UTC" }

// zone is the log's clock: UTC+08:00.
func zone(r *Report) string {
	if r.Offset == 0 {
		return "UTC"
	}
	return "UTC" + time.Time{}.In(time.FixedZone("", r.Offset)).Format("-07:00")
}

func rate(r core.Rate) string {
	return strings.NewReplacer("Per(", "", ", 1m)", "/m", ", 1s)", "/s").Replace(r.String())
}

// Brief is a duration without what is finer than a second's hundredth or the zero units that
// its String has.
func Brief(d time.Duration) string {
	if d > time.Second {
		d = d.Round(10 * time.Millisecond)
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return group(n) + " " + what + "s"
}

// group writes a number with commas: 1,234,567.
func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent has three digits, or as many as a small share needs.
func percent(n, of int64) string {
	switch p := 100 * float64(n) / float64(max(of, 1)); {
	case n == 0:
		return "0%"
	case p < 0.01:
		return "below 0.01%"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 2, 64) + "%"
	default:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	}
}
