package redisstore

import (
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	MaxCalls    = maxCalls
	ManyBatches = manyBatches
	Source      = "doc.go" // has the package documentation
)

// Key is the key of a limit's state.
func (s *Store) Key(user, action string, limit core.Limit) string {
	return s.keys(user, action, []core.Limit{limit})[0]
}

// SetCalls replaces the bound on calls that wait.
func (s *Store) SetCalls(n int) { s.queue.most = n }

// SetClock replaces the clock by which refusals are repeated.
func (s *Store) SetClock(now func() time.Duration) { s.refusals.now = now }

// AlwaysAsk has the store repeat no refusal: its clock is far on whenever it looks.
func (s *Store) AlwaysAsk() *Store {
	var looks atomic.Int64
	s.SetClock(func() time.Duration { return time.Duration(looks.Add(1)) * time.Hour })
	return s
}

// Refusals is how many refusals are kept.
func (s *Store) Refusals() (n int) {
	for i := range s.refusals.rows {
		for _, k := range s.refusals.rows[i].kept {
			if k != nil {
				n++
			}
		}
	}
	return n
}

// Calls is how many wait or are under way, and the bound.
func (s *Store) Calls() (n, bound int) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return len(s.queue.calls) + s.queue.sending + s.queue.alone, s.queue.most
}

// Batches is how many are under way.
func (s *Store) Batches() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.sending
}

// HeedsDeadlines is whether a caller may send its own call.
func (s *Store) HeedsDeadlines() bool { return s.heedsDeadlines }

// Queues is whether a call for that key waits to be sent.
func (s *Store) Queues(key string) bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return slices.ContainsFunc(s.queue.calls, func(c *call) bool { return slices.Contains(c.keys, key) })
}

// Decode reads one reply to charges that went out together.
func Decode(charges []core.Charge, reply any) ([]core.Decision, []error) {
	calls := make([]*call, len(charges))
	for i := range charges {
		calls[i] = &call{request: &request{}}
		if dated(&charges[i]) {
			calls[i].size++
		}
		for j := range charges[i].Limits {
			calls[i].size += charges[i].Limits[j].Rule().ReplySize(dated(&charges[i]))
		}
	}
	distribute(reply, nil, calls)
	decisions, errs := make([]core.Decision, len(charges)), make([]error, len(charges))
	for i, c := range calls {
		if errs[i] = c.err; c.err == nil {
			var readings []machine.Reading
			var now int64
			if readings, now, errs[i] = decode(&charges[i], c.values, nil); errs[i] == nil {
				decisions[i] = charges[i].Answer(readings, now)
			}
		}
	}
	return decisions, errs
}

// Run runs the script once for some charges, and returns its reply as it is.
func (s *Store) Run(charges ...core.Charge) (any, error) {
	var calls []*call
	for i := range charges {
		c := &charges[i]
		calls = append(calls, &call{keys: s.keys(c.User, c.Action, c.Limits), request: s.request(c)})
	}
	return s.run(newBatch(time.Now().Add(time.Minute)), calls)
}

// Script decides charges.
var Script = take.source

// Word is the word of a charge.
func Word(c core.Charge) string { return word(&c) }

// RefundWords are what is sent to give back, without the keys.
func RefundWords(r *core.Receipt, units int64) string {
	_, word := refundWord(r, units)
	return fmt.Sprint(r.At, " |", word)
}

// MostRefusals is how many refusals can be kept.
const MostRefusals = rows * perRow

// Deny has the store keep a refusal by a full Funnel, as if Redis had given it.
func (s *Store) Deny(user, action string, limits []core.Limit) {
	c := &core.Charge{User: user, Action: action, Limits: limits, Ask: machine.Ask{Cost: 1}}
	if _, known, q := s.refusals.recall(c); !known {
		full := []machine.Reading{{Rest: machine.Span{Whole: limits[0].Period().Microseconds()}}}
		d := c.Answer(full, 0)
		s.refusals.learn(c, q, &d, full)
	}
}

// Anew is whether the store tells the script of a charge what one that has seen no other
// would.
func (s *Store) Anew(c core.Charge) bool {
	return reflect.DeepEqual(s.request(&c), New(s.rdb, nil).request(&c))
}

// AskPolicyAgain lets so much time pass for the store that it asks about the policy after
// the next so many answers.
func (s *Store) AskPolicyAgain() { s.base = s.base.Add(-policyEvery) }
