// Command replay shows from an access log what limits would have done: how many requests and which
// users they would have refused, and how high a limit must be.
//
//	go -C examples/replay run . -limit 'SlidingWindow(60, 1m)' forum.log.gz
//
// README.md in this directory has more.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	_ "time/tzdata" // for -zone where the system has no zones

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/source"
	"github.com/tailcut/tailcut/examples/replay/internal/trial"
)

var usage = `usage: replay [flags] FILE...|-

Reads access logs, which may be gzipped, and says what limits would have done to their users.
Several files are put in order of time.

  -format FORMAT               the logs' format (auto), or the text of an nginx log_format, such as
                               '$remote_addr - - [$time_local] "$request" $status $uid'; the formats are
                               ` + strings.Join(line.Formats(), ", ") + `
  -user WHO                    who acts: address, authuser, or field:FIELD, which is a field's name in
                               JSON, a variable's in a log_format, and a number in Combined (address)
  -ids WHO                     whose ids are counted behind each address: authuser or field:FIELD (authuser)
  -field NAME=FIELD            where JSON lines or a log_format have their time, duration, address, method,
                               path, request or cost, if not under a usual name; - is nowhere; repeatable
  -unit ns|us|ms|s             the unit of durations whose field does not tell it (they are not used)
  -zone ZONE                   the zone of times without one, such as Europe/Berlin (UTC)
  -route 'PATTERN=ACTION'      which requests are which action: POST /posts/{id}/replies=reply; repeatable
  -limit '[ACTION=]LIMIT'      a limit to try, such as reply=SlidingWindow(5, 1m); repeatable.
                               " and " joins several into one limiter
  -plans NEW.json              a document of plans to try: whom it would refuse, by plan and action
  -against OLD.json            the document that is in force: whom only the new one would refuse or let pass
  -json                        print one JSON object instead of text
  -html FILE                   also write a page with curves and hours
  -show-users                  show the users by name, not hashed
  -partial                     it is fine if more than a tenth of the requests is lost
`

func main() {
	stderr, _ := os.Stderr.Stat()
	c := command{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: stderr != nil && stderr.Mode()&os.ModeCharDevice != 0,
	}
	os.Exit(c.run(os.Args[1:]))
}

// A command is the program, apart from the process.
type command struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stderr is one
}

// The exit codes.
const (
	exitOK    = 0
	exitError = 1 // of the log, or of what is written
	exitUsage = 2 // of the arguments
	exitLost  = 3 // more than a tenth of the requests is lost
)

type arguments struct {
	trial.Options
	json    bool
	html    string
	partial bool
	files   []string

	plans, against string // files
}

// mostLost is the share of the requests that may be lost in silence.
const mostLost = 0.1

func (c *command) run(args []string) int {
	a, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(c.stdout, usage)
		return exitOK
	case err != nil:
		c.say("%s; replay -h lists the flags", err)
		return exitUsage
	}
	t, err := trial.New(a.Options)
	if err != nil {
		c.say("%s", err)
		return exitUsage
	}
	found, err := c.replay(t, a)
	if err != nil {
		c.say("%s", err)
		return exitError
	}
	if lost, share := found.Lost(); share > mostLost && !a.partial {
		c.say("%d requests, %.0f%% of them all, may be lost; the report says why, and -partial that this is fine", lost, 100*share)
		return exitLost
	}
	return exitOK
}

// say writes to stderr. What the text has of a log, a document or a file's name cannot write into the terminal.
func (c *command) say(format string, args ...any) {
	lines := strings.Split(fmt.Sprintf(format, args...), "\n")
	for i := range lines {
		lines[i] = report.Printable(lines[i])
	}
	fmt.Fprintf(c.stderr, "replay: %s\n", strings.Join(lines, "\n"))
}

