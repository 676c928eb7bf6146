package core

// The text form of a limit, for a file, a flag or an environment variable.

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// String returns the calls that make the limit, without the name of the package, such as
// SlidingWindow(5, 1m). If [New] accepts the limit, [ParseLimit] reads this text. Otherwise the
// text is only for errors: it may be shortened, for example.
func (l Limit) String() string {
	if l.shape == nil {
		return "Limit{}"
	}
	var b strings.Builder
	b.WriteString(l.shape.text(&l))
	modifier := func(called bool, format string, args ...any) {
		if called {
			fmt.Fprintf(&b, format, args...)
		}
	}
	modifier(l.mods&modRefused != 0, ".CountRefused()")
	modifier(l.mods&modInitial != 0, ".Initial(%d)", l.initial)
	modifier(l.mods&modForget != 0, ".ForgetAfter(%s)", shortest(l.forget))
	modifier(l.mods&modLease != 0 && l.kind == machine.KindInFlight, ".Lease(%s)", shortest(l.period)) // other kinds ignore Lease
	modifier(l.mods&modPrepay != 0, ".Leased(%s)", shortest(l.prepay))
	modifier(l.mods&modName != 0, ".Named(%.65q)", l.name)
	modifier(l.rule.PerUser, ".PerUser()")
	modifier(l.rule.Shadow, ".Shadow()")
	return b.String()
}

// ParseLimit returns the limit of a text in the form of [Limit.String]. These are examples:
//
//	SlidingWindow(5, 1m).Named("burst")
//	TokenBucket(100, Per(30, 1m)).Initial(10)
//	Funnel(15, Every(2s))
//	CalendarWindow(10000, month, Asia/Shanghai)
//	CalendarWindow(10000, month.from(17), UTC)
//
// Durations have the form of [time.ParseDuration]. Names are in double quotes. There may be spaces
// between the parts. If the text is wrong, the error names the wrong word and its position, counted
// in bytes from 1. If a number is out of bounds, the error is the same as that of [New]. All errors
// match [ErrConfig].
func ParseLimit(s string) (Limit, error) {
	p := limitParser{text: s}
	l := p.limit()
	if p.err != nil {
		return Limit{}, p.err
	}
	if err := l.validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

// MarshalText returns the text of [Limit.String]. If [New] would refuse the limit, MarshalText
// returns an error.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	text := l.String()
	if _, err := ParseLimit(text); err != nil { // such as the limit of a BanPolicy, which an Observation has
		return nil, err
	}
	return []byte(text), nil
}

// UnmarshalText sets l to the limit that [ParseLimit] returns. If there is an error, l does not
// change.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// The calls that a limit's text may contain, in the order in which an error lists them.
var (
	limitCalls = []limitCall{
		{"SlidingWindow(5, 1m)", func(p *limitParser, _ Limit) Limit { return SlidingWindow(p.number(), p.next().duration()) }},
		{"MovingWindow(5, 1m)", func(p *limitParser, _ Limit) Limit { return MovingWindow(p.number(), p.next().duration()) }},
		{"FixedWindow(5, 1m)", func(p *limitParser, _ Limit) Limit { return FixedWindow(p.number(), p.next().duration()) }},
		{"ElasticWindow(5, 1m)", func(p *limitParser, _ Limit) Limit { return ElasticWindow(p.number(), p.next().duration()) }},
		{"CalendarWindow(5, month, UTC)", func(p *limitParser, _ Limit) Limit {
			max := p.number()
			return calendarIn(p.next().unit(), p.next().zone()).limit(max)
		}},
		{"TokenBucket(5, Per(30, 1m))", func(p *limitParser, _ Limit) Limit { return TokenBucket(p.number(), p.next().rate()) }},
		{"Funnel(5, Per(30, 1m))", func(p *limitParser, _ Limit) Limit { return Funnel(p.number(), p.next().rate()) }},
		{"Throttle(5, Per(30, 1m))", func(p *limitParser, _ Limit) Limit { return Throttle(p.number(), p.next().rate()) }},
		{"InFlight(5)", func(p *limitParser, _ Limit) Limit { return InFlight(p.number()) }},
		{"Nothing()", func(*limitParser, Limit) Limit { return Nothing() }},
	}
	modifierCalls = []limitCall{
		{"CountRefused()", func(_ *limitParser, l Limit) Limit { return l.CountRefused() }},
		{"Initial(3)", func(p *limitParser, l Limit) Limit { return l.Initial(p.number()) }},
		{"ForgetAfter(24h)", func(p *limitParser, l Limit) Limit { return l.ForgetAfter(p.duration()) }},
		{"Lease(1m)", func(p *limitParser, l Limit) Limit { return l.Lease(p.duration()) }},
		{"Leased(50ms)", func(p *limitParser, l Limit) Limit { return l.Leased(p.duration()) }},
		{`Named("burst")`, func(p *limitParser, l Limit) Limit { return l.Named(p.quoted()) }},
		{"PerUser()", func(_ *limitParser, l Limit) Limit { return l.PerUser() }},
		{"Shadow()", func(_ *limitParser, l Limit) Limit { return l.Shadow() }},
	}
)

