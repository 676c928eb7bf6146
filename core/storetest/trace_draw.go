package storetest

// The world of a trace: random rules that share states, and a policy.

import (
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"pgregory.net/rapid"
)

// drawRule draws a rule, often one that shares the state of one in others.
func (tr *trace) drawRule(others []rule) rule {
	if len(others) > 0 && rapid.Bool().Draw(tr.t, "shared") {
		return tr.drawOther(rapid.SampledFrom(others).Draw(tr.t, "with"))
	}
	var able []kind
	for k := range kinds {
		if _, amends := tr.f.Store.(core.Amender); (k != inflight || amends) && (k != calendar || tr.f.Now != nil) {
			able = append(able, k)
		}
	}
	r := rule{kind: rapid.SampledFrom(able).Draw(tr.t, "kind")}
	if rapid.IntRange(0, 3).Draw(tr.t, "named") == 3 {
		r.name = "other"
	}
	r.perUser = rapid.IntRange(0, 3).Draw(tr.t, "per user") == 3
	if r.kind == calendar {
		tr.drawCalendar(&r)
	} else if !r.meter() {
		r.period = rapid.SampledFrom(periods).Draw(tr.t, "period")
		if tr.f.Advance == nil {
			r.period = r.period / 1000 * hour
		}
	}
	if r.kind == fixed || r.kind == moving {
		r.lease = tr.drawLease(r.period)
	}
	return tr.drawNumbers(r)
}

// drawCalendar draws the unit and the zone of a calendar. On a clock that runs, no period ends.
func (tr *trace) drawCalendar(r *rule) {
	lengths := map[core.CalendarUnit]int64{core.Minute: hour / 60, core.Hour: hour, core.Day: day, core.Month: 31 * day, core.Year: 366 * day}
	r.unit = core.Year
	if tr.f.Advance != nil {
		r.unit = rapid.SampledFrom([]core.CalendarUnit{core.Minute, core.Minute, core.Hour, core.Day, core.Month}).Draw(tr.t, "unit")
	}
	if r.period = lengths[r.unit]; r.unit == core.Month {
		r.unit = core.Month.From(rapid.SampledFrom([]int{1, 17, 31}).Draw(tr.t, "from"))
	}
	zone := rapid.SampledFrom(zones).Draw(tr.t, "zone")
	var err error
	if r.zone, err = time.LoadLocation(zone); err != nil {
		tr.t.Fatal(err)
	}
}

// drawLease draws the lease of a rule with that period: none, or the longest.
func (tr *trace) drawLease(period int64) int64 {
	longest := period / 11
	if longest < 1000 || rapid.IntRange(0, 3).Draw(tr.t, "leased") != 3 {
		return 0
	}
	return longest
}

// drawOther draws the numbers that are not in a rule's identity. Of a meter it sometimes
// draws all numbers.
func (tr *trace) drawOther(r rule) rule {
	if !r.meter() || rapid.IntRange(0, 3).Draw(tr.t, "other numbers") == 3 {
		return tr.drawNumbers(r)
	}
	if r.kind == funnel || r.kind == throttle {
		r.kind = rapid.SampledFrom([]kind{funnel, throttle}).Draw(tr.t, "funnel")
	}
	if by := rapid.SampledFrom([]int{1, 2}).Draw(tr.t, "rate"); r.d*int64(by) <= hour {
		r.n, r.d = r.n*by, r.d*int64(by)
	}
	return tr.drawMemory(r)
}

