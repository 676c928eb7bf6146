package line

// Instants and durations as logs write them, in microseconds since 1970 UTC.

import (
	"bytes"
	"strconv"
	"time"
)

const (
	second = int64(time.Second / time.Microsecond)
	hour   = 3600 * second
	day    = 24 * hour

	// Instants outside the years 1970 to 2199 are not read, so that differences never overflow.
	firstInstant = 0
	lastInstant  = 7258118400 * second
)

// An Instant is a point in time, in microseconds since 1970 UTC, and the offset in which the log wrote
// it, in seconds east of UTC. Numbers have no offset.
type Instant struct {
	At       int64
	Offset   int32
	Zoned    bool
	zoneless bool // a date and a time of day, in a zone that is not written
}

// Zoneless reports whether the log does not write the zone.
func (t *Instant) Zoneless() bool { return t.zoneless }

func (t *Instant) ok() bool { return t.At >= firstInstant && t.At < lastInstant }

// digits reads a number of exactly len(b) digits.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0
}

// pair reads the two digits at i. It is -1 if they are none.
func pair(b []byte, i int) int {
	hi, lo := b[i]-'0', b[i+1]-'0'
	if hi > 9 || lo > 9 {
		return -1
	}
	return int(hi)*10 + int(lo)
}

// unix is the instant of a date and a time of day, if there is such a date.
func unix(year int64, month, day, hh, mm, ss int) (int64, bool) {
	if month < 1 || month > 12 || day < 1 || hh < 0 || hh > 23 || mm < 0 || mm > 59 || ss < 0 || ss > 59 {
		return 0, false
	}
	if days := daysIn(year, month); day > days {
		return 0, false
	}
	// Days from civil: years start in March, so that a leap day is the last of its year.
	y, m := year, int64(month)
	if m <= 2 {
		y--
		m += 12
	}
	days := 365*y + y/4 - y/100 + y/400 + (153*(m-3)+2)/5 + int64(day) - 1 - 719468
	return ((days*24+int64(hh))*60+int64(mm))*60 + int64(ss), true
}

func daysIn(year int64, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// clfInstant reads 10/Oct/2000:13:55:36 -0700, also with a space between date and time, with a fraction, or
// without a zone.
func clfInstant(b []byte) (t Instant, ok bool) {
	if len(b) < 20 || b[2] != '/' || b[6] != '/' || b[11] != ':' && b[11] != ' ' || b[14] != ':' || b[17] != ':' {
		return t, false
	}
	year, ok := digits(b[7:11])
	if !ok {
		return t, false
	}
	s, ok := unix(year, monthOf(b[3:6]), pair(b, 0), pair(b, 12), pair(b, 15), pair(b, 18))
	if !ok {
		return t, false
	}
	return t.rest(s, b[20:])
}

func monthOf(b []byte) int {
	switch string(b) {
	case "Jan":
		return 1
	case "Feb":
		return 2
	case "Mar":
		return 3
	case "Apr":
		return 4
	case "May":
		return 5
	case "Jun":
		return 6
	case "Jul":
		return 7
	case "Aug":
		return 8
	case "Sep":
		return 9
	case "Oct":
		return 10
	case "Nov":
		return 11
	case "Dec":
		return 12
	}
	return 0
}

func (t *Instant) zone(sign byte, hh, mm int) bool {
	if sign != '+' && sign != '-' || hh < 0 || hh > 24 || mm < 0 || mm > 60 {
		return false
	}
	t.Offset, t.Zoned = int32(hh*3600+mm*60), true
	if sign == '-' {
		t.Offset = -t.Offset
	}
	return true
}

// rfc3339 reads 2006-01-02T15:04:05.999999Z and the like, also with a space instead of the T, slashes, or
// without a zone. It drops fractions of a microsecond.
func rfc3339(b []byte) (t Instant, ok bool) {
	if len(b) < 19 || b[4] != '-' && b[4] != '/' || b[7] != b[4] || b[10] != 'T' && b[10] != ' ' || b[13] != ':' || b[16] != ':' {
		return t, false
	}
	year, ok := digits(b[:4])
	if !ok {
		return t, false
	}
	s, ok := unix(year, pair(b, 5), pair(b, 8), pair(b, 11), pair(b, 14), pair(b, 17))
	if !ok {
		return t, false
	}
	return t.rest(s, b[19:])
}

// rest reads what follows the seconds: a fraction and a zone, or less.
func (t Instant) rest(s int64, rest []byte) (Instant, bool) {
	fraction := int64(0)
	if len(rest) > 0 && (rest[0] == '.' || rest[0] == ',') {
		n := 1
		for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
			n++
		}
		if n == 1 {
			return t, false
		}
		fraction, rest = micro(rest[1:n]), rest[n:]
	}
	if len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	switch {
	case len(rest) == 0:
		t.zoneless = true
	case len(rest) == 1 && rest[0] == 'Z', len(rest) >= 3 && (string(rest[:3]) == "UTC" || string(rest[:3]) == "GMT"):
		t.Zoned = true
	case len(rest) == 6 && rest[3] == ':' && t.zone(rest[0], pair(rest, 1), pair(rest, 4)):
	case len(rest) == 3 && t.zone(rest[0], pair(rest, 1), 0):
	case (len(rest) == 5 || len(rest) > 5 && rest[5] == ' ') && t.zone(rest[0], pair(rest, 1), pair(rest, 3)):
	default:
		return t, false
	}
	t.At = (s-int64(t.Offset))*second + fraction
	return t, t.ok()
}

