package metrics

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/plans"
)

// Options are the settings of a [Metrics]. The zero value is the default.
type Options struct {
	// MaxPairs bounds the pairs of action and limit, 1 to 100,000; 0 is 1,000. A pair takes
	// up to 1 KB. The log says once that the bound is reached. Later actions are counted
	// under the action "other", with their limit. There are at most 100 such limits, and
	// later ones are counted under the limit "other".
	MaxPairs int

	// ShowUsers has MostRefused name the users. By default it returns hashes of them, with a
	// random key per Metrics.
	ShowUsers bool
}

// other is the label of actions and limits beyond the bound of [Options].
const other = "other"

const (
	defaultMaxPairs = 1000
	mostMaxPairs    = 100_000
	maxOthers       = 100
)

// Metrics counts the decisions of the stores that it watches. It is safe for use by many
// goroutines.
type Metrics struct {
	maxPairs  int
	showUsers bool
	refusals  *refusals
	pairs     sync.Map // pair -> *series
	waiting   sync.Map // action -> *atomic.Int64
	see       atomic.Pointer[[]func(context.Context, Refusal)]
	answers   histogram // of the store
	waits     histogram

	mu      sync.Mutex // guards the fields below, and additions to those above
	series  int        // in pairs
	gauges  int        // in waiting
	full    bool
	watched []*watch
	plans   *plans.Plans
}

// New makes a Metrics. opts may be nil. It panics if an option is out of bounds.
func New(opts *Options) *Metrics {
	m := &Metrics{maxPairs: defaultMaxPairs, refusals: newRefusals(), answers: newHistogram(answerBounds), waits: newHistogram(waitBounds)}
	if opts != nil {
		m.maxPairs, m.showUsers = cmp.Or(opts.MaxPairs, defaultMaxPairs), opts.ShowUsers
	}
	if m.maxPairs < 1 || m.maxPairs > mostMaxPairs {
		panic(fmt.Sprintf("metrics: New: MaxPairs %d is not within 1 to %d; 0 is the default of %d", m.maxPairs, mostMaxPairs, defaultMaxPairs))
	}
	return m
}

// A Refusal is a refused action or an error, as [Metrics.OnRefusal] shows it. It does not
// name the user. Its strings are the values of the labels.
type Refusal struct {
	Action, Limit, Outcome, Source string

	RetryAfter time.Duration // 0 for an error
	Err        error         // of outcome error; else nil
}

// OnRefusal calls see for every refused action and every error that is counted from now on.
// It calls see in the caller's goroutine, before the caller has its answer, so see should be
// quick. tailcutotel uses it for events on spans.
func (m *Metrics) OnRefusal(see func(context.Context, Refusal)) {
	if see == nil {
		panic("metrics: OnRefusal: the function is nil; give one, or leave OnRefusal out")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []func(context.Context, Refusal)
	if was := m.see.Load(); was != nil {
		all = append(all, *was...)
	}
	all = append(all, see)
	m.see.Store(&all)
}

// refused notes the user of a refusal, and calls the functions of OnRefusal.
func (m *Metrics) refused(ctx context.Context, user string, s *series, o outcome, d *core.Decision, err error) {
	if o == allowed || o == shadowed {
		return
	}
	if o != failed {
		m.refusals.add(user, s.action)
	}
	all := m.see.Load()
	if all == nil {
		return
	}
	r := Refusal{Action: s.action, Limit: s.limit, Outcome: outcomes[o], Source: d.Source.String(), RetryAfter: d.RetryAfter, Err: err}
	for _, see := range *all {
		see(ctx, r)
	}
}