// A limitCall is an example of a constructor or a modifier, and how its arguments are read.
type limitCall struct {
	example string
	read    func(p *limitParser, l Limit) Limit
}

// A limitParser reads a text from left to right. It keeps only the first error.
type limitParser struct {
	text    string
	at      int
	example string // an example of the call that is being read
	err     error
}

func (p *limitParser) limit() Limit {
	l := p.call(limitCalls, Limit{}, "limit")
	used := map[string]bool{}
	for p.err == nil && p.word() != "" {
		if !strings.HasPrefix(p.word(), ".") {
			p.fail("%s stands after the limit; only a modifier may, such as .PerUser()", p.found())
			break
		}
		p.at++
		word, start := p.word(), p.at
		l = p.call(modifierCalls, l, "modifier")
		if used[word] {
			p.at = start
			p.fail("%s is given twice; remove one", word)
		}
		used[word] = true
	}
	return l
}

// call reads one of the given calls.
func (p *limitParser) call(calls []limitCall, l Limit, what string) Limit {
	examples := make([]string, len(calls))
	for i, c := range calls {
		examples[i] = c.example
		if word, _, _ := strings.Cut(c.example, "("); word == p.word() {
			p.example = c.example
			p.at += len(word)
			p.want("(")
			l = c.read(p, l)
			p.want(")")
			return l
		}
	}
	p.fail("%s is not a %s; write one such as %s", p.found(), what, strings.Join(examples, ", "))
	return l
}

func (p *limitParser) rate() Rate {
	word, n := p.word(), 1
	p.pass(word == "Per" || word == "Every", "a rate; write Per(30, 1m) or Every(2s)")
	p.want("(")
	if word == "Per" {
		n = p.number()
		p.want(",")
	}
	r := Per(n, p.duration())
	p.want(")")
	return r
}

func (p *limitParser) number() int {
	return readWord(p, strconv.Atoi, "a whole number of at most 1000000000")
}

func (p *limitParser) duration() time.Duration {
	return readWord(p, time.ParseDuration, "a duration; write one such as 500ms, 1m or 24h")
}

func readWord[T any](p *limitParser, parse func(string) (T, error), what string) T {
	v, err := parse(p.word())
	p.pass(err == nil, what)
	return v
}

func (p *limitParser) unit() CalendarUnit {
	word, from := strings.CutSuffix(p.word(), ".from")
	unit := CalendarUnit(word)
	_, day := unit.split()
	p.pass(day != 0 && (!from || unit == Month), "one of "+calendarUnits+" or month.from(17)")
	if from {
		p.want("(")
		digits := p.word()
		unit = CalendarUnit(word + fromCall + digits + ")")
		_, day = unit.split()
		p.pass(day != 0, "a day from 2 to 31; write one such as 17")
		p.want(")")
	}
	return unit
}

// zone reads the name of a zone. It does not check whether the zone exists.
func (p *limitParser) zone() string {
	zone := p.word()
	p.pass(zone != "" && strings.Trim(zone, legalZone) == "", "a time zone; write one such as UTC or Asia/Shanghai")
	return zone
}

// pass skips the next word. If the word is not legal, pass sets the error.
func (p *limitParser) pass(legal bool, what string) {
	if !legal {
		p.fail("%s is not %s", p.found(), what)
	}
	p.at += len(p.word())
}

func (p *limitParser) quoted() string {
	p.want(`"`)
	name, _, _ := strings.Cut(p.text[p.at:], `"`)
	p.at += len(name)
	p.want(`"`)
	return name
}

// next reads the comma before the next argument.
func (p *limitParser) next() *limitParser {
	p.want(",")
	return p
}

func (p *limitParser) want(token string) {
	if !strings.HasPrefix(p.word(), token) {
		p.fail("%q is missing before %s; write it as in %s", token, p.found(), p.example)
		return
	}
	p.at += len(token)
}

const spaces = " \t\n\r"

// word skips spaces, and returns the next word or punctuation mark, or "" at the end of the text.
func (p *limitParser) word() string {
	rest := strings.TrimLeft(p.text[p.at:], spaces)
	p.at = len(p.text) - len(rest)
	end := strings.IndexAny(rest, spaces+`(),"`)
	if end < 0 {
		return rest
	}
	return rest[:max(1, end)]
}

// found describes the next word for an error.
func (p *limitParser) found() string {
	if word := p.word(); word != "" {
		return fmt.Sprintf("%.40q", word)
	}
	return "the end of the text"
}

// fail sets the error, unless there is one already. The error's position is that of the next word.
func (p *limitParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = configError(fmt.Sprintf("core: ParseLimit: %.80q, position %d: %s", p.text, p.at+1, fmt.Sprintf(format, args...)))
	}
}