// micro reads the digits after a decimal point as microseconds, cut off.
func micro(b []byte) (n int64) {
	for i := range 6 {
		n *= 10
		if i < len(b) {
			n += int64(b[i] - '0')
		}
	}
	return n
}

// epoch reads a number of seconds, milliseconds, microseconds or nanoseconds since 1970. Which
// of them it is shows in its magnitude.
func epoch(b []byte) (t Instant, ok bool) {
	n, fraction, ok := decimal(b)
	if !ok {
		return t, false
	}
	switch {
	case n < 100_000_000_000: // the year 5138 in seconds, 1973 in milliseconds
		t.At = n*second + fraction
	case n < 100_000_000_000_000:
		t.At = n*1000 + fraction/1000
	case n < 100_000_000_000_000_000:
		t.At = n
	default:
		t.At = n / 1000
	}
	return t, t.ok()
}

// decimal reads a number that is not negative, as its whole part and millionths, cut off.
func decimal(b []byte) (n, fraction int64, ok bool) {
	if bytes.IndexByte(b, 'e') >= 0 || bytes.IndexByte(b, 'E') >= 0 {
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil || f < 0 || f >= 1<<62 {
			return 0, 0, false
		}
		return int64(f), int64((f - float64(int64(f))) * 1e6), true
	}
	whole, rest, point := bytes.Cut(b, []byte{'.'})
	if len(whole) > 19 || len(whole) == 19 && whole[0] > '8' { // it could overflow
		return 0, 0, false
	}
	if n, ok = digits(whole); !ok {
		return 0, 0, false
	}
	if point {
		if _, ok = digits(rest); !ok {
			return 0, 0, false
		}
		fraction = micro(rest)
	}
	return n, fraction, true
}

// anyInstant reads an instant in any of the ways above, or as package time prints it.
func anyInstant(b []byte) (Instant, bool) {
	switch {
	case len(b) > 4 && (b[4] == '-' || b[4] == '/'):
		return rfc3339(b)
	case len(b) > 2 && b[2] == '/':
		return clfInstant(b)
	case len(b) > 3 && 'A' <= b[0] && b[0] <= 'Z':
		for _, layout := range [...]string{time.RFC1123, time.RFC1123Z, time.ANSIC, time.UnixDate, time.RFC850} {
			if u, err := time.Parse(layout, string(b)); err == nil {
				t := Instant{At: u.UnixMicro(), Zoned: layout != time.ANSIC, zoneless: layout == time.ANSIC}
				return t, t.ok()
			}
		}
		return Instant{}, false
	}
	return epoch(b)
}

// A zone finds the offset of times without one.
type zone struct {
	in *time.Location // nil is UTC
}

func (z zone) offset(at int64) int64 {
	if z.in == nil {
		return 0
	}
	_, o := time.UnixMicro(at).In(z.in).Zone() // close enough for the first guess
	_, o = time.UnixMicro(at - int64(o)*second).In(z.in).Zone()
	return int64(o)
}

// A unit says how a bare number is to be read as a duration.
type unit int64

const (
	unitNone    unit = 0  // not a duration: the instant is that of the start already
	unitUnknown unit = -1 // writers differ
	unitNginx   unit = -2 // seconds with a fraction, else unknown
	unitSecond  unit = unit(time.Second)
	unitMilli   unit = unit(time.Millisecond)
	unitMicro   unit = unit(time.Microsecond)
	unitNano    unit = 1
)

var units = map[string]unit{"s": unitSecond, "ms": unitMilli, "us": unitMicro, "ns": unitNano}

// duration reads a duration in microseconds, cut off. What is not a duration is 0. Of a bare number the unit
// must be known.
func duration(b []byte, u unit) (micros int64, known bool) {
	if len(b) == 0 || u == unitNone {
		return 0, true
	}
	if c := b[len(b)-1]; c < '0' || c > '9' {
		d, err := time.ParseDuration(string(b))
		if err != nil || d < 0 {
			return 0, true
		}
		return d.Microseconds(), true
	}
	n, fraction, ok := decimal(b)
	if u == unitNginx && bytes.IndexByte(b, '.') >= 0 {
		u = unitSecond
	}
	switch {
	case !ok || n == 0 && fraction == 0 || n >= 1<<53:
		return 0, true
	case u < 0:
		return 0, false
	case u < unitMicro:
		return n / 1000, true
	}
	each := int64(u / unitMicro)
	if n > lastInstant/each {
		return 0, true
	}
	return n*each + fraction*each/second, true
}
