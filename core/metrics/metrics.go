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

// Options are the settings of a [Metrics]. The zero value is the default.
type Options struct {
	// MaxPairs bounds the pairs of action and limit that are counted separately: 1 to 100,000, or 0
	// for 1,000. A pair takes up to 1 KB. When the bound is reached, the log says so once. New
	// actions are then counted as the action "other", each with its limit. After 100 pairs with
	// "other", new limits are counted as the limit "other".
	MaxPairs int

	// RefusedWindow is how far MostRefused and ExportRefused look back: a minute to a week, or 0
	// for ten minutes. A refusal may count for up to a sixth of that longer.
	RefusedWindow time.Duration

	// ShowUsers shows the names of users in MostRefused, in what is exported with ExportRefused,
	// and in OnDecision. Otherwise the first two show hashes in place of names, and OnDecision
	// shows no user.
	ShowUsers bool

	// HashKey is the secret key of the hashes, at least 16 bytes. Nil is a random key. If all
	// processes have one key, a user has the same hash in all of them, so that their lists and
	// exported metrics can be added up. A hash is the first 12 hexadecimal digits of
	// HMAC-SHA256(HashKey, user). To find a known user, compute the user's hash.
	HashKey []byte

	// ExportRefused is the number of the most refused users that the exporters show, up to 100. 0
	// shows none. Each user is a label, so time series come and go with the users. If ShowUsers is
	// set too, labels are names: think of who can read the metrics, and for how long they are kept.
	ExportRefused int
}

// other is the label of actions and limits beyond the bound of [Options].
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

// Metrics counts the decisions of the stores that it watches. It is safe for use by many
// goroutines.
type Metrics struct {
	options  Options // with the defaults
	refusals *refusals
	pairs    sync.Map // pair -> *series
	waiting  sync.Map // action -> *atomic.Int64
	see      atomic.Pointer[[]func(context.Context, Decision)]
	series   atomic.Int64 // in pairs
	gauges   atomic.Int64 // in waiting
	full     notice.Once  // see overflow
	answers  *histogram   // of the store
	waits    *histogram

	mu      sync.Mutex // guards the fields below, and additions to those above
	watched []*watch
	plans   *plans.Plans
}

// New makes a Metrics. opts may be nil. It panics if an option is out of bounds.
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

// A Decision is a decision or an error, as [Metrics.OnDecision] shows it. All strings but User are
// values of labels.
type Decision struct {
	User                           string // "" unless Options.ShowUsers
	Action, Limit, Outcome, Source string

	Passes     bool          // outcomes allowed and shadowed
	RetryAfter time.Duration // 0 if it passes, or for an error
	Err        error         // of outcome error; else nil
}

// OnDecision calls see for every decision and every error that is counted from now on. It calls see in
// the caller's goroutine, before the caller has its answer, so see should be quick. tailcutotel uses it
// for spans.
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

// decided notes the user of a refusal, and calls the functions of OnDecision.
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
