package core

// The text form of a limit, for numbers in a file, a flag or the environment.

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String returns the calls that make the limit, without the package's name:
// SlidingWindow(5, 1m). [ParseLimit] reads it.
func (l Limit) String() string {
	if l.shape == nil {
		return "Limit{}"
	}
	var b strings.Builder
	b.WriteString(l.shape.text(&l))
	if l.mods&modRefused != 0 {
		b.WriteString(".CountRefused()")
	}
	if l.mods&modInitial != 0 {
		fmt.Fprintf(&b, ".Initial(%d)", l.initial)
	}
	if l.mods&modForget != 0 {
		fmt.Fprintf(&b, ".ForgetAfter(%s)", shortest(l.forget))
	}
	if l.mods&modName != 0 {
		fmt.Fprintf(&b, ".Named(%q)", l.name)
	}
	if l.perUser {
		b.WriteString(".PerUser()")
	}
	if l.shadow {
		b.WriteString(".Shadow()")
	}
	return b.String()
}

// ParseLimit reads what [Limit.String] prints, such as
//
//	SlidingWindow(5, 1m).Named("burst")
//	TokenBucket(100, Per(30, 1m)).Initial(10)
//	Funnel(15, Every(2s))
//
// Durations are as [time.ParseDuration] reads them, names are in double quotes, and there
// may be spaces between the parts. The error matches [ErrConfig]. It names the word that is
// wrong and its position, counted in bytes from 1. If a number is out of bounds, the error is
// that of [New].
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

// MarshalText returns the limit as [Limit.String] prints it. A limit that [New] would refuse
// is an error.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	text := l.String()
	if _, err := ParseLimit(text); err != nil { // a BanPolicy's limit, which Observe shows
		return nil, err
	}
	return []byte(text), nil
}

// UnmarshalText is [ParseLimit].
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// The words of a limit's text, in the order in which an error lists them.
var (
	limitWords = []limitWord{
		{"SlidingWindow", func(p *limitParser, _ Limit) Limit { return SlidingWindow(p.number(), p.next().duration()) }},
		{"MovingWindow", func(p *limitParser, _ Limit) Limit { return MovingWindow(p.number(), p.next().duration()) }},
		{"FixedWindow", func(p *limitParser, _ Limit) Limit { return FixedWindow(p.number(), p.next().duration()) }},
		{"ElasticWindow", func(p *limitParser, _ Limit) Limit { return ElasticWindow(p.number(), p.next().duration()) }},
		{"TokenBucket", func(p *limitParser, _ Limit) Limit { return TokenBucket(p.number(), p.next().rate()) }},
		{"Funnel", func(p *limitParser, _ Limit) Limit { return Funnel(p.number(), p.next().rate()) }},
		{"Throttle", func(p *limitParser, _ Limit) Limit { return Throttle(p.number(), p.next().rate()) }},
	}
	modifierWords = []limitWord{
		{"CountRefused", func(_ *limitParser, l Limit) Limit { return l.CountRefused() }},
		{"Initial", func(p *limitParser, l Limit) Limit { return l.Initial(p.number()) }},
		{"ForgetAfter", func(p *limitParser, l Limit) Limit { return l.ForgetAfter(p.duration()) }},
		{"Named", func(p *limitParser, l Limit) Limit { return l.Named(p.quoted()) }},
		{"PerUser", func(_ *limitParser, l Limit) Limit { return l.PerUser() }},
		{"Shadow", func(_ *limitParser, l Limit) Limit { return l.Shadow() }},
	}
)

// A limitWord is a constructor or a modifier, and how its arguments are read.
type limitWord struct {
	word string
	read func(p *limitParser, l Limit) Limit
}

// A limitParser reads a text from left to right. After the first error its methods return
// zero values and read nothing.
type limitParser struct {
	text string
	at   int
	err  error
}

