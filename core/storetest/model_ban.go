package storetest

import (
	"fmt"

	"github.com/tailcut/tailcut/core"
)

// This file is the reference for ban policies.

// A policy is the parameters of a core.BanPolicy.
type policy struct {
	refusals            int
	within, forgetAfter int64
	bans                []int64
	perUser             bool
}

func (l *policy) option() core.BanPolicy {
	x := core.BanPolicy{Refusals: l.refusals, Within: us(l.within), ForgetAfter: us(l.forgetAfter), PerUser: l.perUser}
	for _, b := range l.bans {
		x.Bans = append(x.Bans, us(b))
	}
	return x
}

// A record is the state of the ban policies of a user and action.
type record struct {
	known    bool
	last     int64   // the last refusal or ban
	until    int64   // the end of the last ban
	level    int     // bans in a row
	refusals []int64 // since the last ban

	end  int64 // as of a history
	past bool
}

func recordKey(a question) string {
	if a.policy.perUser {
		return fmt.Sprintf("%q all actions", a.user)
	}
	return fmt.Sprintf("%q %q", a.user, a.action)
}

// standing is the record as the policy reads it now. moved says that the clock has
// stepped back, and that the record was moved back with it.
func (m *model) standing(a question) (r record, moved bool) {
	r = m.records[recordKey(a)]
	if !r.known {
		return record{known: true}, false
	}
	ahead := max(0, r.last-m.now)
	r.last -= ahead
	r.until -= ahead
	if m.now-max(r.last, r.until) >= a.policy.forgetAfter {
		r.level = 0
	}
	var counted []int64
	for _, at := range r.refusals {
		if at -= ahead; m.now-at < a.policy.within {
			counted = append(counted, at)
		}
	}
	r.refusals = counted
	return r, ahead > 0
}

// left is how long a ban lasts.
func (m *model) left(r record) int64 { return max(0, r.until-m.now) }

// forgotten is how long until nothing in the record matters.
func (m *model) forgotten(r record, l *policy) int64 {
	end := max(m.now, r.last, r.until)
	if r.level > 0 {
		end = max(r.last, r.until) + l.forgetAfter
	}
	if len(r.refusals) > 0 {
		end = max(end, r.refusals[len(r.refusals)-1]+l.within)
	}
	return end - m.now
}

// refuse writes a refusal, if there was one, and the ban that it leads to.
func (m *model) refuse(a question, refusal bool) {
	r, moved := m.standing(a)
	if refusal = refusal && a.policy.refusals > 0; refusal {
		r.refusals, r.last = append(r.refusals, m.now), m.now
		if len(r.refusals) >= a.policy.refusals {
			bans := a.policy.bans
			r.until, r.refusals = m.now+bans[min(r.level, len(bans)-1)], nil
			r.level++
		}
	}
	if refusal || moved {
		m.record(a, r)
	}
}

func (m *model) record(a question, r record) {
	r.end = m.now + m.forgotten(r, a.policy)
	r.past = r.end <= m.now
	m.records[recordKey(a)] = r
}

// ban makes a manual ban.
func (m *model) ban(a question, length int64) {
	r, _ := m.standing(a)
	r.last, r.until, r.refusals = m.now, m.now+length, nil
	m.record(a, r)
}

func (m *model) unban(a question) { delete(m.records, recordKey(a)) }

func (m *model) standingStatus(a question) core.BanStatus {
	r, _ := m.standing(a)
	left := m.left(r)
	return core.BanStatus{
		Banned: left > 0, RetryAfter: us(left), ForgetAfter: us(m.forgotten(r, a.policy)),
		Refusals: len(r.refusals), Level: r.level,
	}
}
