package redisstore_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
)

// uneven is a meter whose state has a fraction.
var uneven = core.Funnel(5, core.Per(7, time.Hour))

// replied are the charges that the replies below are for, of one number to five.
var replied = []core.Charge{
	chargeOf(1, kinds[7]),
	chargeOf(1, kinds[0], kinds[3]),
	chargeOf(2, uneven, kinds[6]),
	chargeOf(9, kinds[4]),
}

// chargeOf is a charge of a user by some limits.
func chargeOf(cost int64, limits ...core.Limit) core.Charge {
	return core.Charge{User: user, Action: action, Cost: cost, Terms: &core.Terms{Limits: limits}}
}

// numbers are how many the limits of a charge have in the reply.
func numbers(c *core.Charge) (n int) {
	for _, l := range c.Limits {
		switch {
		case l == uneven:
			n += 2
		case l.Rule().Kind == machine.KindFunnel || l.Rule().Kind == machine.KindTokenBucket:
			n++
		case l.Rule().Kind == machine.KindFixedWindow || l.Rule().Kind == machine.KindElasticWindow:
			n += 2
		default:
			n += 3
		}
	}
	return n
}

// parse makes what a client could hand out of any bytes.
func parse(b []byte, depth int) (value any, rest []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	tag, b := b[0], b[1:]
	switch tag % 16 {
	case 0:
		return nil, b
	case 1:
		return float64(tag), b
	case 2:
		return tag > 127, b
	case 3, 4:
		n := min(int(tag/16), len(b))
		return "!" + string(b[:n]), b[n:]
	case 5:
		n := min(int(tag/16), len(b))
		return string(b[:n]), b[n:]
	case 6:
		return errors.New("an error"), b
	case 7:
		if depth == 0 {
			return []any{}, b
		}
		v, rest := parse(b, depth-1)
		return []any{v}, rest
	case 8:
		var wide [8]byte
		b = b[copy(wide[:], b):]
		return int64(binary.LittleEndian.Uint64(wide[:])) >> 11, b // as wide as Lua's
	}
	return int64(tag / 16), b
}

// FuzzReply: what is no reply of ours is an error and never a verdict, and what is
// one is read as it stands.
func FuzzReply(f *testing.F) {
	f.Add(uint8(0), []byte("\x19"))
	f.Add(uint8(0), []byte("\xff\x19"))
	f.Add(uint8(0), []byte("\x19\x19"))
	f.Add(uint8(0), []byte("\x00"))
	f.Add(uint8(0), []byte("\x08\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add(uint8(19), []byte("\x19")) // too few for the first, and enough for the second
	f.Add(uint8(7), []byte("\x19\x19\x29\x39\x19\x29\x09\x19\x29"))
	f.Add(uint8(9), []byte("\x03\x23no"))
	f.Add(uint8(12), []byte("\x19\x29\x08\xff\xff\xff\xff\xff\xff\xff\xff\x17\x00"))
	f.Add(uint8(255), []byte("\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19\x19"))
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		charges := []core.Charge{replied[which%4]}
		for w := which / 4; w > 0; w /= 4 {
			charges = append(charges, replied[w%4])
		}
		var reply any
		var values []any
		if len(b) > 0 && b[0] == 0xff {
			reply, _ = parse(b[1:], 2)
			if values, _ = reply.([]any); values == nil && reply != nil {
				values = []any{reply} // a lone value is not in an array
			}
		} else {
			values = []any{}
			for len(b) > 0 {
				var v any
				v, b = parse(b, 2)
				values = append(values, v)
			}
			reply = slices.Clone(values)
		}
		decisions, _, errs := redisstore.Decode(charges, reply)

		// The grammar: each charge has its numbers, or one !text; and that is all. What is
		// cut short within a charge's numbers is left over.
		type part struct {
			good, allowed bool
			small         bool // numbers as the script sends them; others are not told from these
			text          string
		}
		parts := make([]part, len(charges))
		for i := range charges {
			p, n := &parts[i], numbers(&charges[i])
			if len(values) > 0 {
				if text, _ := values[0].(string); strings.HasPrefix(text, "!") {
					p.text, values = text, values[1:]
					continue
				}
			}
			if len(values) < n {
				break
			}
			p.good, p.small, p.allowed = true, true, true
			for _, v := range values[:n] {
				v, ok := v.(int64)
				p.good, p.small = p.good && ok && v >= 0, p.small && v < 7
			}
			at := 0
			for _, l := range charges[i].Limits {
				v, _ := values[at].(int64)
				p.allowed = p.allowed && v%2 == 1
				one := chargeOf(1, l)
				at += numbers(&one)
			}
			values = values[n:]
		}
		for i, p := range parts {
			d, err := decisions[i], errs[i]
			good := p.good && len(values) == 0
			if good != (err == nil) || err != nil && d != (core.Decision{}) {
				t.Fatalf("charge %d: %+v, %v; the reply %v has a verdict: %t", i, d, err, reply, good)
			}
			switch {
			case !good && p.text == "" && !errors.Is(err, redisstore.ErrReply):
				t.Fatalf("charge %d: %v of %v is not ErrReply", i, err, reply)
			case !good && p.text != "" && len(values) == 0 && strings.TrimSpace(err.Error()) != strings.TrimSpace(p.text[1:]) && !strings.HasPrefix(p.text, "!@user_script"):
				t.Fatalf("charge %d: %q, want %q", i, err, p.text[1:])
			case !good:
				continue
			}
			if d.Allowed != p.allowed || d.Allowed != (d.Reason == "") || d.Source != core.SourceStore {
				t.Fatalf("charge %d: %+v of %v", i, d, reply)
			}
			quota := charges[i].Limits[d.Binding].Quota()
			if p.small && (d.Limit != quota || d.Remaining < 0 || d.Remaining > quota || d.ResetAfter < 0 || d.Allowed && d.RetryAfter != 0) {
				t.Errorf("charge %d: %+v of %v is out of bounds", i, d, reply)
			}
		}
	})
}

// Redis 6.2 says where in the script an error is, and ends it with a newline.
func TestErrorOfRedis62(t *testing.T) {
	charge := core.Charge{User: user, Action: action, Cost: 1, Terms: &core.Terms{Limits: kinds[:1]}}
	for said, want := range map[string]string{
		"!@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.\r\n": "OOM command not allowed when used memory > 'maxmemory'.",
		"!OOM command not allowed when used memory > 'maxmemory'.":                        "OOM command not allowed when used memory > 'maxmemory'.",
	} {
		_, _, errs := redisstore.Decode([]core.Charge{charge}, []any{said})
		if errs[0] == nil || errs[0].Error() != want || !redis.HasErrorPrefix(errs[0], "OOM") {
			t.Errorf("%q: %v", said, errs[0])
		}
	}
}
