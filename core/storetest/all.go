package storetest

// Decisions about several subjects: see core.All.

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// joins reports whether the store decides about two users in one step.
func (f *Fixture) joins(a, b string) bool {
	s, ok := f.Store.(core.Joiner)
	return ok && s.Joins(a, b)
}

// other is the second subject of a step of a trace.
type other struct {
	limiter  int
	question question
}

// all asks about two users at once, if the store decides about them in one step.
func (tr *trace) all(s step, i int, a question) bool {
	j := int(s.by) % len(tr.limiters)
	b := tr.worlds[j]
	b.user, b.action = fmt.Sprintf("ann-%d", tr.run), "reply"
	if a.user == b.user {
		b.user = fmt.Sprintf("bob-%d", tr.run)
	}
	if !tr.f.joins(a.user, b.user) {
		return false
	}
	if tr.model.unsure(b) {
		tr.reset(j, b)
		tr.unban(j, b)
	}
	a.cost, b.cost = 1+s.cost%2, 1+s.cost/2
	a.peek = s.forget
	b.peek = a.peek

	call := core.All
	if a.peek {
		call = core.PeekAll
	}
	fmt.Fprintf(&tr.log, "All(%d.For(%s, %s).Cost(%d), %d.For(%s, %s).Cost(%d)), peek %t", i, a.user, a.action, a.cost, j, b.user, b.action, b.cost, a.peek)
	got, err := call(tr.t.Context(), tr.limiters[i].For(a.user, a.action).Cost(a.cost), tr.limiters[j].For(b.user, b.action).Cost(b.cost))
	want, each, paid := tr.model.takeAll([]question{a, b})
	d := bare(got)
	if tr.f.Advance == nil && d.Subject < len(each) && each[d.Subject].Allowed == want.Allowed {
		want = each[d.Subject] // microseconds between calls decide which one binds
	}
	tr.compare(d, want, err)
	has := func(k kind) bool {
		return slices.ContainsFunc(slices.Concat(a.rules, b.rules), func(r rule) bool { return r.kind == k })
	}
	if paid != nil && (tr.receipts[i] || tr.receipts[j] || has(inflight)) {
		tr.charged = append(tr.charged, charged{limiter: i, d: got, paid: paid, units: min(a.cost, b.cost), other: &other{j, b}})
	}
	tr.last = d
	// One subject may wait for longer than another one's bucket with Initial is remembered.
	if tr.honest && !a.peek && !has(inflight) && !has(initial) && want.RetryAfter > 0 && want.RetryAfter != core.Never {
		tr.checkAllHonesty(a, b, want)
	}
	return true
}

// checkAllHonesty is checkHonesty for two subjects.
func (tr *trace) checkAllHonesty(a, b question, d core.Decision) {
	a.peek, b.peek = true, true
	for wait, passes := range map[time.Duration]bool{d.RetryAfter - us(1): false, d.RetryAfter: true} {
		m := tr.model.clone()
		m.now += int64(wait / time.Microsecond)
		if then, _, _ := m.takeAll([]question{a, b}); wait >= 0 && then.Allowed != passes {
			tr.fatal(fmt.Sprintf("after %s: %s", wait, show(then)))
		}
	}
}

// limiter makes one on the script's store.
func (s *script) limiter(options []core.Option, limits ...core.Limit) *core.Limiter {
	s.Helper()
	l, err := core.New(s.f.Store, limits...)
	if err == nil {
		l, err = l.With(options...)
	}
	if err != nil {
		s.Fatal(err)
	}
	return l
}

// all checks a decision about several subjects. A store that cannot decide at all is left out.
func (s *script) all(want core.Decision, subjects ...core.Subject) core.Decision {
	s.Helper()
	s.decides()
	got, err := core.All(s.Context(), subjects...)
	s.same("All", got, want, err)
	return got
}

func (s *script) peekAll(want core.Decision, subjects ...core.Subject) {
	s.Helper()
	got, err := core.PeekAll(s.Context(), subjects...)
	s.same("PeekAll", got, want, err)
}

func (s *script) same(what string, got, want core.Decision, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("at %v: %s: %v", s.now, what, err)
	}
	if !s.f.agree(got, want) {
		s.Fatalf("at %v: %s:\n got %s\nwant %s", s.now, what, show(bare(got)), show(want))
	}
}

// decides skips the test if the store can neither decide about two users together nor refund.
func (s *script) decides() {
	s.Helper()
	if _, refunds := s.f.Store.(core.Amender); !refunds && !s.f.joins("alice", "org") {
		s.Skip(notHere + "it can neither decide about two users together nor give back")
	}
}

// subject is d if it is about the i-th subject.
func subject(i int, d core.Decision) core.Decision {
	d.Subject = i
	return d
}

