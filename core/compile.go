package core

// A limit is compiled to a rule of integers when it is made, and to the text that identifies
// its state.

import (
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

func (l *Limit) windowed() bool { return l.kind != 0 && l.rule.Windowed() }

// derived compiles the rule and the identity. Numbers that are out of bounds leave the rule
// uncompiled; validate names them.
func (l Limit) derived() Limit {
	l.rule = machine.Rule{Kind: l.kind}
	switch {
	case l.windowed():
		l.rule = machine.NewWindow(l.kind, int64(l.max), l.period.Microseconds())
	case l.inBounds():
		l.compileMeter()
	}
	l.identify(l.describe())
	return l
}

func (l *Limit) identify(identity string) {
	l.identity, l.rule.Hash = identity, maphash.String(identitySeed, identity)
}

// describe is what Identity returns. A name has no slash, so no name looks like numbers.
func (l *Limit) describe() string {
	b := make([]byte, 0, 64)
	if l.shadow {
		b = append(b, "shadow:"...)
	}
	b = append(b, l.kind.String()...)
	switch {
	case l.windowed():
		b = append(append(b, ':'), shortest(l.period)...)
	case l.rule.Metered():
		b = append(b, ':')
		if l.initial > 0 {
			b = append(strconv.AppendInt(b, int64(l.initial), 10), '/')
		}
		n, period := l.rule.Rate()
		b = append(strconv.AppendInt(b, int64(l.max), 10), ':')
		b = append(strconv.AppendInt(b, n, 10), '/')
		b = append(b, strings.Replace(shortest(micros(period)), "µ", "u", 1)...) // headers are ASCII
	}
	if l.name != "" {
		b = append(append(b, ':'), l.name...)
	}
	return string(b)
}

var identitySeed = maphash.MakeSeed()

func (l *Limit) inBounds() bool {
	return l.max >= 1 && l.max <= maxCount && l.rate.n >= 1 && l.rate.n <= maxCount &&
		l.rate.d >= minPeriod && l.rate.d <= maxDrain
}

func (l *Limit) compileMeter() {
	l.rule = machine.NewMeter(l.kind, int64(l.max), int64(l.rate.n), l.rate.d.Microseconds())
	if l.initial < 1 || l.initial > l.max {
		return
	}
	if l.mods&modForget == 0 && !l.tooSlow() {
		l.forget = micros(l.rule.Burst.Ceil()) + forgetGrace
	}
	l.rule = l.rule.WithInitial(int64(l.initial), l.forget.Microseconds())
}

// tooSlow reports whether a full meter takes longer to drain than is allowed.
func (l *Limit) tooSlow() bool {
	return l.rule.Burst.Ceil() > maxDrain.Microseconds()
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
