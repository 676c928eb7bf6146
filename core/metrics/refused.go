package metrics

// The users with the most refusals of the last minutes.

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"
)

// A RefusedUser is a user whose actions were refused. The true number of refusals is at most
// Refused, and at least Refused-Over.
type RefusedUser struct {
	User    string // a hash, unless Options.ShowUsers
	Action  string // the one refused last
	Refused uint64
	Over    uint64 // 0 as long as no more than 1,000 users are refused
}

// MostRefused returns at most n users with the most refusals, the most first: actions that were
// limited, banned, or refused by InFlight or a full store. It covers the last five to ten minutes.
//
// Each Metrics keeps 1,000 users of every five minutes, in at most 1 MB. If there are more, the numbers
// are estimates: Over is at most a thousandth of all refusals, and every user with more than a
// thousandth of them is in the list. The algorithm is Space-Saving: Metwally, Agrawal and El Abbadi,
// "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005.
//
// A hash is the same for the same user, in this Metrics only. So is that of a user of more than 200 bytes,
// who is never shown.
func (m *Metrics) MostRefused(n int) []RefusedUser {
	users := m.refusals.users()
	users = users[:min(max(n, 0), len(users))]
	if !m.showUsers {
		for i := range users {
			users[i].User = m.refusals.hash(users[i].User)
		}
	}
	return users
}

const (
	refusedUsers  = 1000
	refusedPeriod = 5 * time.Minute
)

// refusals has a summary of the period under way, and one of the period before.
type refusals struct {
	key  [32]byte // of the hashes
	base time.Time

	mu          sync.Mutex // guards the fields below
	period      int64      // since base
	now, before summary
}

func newRefusals() *refusals {
	r := &refusals{base: time.Now(), now: newSummary(refusedUsers), before: newSummary(refusedUsers)}
	_, _ = rand.Read(r.key[:]) // it never fails
	return r
}

func (r *refusals) hash(user string) string {
	mac := hmac.New(sha256.New, r.key[:])
	mac.Write([]byte(user))
	return hex.EncodeToString(mac.Sum(nil)[:6])
}

func (r *refusals) add(user, action string) {
	if len(user) > maxLabel {
		user = r.hash(user)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn()
	r.now.add(user, action)
}

// turn ends the period if its time has passed. It is called with the lock held.
func (r *refusals) turn() {
	period := int64(time.Since(r.base) / refusedPeriod)
	if period == r.period {
		return
	}
	if r.before = r.now; period > r.period+1 {
		r.before = newSummary(refusedUsers)
	}
	r.now, r.period = newSummary(refusedUsers), period
}

// users adds up both summaries.
func (r *refusals) users() []RefusedUser {
	sum := map[string]RefusedUser{}
	r.mu.Lock()
	r.turn()
	least := r.before.least() + r.now.least() // what a user may have who is in neither
	for _, s := range []*summary{&r.before, &r.now} {
		for _, e := range s.users {
			u, ok := sum[e.user]
			if !ok {
				u = RefusedUser{User: e.user, Refused: least, Over: least}
			}
			u.Action = e.action
			u.Refused += e.count - s.least()
			u.Over += e.over - s.least() // the sum of both is not negative
			sum[e.user] = u
		}
	}
	r.mu.Unlock()
	users := make([]RefusedUser, 0, len(sum))
	for _, u := range sum {
		users = append(users, u)
	}
	slices.SortFunc(users, func(a, b RefusedUser) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.User, b.User))
	})
	return users
}

// A summary counts the refusals of as many users as it has room for. A user who is not in it takes the
// place and the count of the user with the fewest.
type summary struct {
	size  int
	users []*refusedUser // the most first
	of    map[string]*refusedUser
}

type refusedUser struct {
	user, action string
	count, over  uint64 // over: the count that it took
	at           int    // in users
}

func newSummary(size int) summary { return summary{size: size, of: map[string]*refusedUser{}} }

// least is the highest count that a user may have who is not in the summary.
func (s *summary) least() uint64 {
	if len(s.users) < s.size {
		return 0
	}
	return s.users[s.size-1].count
}

func (s *summary) add(user, action string) {
	e := s.of[user]
	if e == nil {
		if len(s.users) < s.size {
			e = &refusedUser{at: len(s.users)}
			s.users = append(s.users, e)
		} else {
			e = s.users[s.size-1]
			delete(s.of, e.user)
			e.over = e.count
		}
		e.user = strings.Clone(user) // it may be a part of a large string
		s.of[e.user] = e
	}
	e.action = action
	// The first user with the same count changes places with this one, so the order stays.
	first, _ := slices.BinarySearchFunc(s.users[:e.at], e.count, func(x *refusedUser, count uint64) int { return cmp.Compare(count, x.count) })
	other := s.users[first]
	s.users[first], s.users[e.at] = e, other
	e.at, other.at = first, e.at
	e.count++
}
