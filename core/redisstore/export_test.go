package redisstore

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
	"github.com/tailcut/tailcut/core/redisstore/internal/lease"
	"github.com/tailcut/tailcut/core/redisstore/internal/refusals"
)

const Source = "doc.go" // has the package documentation

// Key is the key of a limit's state.
func (s *Store) Key(user, action string, limit core.Limit) string {
	return s.wire.appendKeys(nil, user, action, []core.Limit{limit})[0]
}

// Args are the numbers of a rule that take gets at a time, in microseconds since 1970.
func Args(r *machine.Rule, cost, unix int64) []int64 { return formOf(r).args(r, nil, cost, 0, unix) }

// Key is the key of a limit's state.
func (s *CellStore) Key(user, action string, limit core.Limit) string {
	return s.keys(user, action, []core.Limit{limit})[0]
}

// SetClock replaces the clock by which refusals are repeated, and forgets them. A lease has a clock
// that a test cannot move, so from then on there are none.
func (s *Store) SetClock(now func() time.Duration) {
	s.refusals = refusals.New(full{s.wire}, now, s.wire.options.NoRefusalCache)
	s.WithoutLeases()
}

// WithoutLeases has the server decide leased limits too, as a model of one server does.
func (s *Store) WithoutLeases() *Store {
	s.leases = lease.New(s.refusals, 0, nil, 0)
	return s
}

// SetTime replaces the clock that says the periods of calendar windows.
func (s *Store) SetTime(now func() time.Time) { s.wire.clock = now }

// AlwaysAsk has the store repeat no refusal: its clock is far on whenever it looks.
func (s *Store) AlwaysAsk() *Store {
	var looks atomic.Int64
	s.SetClock(func() time.Duration { return time.Duration(looks.Add(1)) * time.Hour })
	return s
}

// Calls is how many wait for an answer, and how many goroutines send.
func (s *Store) Calls() (calls, sending int) { return s.wire.batches.Load() }

// Calls is [Store.Calls].
func (s *CellStore) Calls() (calls, sending int) { return s.wire.batches.Load() }

// Decode reads one reply to charges that went out together.
func Decode(charges []core.Charge, reply any) ([]core.Decision, []*core.Record, []error) {
	requests, calls := make([]request, len(charges)), make([]*batch.Call, len(charges))
	for i := range charges {
		requests[i] = newRequest(&charges[i], 0)
		calls[i] = &batch.Call{Size: requests[i].size}
	}
	values, ok := reply.([]any)
	if !ok {
		values = []any{reply}
	}
	distribute(values, calls)
	decisions, records, errs := make([]core.Decision, len(charges)), make([]*core.Record, len(charges)), make([]error, len(charges))
	for i, c := range calls {
		if errs[i] = c.Err; c.Err == nil {
			var readings []machine.Reading
			var now int64
			if readings, now, errs[i] = requests[i].decode(c.Reply); errs[i] == nil {
				if decisions[i], records[i] = charges[i].Answer(readings, now); records[i] == nil { // for the readings
					records[i] = &core.Record{Charge: charges[i], Readings: readings}
				}
			}
		}
	}
	return decisions, records, errs
}

// numbers are, by store, the numbers of the slots that Run has taken. They are the same for each store.
var numbers sync.Map

// calls are the calls of some charges.
func (s *Store) calls(charges []core.Charge) (calls []*batch.Call) {
	for i := range charges {
		c := &charges[i]
		r := s.wire.request(c)
		call := &batch.Call{Keys: s.wire.keys(c), Word: r.word}
		if r.slots {
			runs, _ := numbers.LoadOrStore(s, new(atomic.Int64))
			call.Number = runs.(*atomic.Int64).Add(1 << 14)
		}
		calls = append(calls, call)
	}
	return calls
}

// Run runs the script once for some charges, and returns its reply as it is.
func (s *Store) Run(charges ...core.Charge) ([]any, error) {
	calls := s.calls(charges)
	return s.wire.do(context.Background(), &batch.Call{
		Keys:    calls[0].Keys,
		Command: func(send batch.Send) ([]any, error) { return s.wire.run(send, take, takeArgs(calls)) },
	})
}

// A Program is a script with its keys and arguments.
type Program struct {
	Source     string
	Keys, Args []string
}

func newProgramOf(p *program, args []any) (sent Program) {
	words := make([]string, 0, len(args))
	for _, a := range args[head:] {
		words = append(words, fmt.Sprintf("%s", a))
	}
	n := args[head-1].(int)
	return Program{p.source, words[:n], words[n:]}
}

// TakeProgram is what decides some charges.
func (s *Store) TakeProgram(charges ...core.Charge) Program {
	return newProgramOf(take, takeArgs(s.calls(charges)))
}

// AmendProgram is what amends a charge.
func (s *Store) AmendProgram(r *core.Record, a machine.Amendment) Program {
	amended, word := amendWord(r, a)
	keys := s.wire.appendKeys(nil, r.User, r.Action, amended)
	return Program{amend.source, keys, []string{fmt.Sprint(r.At), word}}
}

// Script decides charges.
var Script = take.source

// Word is the word of a charge.
func (s *Store) Word(c core.Charge) string {
	return newRequest(&c, s.wire.clock().UnixMicro()).word.(string)
}

// AmendWords are what is sent to amend, without the keys.
func AmendWords(r *core.Record, a machine.Amendment) string {
	_, word := amendWord(r, a)
	return fmt.Sprint(r.At, " |", word)
}

// Deny has a store with a clock of its own keep a refusal by a full Funnel, as if Redis had given it.
func (s *Store) Deny(c core.Charge) {
	_, _, _ = s.refusals.Take(context.WithValue(context.Background(), denies{}, true), c)
}

type denies struct{}

// full asks Redis, except in Deny.
type full struct{ *wire }

func (f full) Decide(ctx context.Context, c core.Charge) (readings []machine.Reading, now int64, err error) {
	if ctx.Value(denies{}) == nil {
		return f.wire.Decide(ctx, c)
	}
	rule := c.Limits[0].Rule()
	return []machine.Reading{{Rest: rule.Burst, Wait: rule.Emission.Ceil()}}, 0, nil
}

// Anew is whether the store tells the script of a charge what one that has seen no other
// would.
func (s *Store) Anew(c core.Charge) bool {
	return reflect.DeepEqual(s.wire.request(&c), newRequest(&c, s.wire.clock().UnixMicro()))
}

// AskPolicyAgain lets so much time pass for the store that it asks about the policy after
// the next so many answers.
func (s *Store) AskPolicyAgain() {
	s.wire.eviction.mu.Lock()
	defer s.wire.eviction.mu.Unlock()
	s.wire.eviction.next = time.Time{}
}

// MinutesPass lets so much time pass for the store that it finds out again how its servers run programs.
func (s *Store) MinutesPass() {
	s.wire.servers.Range(func(_, w any) bool {
		w.(*server).next.Store(0)
		w.(*server).load.Store(0)
		return true
	})
}

// Sent is the word that the store sends for a charge.
func (s *Store) Sent(c core.Charge) string { return s.wire.request(&c).word.(string) }
