package line

// What other programs put in front of a line: syslog, journalctl, Kubernetes, Docker, Heroku, grep.

import (
	"bytes"
	"strconv"
)

// A prefix is what stood in front of a line.
type prefix struct {
	at     Instant // its time, 0 if there is none
	part   bool    // the line goes on in the next one of the stream
	stream byte
}

// mostPrefixes bounds those of programs that log another program's lines: else a line of nothing else takes 128 MB of stack.
const mostPrefixes = 3

// unwrap takes a line out of what is in front of it. Without a known prefix it returns the line. before is how many
// were in front of b already.
func unwrap(b []byte, before int) (line []byte, p prefix) {
	rest := b
	if len(rest) > 2 && rest[0] == '<' && '0' <= rest[1] && rest[1] <= '9' { // syslog's priority
		if i := bytes.IndexByte(rest, '>'); i > 0 && i < 5 {
			rest = rest[i+1:]
			if len(rest) > 2 && rest[0] == '1' && rest[1] == ' ' {
				return syslog(rest[2:], b)
			}
		}
	}
	first, after := word(rest)
	switch {
	case len(first) == 0:
		return b, p
	case len(first) == 1 && first[0] == '1': // syslog without its priority
		if line, p := syslog(after, b); p.at.At > 0 {
			return line, p
		}
		return b, p
	case monthOf(first) > 0 && len(first) == 3: // Mar 10 09:00:03 host nginx: , and with a year
		day, more := word(after)
		clock, more := word(more)
		if len(clock) == 4 {
			clock, more = word(more)
		}
		if len(day) > 2 || !isClock(clock) {
			return b, p
		}
		return tagged(more), p
	case len(first) == 3 && weekday(first): // Tue 2026-03-10 09:00:03 UTC host nginx:
		date, more := word(after)
		clock, more := word(more)
		if len(date) != 10 || !isClock(clock) {
			return b, p
		}
		_, more = word(more)
		return tagged(more), p
	case before < mostPrefixes && bytes.HasPrefix(first, []byte("[pod/")): // kubectl logs --prefix
		line, _ = unwrap(after, before+1)
		return line, p
	case first[0] == '[': // [ 123.456789] host nginx:
		if i := bytes.IndexByte(rest, ']'); i > 0 {
			if _, _, ok := decimal(bytes.TrimSpace(rest[1:i])); ok {
				return tagged(bytes.TrimLeft(rest[i+1:], " ")), p
			}
		}
		return b, p
	}
	if t, n := leadingInstant(rest); n > 0 {
		p.at = t
		rest = bytes.TrimLeft(rest[n:], " ")
		stream, more := word(rest)
		flag, last := word(more)
		if (string(stream) == "stdout" || string(stream) == "stderr") && len(flag) > 0 && (flag[0] == 'F' || flag[0] == 'P') && (len(flag) == 1 || flag[1] == ':') {
			p.stream, p.part = stream[3], flag[0] == 'P' // CRI
			return last, p
		}
		return tagged(rest), p
	}
	if i := bytes.Index(rest, []byte(" | ")); i > 0 && before < mostPrefixes && bytes.IndexByte(bytes.TrimRight(rest[:i], " "), ' ') < 0 { // docker compose
		return unwrap(rest[i+3:], before+1)
	}
	if len(rest) < len(b) {
		return tagged(rest), p
	}
	return b, p
}

// syslog is the message of RFC 5424 (https://www.rfc-editor.org/rfc/rfc5424#section-6), behind its version.
func syslog(b, whole []byte) (line []byte, p prefix) {
	stamp, rest := word(b)
	t, ok := rfc3339(stamp)
	if !ok && string(stamp) != "-" {
		return whole, p
	}
	p.at = t
	for range 4 { // host, program, process and message
		_, rest = word(rest)
	}
	if len(rest) > 0 && rest[0] == '[' {
		for i := 1; i < len(rest); i++ {
			switch {
			case rest[i] == '\\':
				i++
			case rest[i] == ']' && (i+1 == len(rest) || rest[i+1] == ' '):
				return withoutBOM(bytes.TrimLeft(rest[i+1:], " ")), p
			}
		}
		return whole, prefix{}
	}
	_, rest = word(rest)
	return withoutBOM(rest), p
}

// uncoloured appends a line to another one, without the colours that programs write for a terminal.
func uncoloured(to, b []byte) []byte {
	for {
		text, rest, found := bytes.Cut(b, []byte("\x1b["))
		if to = append(to, text...); !found {
			return to
		}
		b = bytes.TrimLeft(rest, "0123456789;")
		b = b[min(1, len(b)):]
	}
}