func (p *limitParser) limit() Limit {
	l := p.call(limitWords, Limit{}, "limit")
	used := make(map[string]bool)
	for p.err == nil && p.skip() < len(p.text) {
		p.want(".")
		start := p.skip()
		l = p.call(modifierWords, l, "modifier")
		if word := leading(p.text[start:], isLetter); used[word] {
			p.fail(start, "%s is there twice; remove one", word)
		} else {
			used[word] = true
		}
	}
	return l
}

// call reads one of the words with its arguments.
func (p *limitParser) call(words []limitWord, l Limit, what string) Limit {
	start := p.skip()
	word := p.take(isLetter)
	for _, w := range words {
		if p.err == nil && w.word == word {
			p.want("(")
			l = w.read(p, l)
			p.want(")")
			return l
		}
	}
	known := make([]string, len(words))
	for i, w := range words {
		known[i] = w.word
	}
	p.fail(start, "%s is not a %s; use one of %s", p.found(start), what, strings.Join(known, ", "))
	return l
}

func (p *limitParser) rate() Rate {
	start := p.skip()
	var r Rate
	switch p.take(isLetter) {
	case "Per":
		p.want("(")
		r = Per(p.number(), p.next().duration())
		p.want(")")
	case "Every":
		p.want("(")
		r = Every(p.duration())
		p.want(")")
	default:
		p.fail(start, "%s is not a rate; write Per(30, 1m) or Every(2s)", p.found(start))
	}
	return r
}

func (p *limitParser) number() int {
	start := p.skip()
	n, err := strconv.Atoi(p.take(isArgument))
	if err != nil {
		p.fail(start, "%s is not a whole number of at most 1000000000", p.found(start))
	}
	return n
}

func (p *limitParser) duration() time.Duration {
	start := p.skip()
	d, err := time.ParseDuration(p.take(isArgument))
	if err != nil {
		p.fail(start, "%s is not a duration; write one such as 500ms, 1m or 1h30m", p.found(start))
	}
	return d
}

func (p *limitParser) quoted() string {
	p.want(`"`)
	name := p.take(func(c byte) bool { return c != '"' })
	p.want(`"`)
	return name
}

// next reads the comma in front of the next argument.
func (p *limitParser) next() *limitParser {
	p.want(",")
	return p
}

func (p *limitParser) want(token string) {
	start := p.skip()
	if p.err != nil {
		return
	}
	if !strings.HasPrefix(p.text[start:], token) {
		p.fail(start, "%q is missing before %s", token, p.found(start))
		return
	}
	p.at += len(token)
}

// skip passes over spaces, and returns the position after them.
func (p *limitParser) skip() int {
	if p.err == nil {
		p.at += len(leading(p.text[p.at:], isSpace))
	}
	return p.at
}

func (p *limitParser) take(is func(byte) bool) string {
	if p.err != nil {
		return ""
	}
	word := leading(p.text[p.at:], is)
	p.at += len(word)
	return word
}

// found is the word at a position, for an error.
func (p *limitParser) found(at int) string {
	if at == len(p.text) {
		return "the end of the text"
	}
	word := leading(p.text[at:], isArgument)
	if len(word) == 0 {
		word = p.text[at : at+1]
	}
	return fmt.Sprintf("%.40q", word)
}

func (p *limitParser) fail(at int, format string, args ...any) {
	if p.err == nil {
		p.err = configError(fmt.Sprintf("core: ParseLimit: %.80q, position %d: %s", p.text, at+1, fmt.Sprintf(format, args...)))
	}
}

// leading is the longest prefix of s whose bytes all satisfy is.
func leading(s string, is func(byte) bool) string {
	for i := range len(s) {
		if !is(s[i]) {
			return s[:i]
		}
	}
	return s
}

func isSpace(c byte) bool  { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// isArgument reports whether c may be part of a number or a duration: not a parenthesis,
// comma, quote or space.
func isArgument(c byte) bool { return !isSpace(c) && !strings.ContainsRune(`(),"`, rune(c)) }

// shortest is d without the zero units that d.String prints: 1m and not 1m0s.
func shortest(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	return strings.Replace(s, "h0m", "h", 1)
}