func parse(args []string) (a arguments, err error) {
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.Line.Format, "format", line.FormatAuto, "")
	flags.StringVar(&a.Line.User, "user", line.UserAddress, "")
	flags.StringVar(&a.Line.IDs, "ids", "", "")
	flags.BoolVar(&a.json, "json", false, "")
	flags.StringVar(&a.html, "html", "", "")
	flags.StringVar(&a.Line.Unit, "unit", "", "")
	flags.BoolVar(&a.partial, "partial", false, "")
	flags.Func("zone", "", func(s string) (err error) {
		a.Line.Zone, err = time.LoadLocation(s)
		return err
	})
	flags.StringVar(&a.plans, "plans", "", "")
	flags.StringVar(&a.against, "against", "", "")
	flags.BoolVar(&a.ShowUsers, "show-users", false, "")
	flags.Func("field", "", func(s string) error { return addField(&a.Line.Fields, s) })
	flags.Func("route", "", func(s string) error {
		i := strings.LastIndexByte(s, '=')
		if i < 0 {
			return errors.New("write PATTERN=ACTION, such as 'POST /posts/{id}/replies=reply'")
		}
		a.Routes = append(a.Routes, route.Route{Pattern: s[:i], Action: s[i+1:]})
		return nil
	})
	flags.Func("limit", "", func(s string) error {
		candidate, err := parseCandidate(s)
		a.Candidates = append(a.Candidates, candidate)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	if a.files = flags.Args(); len(a.files) == 0 {
		return a, errors.New("give a log, or - for standard input, after the flags")
	}
	if a.plans == "" && a.against != "" {
		return a, errors.New("-against needs -plans, the document to try")
	}
	if a.Plans.To, err = document(a.plans); err == nil {
		a.Plans.From, err = document(a.against)
	}
	if err != nil {
		return a, err
	}
	for _, file := range a.files {
		if strings.HasPrefix(file, "-") && len(a.files) > 1 {
			return a, fmt.Errorf("%s stands among the files; write flags before them, and - alone", file)
		}
	}
	page, errPage := os.Stat(a.html)
	for _, file := range append([]string{a.plans, a.against}, a.files...) {
		if in, err := os.Stat(file); err == nil && errPage == nil && os.SameFile(in, page) {
			return a, fmt.Errorf("%s is read too; choose another file for -html", a.html)
		}
	}
	return a, nil
}

// document reads a document of plans, if there is one.
func document(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	return os.ReadFile(file)
}

// parseCandidate reads "reply=SlidingWindow(5, 1m) and FixedWindow(200, 24h)". No limit's text has
// an equals sign.
func parseCandidate(s string) (c trial.Candidate, err error) {
	if i := strings.LastIndexByte(s, '='); i >= 0 {
		c.Action, s = s[:i], s[i+1:]
	}
	for text := range strings.SplitSeq(s, " and ") {
		limit, err := core.ParseLimit(text)
		if err != nil {
			return c, err
		}
		c.Limits = append(c.Limits, limit)
	}
	return c, nil
}

func addField(f *line.Fields, s string) error {
	name, field, ok := strings.Cut(s, "=")
	to := map[string]*string{
		"time": &f.Time, "duration": &f.Duration, "address": &f.Address, "method": &f.Method,
		"path": &f.Path, "request": &f.Request, "cost": &f.Cost,
	}[name]
	if !ok || field == "" || to == nil {
		return errors.New("write NAME=FIELD; the names are time, duration, address, method, path, request, cost")
	}
	*to = field
	return nil
}

// replay does what the arguments say.
func (c *command) replay(t *trial.Trial, a arguments) (*report.Report, error) {
	counted := &progress{out: c.stderr}
	var logs []source.Log
	for _, file := range a.files {
		log, size, err := c.open(file)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		counted.size += size
		logs = append(logs, source.Log{Name: file, Reader: counted.of(log)})
	}
	if a.html != "" { // find out now whether it can be written
		if err := writable(a.html); err != nil {
			return nil, fmt.Errorf("%w; choose another file for -html", err)
		}
	}
	stop := func() {}
	if c.terminal {
		stop = counted.show()
	}
	found, err := t.Run(context.Background(), logs...)
	stop()
	if err != nil {
		return nil, err
	}
	if found.Damage != nil {
		c.say("the gzip stream is damaged or cut off (%s); the report covers what comes before", found.Damage)
	}
	if err := c.print(found, a.json); err != nil {
		return nil, fmt.Errorf("the report was not printed: %w", err)
	}
	if a.html != "" {
		if err := report.Page(a.html, found); err != nil {
			return nil, fmt.Errorf("the page %s was not written: %w", a.html, err)
		}
	}
	return found, nil
}

// writable opens a file for writing, and leaves everything as it was.
func writable(file string) error {
	_, before := os.Stat(file)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close()
	if errors.Is(before, fs.ErrNotExist) {
		return os.Remove(file)
	}
	return nil
}

func (c *command) open(file string) (log io.ReadCloser, size int64, err error) {
	if file == "-" {
		return io.NopCloser(c.stdin), 0, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, fmt.Errorf("%w; give the path of a log, or - for standard input", err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory; give one of its files", file)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (c *command) print(r *report.Report, asJSON bool) error {
	if !asJSON {
		return report.Text(c.stdout, r)
	}
	e := json.NewEncoder(c.stdout)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