func withoutBOM(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")) }

// tagged drops "host nginx[12]: " or "nginx: ".
func tagged(b []byte) []byte {
	rest := b
	for range 3 {
		var w []byte
		if w, rest = word(rest); len(w) < 2 || len(rest) == 0 && !bytes.HasSuffix(b, []byte{' '}) && w[len(w)-1] != ':' {
			return b
		}
		if w[len(w)-1] == ':' && w[len(w)-2] != ':' {
			return rest
		}
	}
	return b
}

// word cuts a word off, and the spaces behind it.
func word(b []byte) (w, rest []byte) {
	i := bytes.IndexByte(b, ' ')
	if i < 0 {
		return b, nil
	}
	w = b[:i]
	for i < len(b) && b[i] == ' ' {
		i++
	}
	return w, b[i:]
}

func isClock(b []byte) bool {
	return len(b) >= 8 && b[2] == ':' && b[5] == ':' && pair(b, 0) >= 0 && pair(b, 3) >= 0 && pair(b, 6) >= 0
}

func weekday(b []byte) bool {
	return bytes.Contains([]byte("Mon Tue Wed Thu Fri Sat Sun"), b)
}

// leadingInstant reads a date and a time of day at the start of a line, and its length.
func leadingInstant(b []byte) (t Instant, n int) {
	if len(b) < 19 || b[4] != '-' && b[4] != '/' || b[13] != ':' {
		return t, 0
	}
	n = 19
	for n < len(b) && b[n] != ' ' && b[n] != '\t' {
		n++
	}
	if more, _ := word(b[min(n+1, len(b)):]); n < len(b) && (string(more) == "UTC" || len(more) == 5 && (more[0] == '+' || more[0] == '-')) {
		n += 1 + len(more)
	}
	t, ok := anyInstant(b[:n])
	if !ok {
		return t, 0
	}
	return t, n
}

// parts joins the parts of a line that CRI has cut.
type parts struct {
	out, err []byte
}

func (p *parts) of(stream byte) *[]byte {
	if stream == 'e' {
		return &p.err
	}
	return &p.out
}

func (p *parts) add(b []byte, stream byte) Outcome {
	to := p.of(stream)
	if len(*to)+len(b) > 1<<20 {
		*to = nil
		return Broken
	}
	*to = append(*to, b...)
	return Part
}

func (p *parts) open() bool { return len(p.out)+len(p.err) > 0 }

// isPart reports whether a line looks like a part that CRI has cut.
func isPart(b []byte) bool {
	return len(b) > 48 && b[4] == '-' && b[10] == 'T' && bytes.Contains(b[20:48], []byte(" P "))
}

// whole is a line with the parts in front of it.
func (p *parts) whole(b []byte, stream byte) []byte {
	to := p.of(stream)
	if stream == 0 || len(*to) == 0 {
		return b
	}
	line := append(*to, b...)
	*to = nil
	return line
}

// Open reports how many lines have begun and not ended, and forgets them.
func (w *Reader) Open() (n int64) {
	for _, b := range []*[]byte{&w.parts.out, &w.parts.err} {
		if len(*b) > 0 {
			n++
		}
		*b = nil
	}
	return n
}

// message reports whether a line that is no request is of a kind that is none: a comment, an error of nginx or
// Apache, the start of a file.
func message(b []byte) bool {
	switch {
	case b[0] == '#', bytes.HasPrefix(b, []byte("==> ")), string(b) == "--":
		return true
	}
	for _, level := range levels {
		if bytes.Contains(b[:min(len(b), 120)], level) {
			return true
		}
	}
	return false
}

// levels are how the error logs of nginx and Apache name them.
var levels = [][]byte{
	[]byte("[error]"), []byte("[warn]"), []byte("[notice]"), []byte("[crit]"), []byte("[alert]"), []byte("[emerg]"), []byte("[info]"), []byte("[debug]"),
	[]byte(":error]"), []byte(":warn]"), []byte(":notice]"), []byte(":info]"), []byte(":crit]"),
}

// numbered reports whether each line of a sample has its number in front, as grep -n and cat -n write
// it. The first part of an IPv6 address looks like one too, but does not grow from line to line. In another file
// the numbers start again.
func numbered(sample []byte) bool {
	last, lines, in := -1, 0, ""
	files := make(map[string]bool)
	for text := range bytes.Lines(sample) {
		text = bytes.TrimRight(text, "\r\n")
		if len(text) == 0 {
			continue
		}
		file, _, n := number(text)
		if string(file) != in && !files[string(file)] {
			in, last = string(file), -1
			files[in] = true
		}
		if n <= last {
			return false
		}
		last = n
		lines++
	}
	return lines > 2 || lines > 0 && last < 1000
}

// number is where the text behind a line's number starts, and the number, or -1. grep writes the name of the
// file before it.
func number(b []byte) (file []byte, start, n int) {
	if i := bytes.IndexByte(b, ':'); i > 0 && isFile(b[:i]) && leadingIPv4(b) == 0 {
		file, start = b[:i], i+1
	}
	for start < len(b) && b[start] == ' ' {
		start++
	}
	end := start
	for end < len(b) && '0' <= b[end] && b[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(string(b[start:end]))
	if err != nil || end == len(b) || b[end] != ':' && b[end] != '\t' && b[end] != '-' {
		return nil, 0, -1
	}
	return file, end + 1, n
}

// isFile reports whether b may be the name of a file, and neither a time nor the start of an address.
func isFile(b []byte) bool {
	if bytes.IndexByte(b, ' ') >= 0 {
		return false
	}
	last := b[len(b)-1] | 0x20
	return bytes.IndexByte(b, '.') > 0 || 'a' <= last && last <= 'z' && len(bytes.Trim(b, "0123456789abcdefABCDEF")) > 0
}

func unnumbered(b []byte) []byte {
	if _, start, n := number(b); n >= 0 {
		return b[start:]
	}
	return b
}