// drawNumbers draws a rule's numbers.
func (tr *trace) drawNumbers(r rule) rule {
	r.max = rapid.IntRange(1, 6).Draw(tr.t, "max")
	if !r.meter() {
		return r
	}
	if r.kind == funnel && rapid.Bool().Draw(tr.t, "throttle") {
		r.kind = throttle
	}
	if r.kind == bucket || r.kind == initial {
		r.kind = rapid.SampledFrom([]kind{bucket, initial}).Draw(tr.t, "bucket")
	}
	r.n = rapid.SampledFrom(counts).Draw(tr.t, "n")
	r.d = rapid.SampledFrom(periods).Draw(tr.t, "d")
	if tr.f.Advance == nil {
		r.n, r.d = 1, r.d/1000*hour
	}
	r.initial, r.lease = 0, 0
	if r.kind == initial {
		r.initial = rapid.IntRange(1, r.max).Draw(tr.t, "initial")
	} else {
		r.lease = tr.drawLease(floor(r.full()))
	}
	return tr.drawMemory(r)
}

// drawMemory draws when a bucket with Initial is forgotten.
func (tr *trace) drawMemory(r rule) rule {
	if r.kind == initial {
		r.forget = rapid.SampledFrom([]int64{-1, 0, 1, 500_000, 3_000_000}).Draw(tr.t, "forget")
		if r.forget++; r.forget != 0 { // 0 is the default
			r.forget += ceil(r.full()) - 1
		}
	}
	return r
}

// drawPolicy draws the policy of some limiters.
func (tr *trace) drawPolicy() *policy {
	if rapid.IntRange(0, 3).Draw(tr.t, "policy") != 3 {
		return nil
	}
	unit := int64(1)
	if tr.f.Advance == nil {
		unit = hour / 1000
	}
	if rapid.IntRange(0, 3).Draw(tr.t, "by hand") == 3 {
		return &policy{forgetAfter: 24 * hour}
	}
	l := &policy{
		refusals:    rapid.IntRange(1, 4).Draw(tr.t, "refusals"),
		within:      rapid.SampledFrom(periods).Draw(tr.t, "within") * unit,
		forgetAfter: rapid.SampledFrom(periods).Draw(tr.t, "forgetAfter") * unit,
		perUser:     rapid.Bool().Draw(tr.t, "per user"),
	}
	for range rapid.IntRange(1, 3).Draw(tr.t, "bans") {
		l.bans = append(l.bans, rapid.SampledFrom([]int64{1000, 5000, 30_000, 1_000_000}).Draw(tr.t, "ban")*unit)
	}
	return l
}

// drawWorld draws up to three limiters of up to three rules, and at times of more
// that are shadows.
func (tr *trace) drawWorld() {
	var others []rule
	tr.store = &eager{Store: tr.f.Store}
	for i := range rapid.IntRange(1, 3).Draw(tr.t, "limiters") {
		var rules []rule
		var limits, shadowed []core.Limit
		has := map[string]bool{}
		enforced := rapid.IntRange(1, 3).Draw(tr.t, "limits")
		shadows := max(0, rapid.IntRange(-5, 2).Draw(tr.t, "shadows"))
		for n := range enforced + shadows {
			r := tr.drawRule(others)
			if r.shadow = n >= enforced; has[r.identity()] {
				continue
			}
			has[r.identity()] = true
			rules = append(rules, r)
			if r.shadow {
				shadowed = append(shadowed, r.limit())
			} else {
				limits = append(limits, r.limit())
			}
		}
		limits = append(shadowed, limits...) // New puts the enforced ones first
		l, err := core.New(tr.store, limits...)
		if err != nil {
			tr.t.Fatal(err)
		}
		fmt.Fprintf(&tr.log, "limiter %d: %v", i, limits)
		var options []core.Option
		policy := tr.drawPolicy()
		if policy != nil {
			options = append(options, policy.option())
		}
		receipts := rapid.Bool().Draw(tr.t, "receipts")
		if receipts {
			options = append(options, core.Refundable{})
		}
		if l, err = l.With(options...); err != nil {
			tr.t.Fatal(err)
		}
		fmt.Fprintf(&tr.log, " %+v\n", options)
		others = append(others, rules...)
		tr.limiters, tr.receipts = append(tr.limiters, l), append(tr.receipts, receipts)
		tr.worlds = append(tr.worlds, question{rules: rules, policy: policy})
	}
}