var allRules = []promise{
	{"of several subjects each is charged, or none is", func(s *script) {
		user, org := s.limiter(nil, core.FixedWindow(3, time.Hour)), s.limiter(nil, core.FixedWindow(2, 2*time.Hour))
		for i, who := range []string{"alice", "bob"} {
			s.all(subject(1, pass(2, 1-i, 2*time.Hour)), user.For(who, "post"), org.For("org", "post"))
		}
		s.all(subject(1, stop(2, 0, 2*time.Hour, 2*time.Hour)), user.For("alice", "post"), org.For("org", "post"))
		s.all(stop(2, 0, 2*time.Hour, 2*time.Hour), org.For("org", "post"), user.For("alice", "post"))
		s.peekAll(subject(1, stop(2, 0, 2*time.Hour, 2*time.Hour)), user.For("alice", "post"), org.For("org", "post"))
		s.all(subject(1, pass(2, 1, 2*time.Hour)), user.For("alice", "post"), org.For("other", "post"))
		s.all(pass(3, 0, time.Hour), user.For("alice", "post"), org.For("third", "post").Cost(1))
		s.all(stop(3, 0, time.Hour, time.Hour), user.For("alice", "post"), org.For("fourth", "post"))
		s.all(pass(2, 1, 2*time.Hour), org.For("fourth", "post"))
	}},

	{"each subject has its own cost, and 0 is not charged", func(s *script) {
		user, org := s.limiter(nil, core.MovingWindow(5, time.Hour)), s.limiter(nil, core.Funnel(10, core.Every(time.Hour)))
		s.all(pass(5, 3, time.Hour), user.For("alice", "post").Cost(2), org.For("org", "post").Cost(3))
		s.all(pass(5, 2, time.Hour), user.For("alice", "post"), org.For("org", "post").Cost(0))
		s.all(pass(5, 2, time.Hour), user.For("alice", "post").Cost(0), org.For("org", "post").Cost(0))
		s.all(subject(1, stop(10, 7, time.Hour, 3*time.Hour)), user.For("alice", "post"), org.For("org", "post").Cost(8))
		s.all(subject(1, pass(10, 0, 10*time.Hour)), user.For("alice", "post").Cost(1), org.For("org", "post").Cost(7))
	}},

	{"a cost that one subject can never pass writes nothing", func(s *script) {
		user := s.limiter([]core.Option{core.BanPolicy{Refusals: 1, Within: time.Hour, Bans: []time.Duration{time.Hour}}}, core.FixedWindow(1, time.Hour))
		org := s.limiter(nil, core.FixedWindow(5, time.Hour))
		s.all(pass(1, 0, time.Hour), user.For("alice", "post"), org.For("org", "post"))
		never := core.Decision{Limit: 5, Remaining: 4, RetryAfter: core.Never, ResetAfter: time.Hour, Reason: core.ReasonLimited, Source: core.SourceStore}
		s.all(subject(1, never), user.For("alice", "post"), org.For("org", "post").Cost(6))
		s.peekAll(stop(1, 0, time.Hour, time.Hour), user.For("alice", "post"))
	}},
}

// concurrentAll has many goroutines act for users who share organizations.
func concurrentAll(t *testing.T, open func(testing.TB) Fixture, goroutines int) {
	const users, orgs, perUser, perOrg = 50, 5, 4, 25
	for _, second := range everyKind(perOrg, perOrg*time.Hour) {
		t.Run("several subjects never exceed their limits: "+fmt.Sprint(second), func(t *testing.T) {
			s := &script{T: t, f: open(t)}
			s.decides()
			user, org := s.limiter(nil, core.MovingWindow(perUser, time.Hour)), s.limiter(nil, second)
			var byUser [users]atomic.Int64
			var byOrg [orgs]atomic.Int64
			of := func(i int) []core.Subject {
				u := i % users
				both := []core.Subject{user.For(fmt.Sprint("user", u), "post"), org.For(fmt.Sprint("org", u%orgs), "post")}
				if i%2 == 0 { // so that an order of the arguments would deadlock
					both[0], both[1] = both[1], both[0]
				}
				return both
			}
			together(t, goroutines, func(i int) error {
				d, err := core.All(t.Context(), of(i)...)
				if d.Allowed {
					byUser[i%users].Add(1)
					byOrg[i%users%orgs].Add(1)
				}
				return err
			})
			joined := s.f.joins("user0", "org0")
			for i := range orgs {
				// Its ten users could do more.
				if n := byOrg[i].Load(); n > perOrg || joined && n != perOrg {
					t.Errorf("org %d: %d passed, not %d", i, n, perOrg)
				}
			}
			for i := range users {
				n := byUser[i].Load()
				d, err := user.Peek(t.Context(), fmt.Sprint("user", i), "post")
				if n > perUser || err != nil || d.Remaining != perUser-int(n) {
					t.Errorf("user %d: %d passed and %d remain of %d, %v", i, n, d.Remaining, perUser, err)
				}
			}
			// With nobody else acting all that is left passes.
			for i := range users {
				for n := byUser[i].Load(); n < perUser; n++ {
					left, err := org.Peek(t.Context(), fmt.Sprint("org", i%orgs), "post")
					if err != nil {
						t.Fatal(err)
					}
					d, err := core.All(t.Context(), of(i)...)
					if err == nil && d.Allowed != left.Allowed {
						err = errors.New(show(d))
					}
					if err != nil {
						t.Fatalf("user %d, of whose organization %d remain: %v", i, left.Remaining, err)
					}
					if d.Allowed {
						byOrg[i%orgs].Add(1)
					}
				}
			}
			for i := range orgs {
				if n := byOrg[i].Load(); n > perOrg {
					t.Errorf("org %d: %d passed of %d", i, n, perOrg)
				}
			}
		})
	}
}
