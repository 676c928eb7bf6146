package metrics

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/core/plans"
)

// Options are the settings of a [Metrics]. The zero value has the defaults.
type Options struct {
	// MaxPairs is how many pairs of an action and a limit are counted separately. It is from 1 to
	// 100,000, and 0 means 1,000. A pair takes up to 1 KB of memory.
	//
	// If there are more pairs, their actions are counted as the action "other", separately for each
	// of up to 100 limits. Further limits are counted as the limit "other". The log says once that
	// MaxPairs is reached.
	MaxPairs int

	// RefusedWindow is the time for which MostRefused and ExportRefused count a refusal. It is from
	// a minute to a week, and 0 means ten minutes. A refusal may count for longer, by up to a sixth
	// of RefusedWindow.
	RefusedWindow time.Duration

	// ShowUsers shows the names of users in MostRefused, in the metrics of ExportRefused, and in
	// OnDecision. By default, MostRefused and ExportRefused show a hash instead of the name, and
	// OnDecision shows no user. For exceptions see [Metrics.MostRefused].
	ShowUsers bool

	// HashKey is the secret key of the users' hashes. It has at least 16 bytes. Nil means a random
	// key. If all processes have the same key, a user has the same hash in each process, so the
	// lists and exported metrics of the processes can be added up. A hash is the first 12
	// hexadecimal digits of HMAC-SHA256(HashKey, user). To find a known user, compute the user's
	// hash.
	HashKey []byte

	// ExportRefused is how many of the most refused users are exported as metrics, at most 100. 0
	// means none. Each user is a label value, so the set of time series changes as users come and
	// go. If ShowUsers is set too, the label values are names. Then consider who can read the
	// metrics, and for how long they are kept.
	ExportRefused int
}

// other is the label value for actions and limits beyond the bounds of [Options.MaxPairs].
const other = "other"

const (
	defaultMaxPairs = 1000
	mostMaxPairs    = 100_000
	maxOthers       = 100

	defaultRefusedWindow = 10 * time.Minute
	minRefusedWindow     = time.Minute
	maxRefusedWindow     = 7 * 24 * time.Hour
	mostExportRefused    = 100
	minHashKey           = 16
)

// Metrics counts the decisions of the stores that it watches. It is safe for concurrent use.
type Metrics struct {
	options  Options // with the defaults filled in
	refusals *refusals
	pairs    sync.Map // pair -> *series
	waiting  sync.Map // action -> *atomic.Int64
	see      atomic.Pointer[[]func(context.Context, Decision)]
	series   atomic.Int64 // the length of pairs
	gauges   atomic.Int64 // the length of waiting
	full     notice.Once  // the warning of overflow
	answers  *histogram   // how long the store took to answer
	waits    *histogram   // how long calls of Wait took

	mu      sync.Mutex // guards the fields below, and additions to pairs and waiting
	watched []*watch
	plans   *plans.Plans
}

// New returns a Metrics. opts may be nil. New panics if an option is out of bounds.
func New(opts *Options) *Metrics {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.MaxPairs = cmp.Or(o.MaxPairs, defaultMaxPairs)
	o.RefusedWindow = cmp.Or(o.RefusedWindow, defaultRefusedWindow)
	switch {
	case o.MaxPairs < 1 || o.MaxPairs > mostMaxPairs:
		panic(fmt.Sprintf("metrics: New: MaxPairs %d is not within 1 to %d; 0 is the default of %d", o.MaxPairs, mostMaxPairs, defaultMaxPairs))
	case o.RefusedWindow < minRefusedWindow || o.RefusedWindow > maxRefusedWindow:
		panic(fmt.Sprintf("metrics: New: RefusedWindow %s is not within %s to %s; 0 is the default of %s", o.RefusedWindow, minRefusedWindow, maxRefusedWindow, defaultRefusedWindow))
	case o.HashKey != nil && len(o.HashKey) < minHashKey:
		panic(fmt.Sprintf("metrics: New: HashKey has %d bytes, and %d are the least; make one with openssl rand -hex 16, or give none", len(o.HashKey), minHashKey))
	case o.ExportRefused < 0 || o.ExportRefused > mostExportRefused:
		panic(fmt.Sprintf("metrics: New: ExportRefused %d is not within 0 to %d", o.ExportRefused, mostExportRefused))
	}
	return &Metrics{options: o, refusals: newRefusals(o.RefusedWindow, o.HashKey), answers: newHistogram(answerCells), waits: newHistogram(waitCells)}
}

// A Decision describes a decision, or an error of the store, to a function of [Metrics.OnDecision].
// Action, Limit, Outcome and Source are the values of the metrics' labels.
type Decision struct {
	User                           string // "" unless Options.ShowUsers
	Action, Limit, Outcome, Source string

	Passes     bool          // true for the outcomes allowed and shadowed
	RetryAfter time.Duration // as in core.Decision; 0 if the action passes or Err is not nil
	Err        error         // not nil for the outcome error only
}

// OnDecision adds the function see. It is called for each decision and each error that m counts
// from now on. It runs in the goroutine of the limiter's caller, before the caller gets its
// decision, so it must be quick. Package tailcutotel uses OnDecision for spans.
func (m *Metrics) OnDecision(see func(context.Context, Decision)) {
	if see == nil {
		panic("metrics: OnDecision: the function is nil; give one, or leave OnDecision out")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []func(context.Context, Decision)
	if was := m.see.Load(); was != nil {
		all = append(all, *was...)
	}
	all = append(all, see)
	m.see.Store(&all)
}

// decided counts a refusal for its user, and calls the functions of OnDecision.
func (m *Metrics) decided(ctx context.Context, user string, s *series, o outcome, d *core.Decision, err error) {
	passes := o == allowed || o == shadowed
	if !passes && o != failed {
		m.refusals.add(user, s)
	}
	all := m.see.Load()
	if all == nil {
		return
	}
	seen := Decision{Action: s.action, Limit: s.limit, Outcome: outcomes[o], Source: d.Source.String(), Passes: passes, RetryAfter: d.RetryAfter, Err: err}
	if m.options.ShowUsers {
		seen.User = user
	}
	for _, see := range *all {
		see(ctx, seen)
	}
}
