package trial

// The users of a shard, and what happens to each of them in order of time.

import (
	"context"
	"math"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/examples/replay/internal/fit"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
)

const (
	second = int64(time.Second / time.Microsecond)
	hour   = 3600 * second
	day    = 24 * hour
)

// A shard replays the actions of its users, one goroutine for all.
type shard struct {
	ids     map[string]uint32 // the users
	users   []user
	members []member            // the first one is none
	further map[userID]struct{} // the ids behind users, but for the first of each
	waiting waiting
	swept   int // the member that was looked at last

	clock    int64 // the instant that is replayed
	plans    *Documents
	trials   []*trial
	versus   *comparison      // nil: no documents
	by       [][]*tally       // the trials' tallies, by action
	counts   []counts         // by action
	left     []report.LeftOut // by action
	unrouted int64
	early    int64 // requests that began more than a minute before the log
	zone     int32 // the log's offset, in seconds
	fine     bool  // some instant has a fraction of a second
	err      error
}

// A member is a user of one action.
type member struct {
	fit.Member
	user   uint32
	next   uint32 // the user's next member, 0 is none
	action uint16
}

type user struct {
	name  string
	first uint32 // of its members
	ids   int32  // different user ids behind it
	id    uint64 // the first one's hash
	acts  bool   // by more than health checks
}

// A userID is a user, and the hash of an id behind it.
type userID struct {
	user uint32
	id   uint64
}

// counts are those of an action.
type counts struct {
	requests int64
	from, to int64
	hours    report.Hours
}

// A trial is a candidate on a separate store.
type trial struct {
	limits  []core.Limit
	limiter *core.Limiter
}

// A tally is what a candidate did to the users of one action.
type tally struct {
	trial   *trial
	shard   *shard
	refused int64
	never   int64
	wait    time.Duration
	hours   report.Hours
	users   map[uint32]int64 // refusals by user
}

func newShard(actions []string, o *Options) *shard {
	s := &shard{
		ids:     make(map[string]uint32),
		further: make(map[userID]struct{}),
		members: make([]member, 1),
		by:      make([][]*tally, len(actions)),
		counts:  make([]counts, len(actions)),
		left:    make([]report.LeftOut, len(actions)),
		plans:   &o.Plans,
	}
	for _, c := range o.Candidates {
		tr := &trial{limits: c.Limits}
		s.trials = append(s.trials, tr)
		for i, action := range actions {
			if c.Action == "" || c.Action == action {
				s.by[i] = append(s.by[i], &tally{trial: tr, shard: s, users: make(map[uint32]int64)})
			}
		}
	}
	return s
}

// tally is that of a candidate and an action.
func (s *shard) tally(candidate, action int) *tally {
	for _, t := range s.by[action] {
		if t.trial == s.trials[candidate] {
			return t
		}
	}
	return nil
}

// member is that of a user and action, made if there is none.
func (s *shard) member(name []byte, action uint16) uint32 {
	id, ok := s.ids[string(name)]
	if !ok {
		own := string(name)
		id = uint32(len(s.users))
		s.ids[own] = id
		s.users = append(s.users, user{name: own})
	}
	u := &s.users[id]
	for m := u.first; m != 0; m = s.members[m].next {
		if s.members[m].action == action {
			return m
		}
	}
	m := uint32(len(s.members))
	s.members = append(s.members, member{user: id, action: action, next: u.first})
	u.first = m
	return m
}

// behind counts an id, if there is one, among those behind a user.
func (s *shard) behind(number uint32, id uint64) {
	u := &s.users[number]
	switch {
	case id == 0 || id == u.id:
		return
	case u.ids == 0:
		u.id = id
	default:
		before := len(s.further)
		s.further[userID{number, id}] = struct{}{}
		if len(s.further) == before {
			return
		}
	}
	u.ids++
}

// replay is one action, at its instant.
func (s *shard) replay(m uint32, at int64, cost uint32, actions []string) {
	mem := &s.members[m]
	c := &s.counts[mem.action]
	if c.requests == 0 {
		c.from = at
	}
	c.requests++
	c.to = at
	c.hours.Count(at, s.zone)
	s.fine = s.fine || at%second != 0
	mem.Act(at, cost)
	s.sweep(at)
	if len(s.by[mem.action]) == 0 && s.plans.To == nil || s.err != nil {
		return
	}
	s.clock = at
	if s.compare(mem, actions, cost); s.err != nil {
		return
	}
	for _, t := range s.by[mem.action] {
		if t.trial.limiter == nil {
			t.trial.limiter, s.err = core.New(s.store(), t.trial.limits...)
			if s.err != nil {
				return
			}
		}
		d, err := t.trial.limiter.AllowN(context.Background(), s.users[mem.user].name, actions[mem.action], int(cost))
		if err != nil {
			s.err = err
			return
		}
		if !d.Allowed {
			t.refuse(mem.user, at, s.zone, d.RetryAfter)
		}
	}
}

// compare has both documents decide, if there are two. They are compiled here, as their clock starts now.
func (s *shard) compare(mem *member, actions []string, cost uint32) {
	if s.plans.To == nil {
		return
	}
	if s.versus == nil {
		if s.versus, s.err = s.plans.compare(s); s.err != nil {
			return
		}
	}
	s.err = s.versus.act(mem.user, s.users[mem.user].name, actions[mem.action], mem.action, int(cost))
}

// store is a store on the log's clock, which starts now.
func (s *shard) store() core.Store {
	return memorystore.New(&memorystore.Options{
		MaxKeys: math.MaxInt32,
		Clock:   func() time.Time { return time.UnixMicro(s.clock) },
	})
}

func (t *tally) refuse(user uint32, at int64, zone int32, wait time.Duration) {
	t.refused++
	t.users[user]++
	if wait == core.Never {
		t.never++
	} else {
		t.wait = max(t.wait, wait)
	}
	t.hours.Count(at, zone)
}

// sweep lets go of what the next two members did more than a day ago. An action sweeps, so that the work does
// not grow with the days of the log.
func (s *shard) sweep(at int64) {
	for range min(2, len(s.members)-1) {
		if s.swept++; s.swept >= len(s.members) {
			s.swept = 1
		}
		s.members[s.swept].Sweep(at)
	}
}
