package metrics

// The users with the most refusals in a window of time.

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
	"unicode/utf8"
)

// RefusedUsers is a list of the users with the most refusals.
type RefusedUsers struct {
	Users []RefusedUser `json:"users"` // the users with the most refusals first
	Rest  uint64        `json:"rest"`  // the most refusals that a user can have without being in Users
}

// A RefusedUser is a user whose actions were refused. The true number of refusals is from
// Refused-Over to Refused.
type RefusedUser struct {
	User    string `json:"user"`
	Hashed  bool   `json:"hashed,omitempty"` // User is a hash
	Refused uint64 `json:"refused"`
	Over    uint64 `json:"over,omitempty"` // from MostRefused it is 0 if at most 1,000 users were refused

	// These describe the last refusal.
	Action string    `json:"action"`
	Limit  string    `json:"limit"`
	Last   time.Time `json:"last"`
}

// MostRefused returns at most n users, the users with the most refusals first. It counts the
// refusals in the last [Options].RefusedWindow: actions that were limited, banned, refused by
// InFlight, or refused because the store was full. It shows users as hashes. With Options.ShowUsers
// it shows names, but a name of more than 200 bytes or of invalid UTF-8 is still shown as a hash.
//
// A Metrics keeps up to 1,000 users for each sixth of the window, in at most 4 MB. If more users
// are refused, the numbers are estimates: RefusedUser.Over is at most a thousandth of all refusals. Before the
// list is cut to n users, each user with more than a thousandth of all refusals is in it. The
// algorithm is Space-Saving:
// Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
// Streams", 2005.
func (m *Metrics) MostRefused(n int) RefusedUsers {
	most := MergeRefused(n, m.refusals.lists()...)
	if !m.options.ShowUsers {
		for i := range most.Users {
			if u := &most.Users[i]; !u.Hashed {
				u.User, u.Hashed = m.refusals.hash(u.User), true
			}
		}
	}
	return most
}

// MergeRefused adds up the lists of several processes, and returns the n users with the most
// refusals. If the lists have hashes, all processes must have the same [Options].HashKey.
//
// If a user is missing in the list of a process, the user may have up to Rest refusals in that
// process. So the sums are estimates. For close estimates, ask each process for 1,000 users.
func MergeRefused(n int, lists ...RefusedUsers) RefusedUsers {
	var rest uint64
	for _, l := range lists {
		rest += l.Rest
	}
	sum := map[refusedName]RefusedUser{}
	for _, l := range lists {
		for _, listed := range l.Users {
			name := refusedName{listed.User, listed.Hashed}
			u, ok := sum[name]
			if !ok {
				u = RefusedUser{User: listed.User, Hashed: listed.Hashed, Refused: rest, Over: rest}
			}
			u.Refused += listed.Refused - l.Rest
			u.Over += listed.Over - l.Rest // one difference may wrap below 0, but the sum over all lists does not
			if !listed.Last.Before(u.Last) {
				u.Action, u.Limit, u.Last = listed.Action, listed.Limit, listed.Last
			}
			sum[name] = u
		}
	}
	users := make([]RefusedUser, 0, len(sum))
	for _, u := range sum {
		users = append(users, u)
	}
	slices.SortFunc(users, func(a, b RefusedUser) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.User, b.User))
	})
	if n = max(n, 0); n < len(users) {
		rest = max(rest, users[n].Refused)
		users = users[:n:n]
	}
	return RefusedUsers{users, rest}
}

const (
	refusedUsers  = 1000
	refusedSlices = 6 // how many slices a window has
)

// refusals counts the refusals of each slice of the window, and of the slice in progress.
type refusals struct {
	key   []byte // the secret key of the hashes
	base  time.Time
	slice time.Duration

	mu   sync.Mutex                 // guards the fields below
	now  int64                      // the number of the slice in progress, since base
	ring [refusedSlices + 1]summary // slice n is at n modulo the length
}

func newRefusals(window time.Duration, key []byte) *refusals {
	r := &refusals{key: slices.Clone(key), base: time.Now(), slice: window / refusedSlices}
	if key == nil {
		r.key = make([]byte, sha256.Size)
		_, _ = rand.Read(r.key) // never fails
	}
	for i := range r.ring {
		r.ring[i] = newSummary(refusedUsers)
	}
	return r
}

func (r *refusals) hash(user string) string {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(user))
	return hex.EncodeToString(mac.Sum(nil)[:6])
}

// add counts a refusal of the user by the limit of s.
func (r *refusals) add(user string, s *series) {
	u := refusedName{user: user}
	if len(user) > maxLabel || !utf8.ValidString(user) {
		u = refusedName{r.hash(user), true}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.turn()
	r.ring[r.now%int64(len(r.ring))].add(u, s, now)
}

// turn removes the slices that are too old, and returns the time since base. The caller holds r.mu.
func (r *refusals) turn() time.Duration {
	since := time.Since(r.base)
	now := int64(since / r.slice)
	for at := max(r.now+1, now-refusedSlices); at <= now; at++ {
		r.ring[at%int64(len(r.ring))] = newSummary(refusedUsers)
	}
	r.now = now
	return since
}

// lists returns the slices of the window, the oldest first.
func (r *refusals) lists() []RefusedUsers {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn()
	var lists []RefusedUsers
	for i := range r.ring {
		s := &r.ring[(r.now+1+int64(i))%int64(len(r.ring))]
		l := RefusedUsers{Rest: s.least()}
		for _, e := range s.users {
			l.Users = append(l.Users, RefusedUser{
				User: e.user, Hashed: e.hashed, Refused: e.count, Over: e.over,
				Action: e.by.action, Limit: e.by.limit, Last: r.base.Add(e.last).Round(0),
			})
		}
		lists = append(lists, l)
	}
	return lists
}

// A summary counts the refusals of up to size users. If it is full, a new user replaces the user
// with the lowest count, and starts with that count.
type summary struct {
	size  int
	users []*refusedUser // the highest count first
	of    map[refusedName]*refusedUser
}

type refusedName struct {
	user   string
	hashed bool
}

type refusedUser struct {
	refusedName
	by          *series       // the action and the limit of the last refusal
	last        time.Duration // the last refusal, since base
	count, over uint64        // over is the count with which the user started
	at          int           // the index in users
}

func newSummary(size int) summary { return summary{size: size, of: map[refusedName]*refusedUser{}} }

// least returns the most refusals that a user may have who is not in the summary.
func (s *summary) least() uint64 {
	if len(s.users) < s.size {
		return 0
	}
	return s.users[s.size-1].count
}

func (s *summary) add(u refusedName, by *series, now time.Duration) {
	e := s.of[u]
	if e == nil {
		if len(s.users) < s.size {
			e = &refusedUser{at: len(s.users)}
			s.users = append(s.users, e)
		} else {
			e = s.users[s.size-1]
			delete(s.of, e.refusedName)
			e.over = e.count
		}
		e.refusedName = refusedName{strings.Clone(u.user), u.hashed} // u.user may be a substring of a large string
		s.of[e.refusedName] = e
	}
	e.by, e.last = by, now
	// Swap e with the first user that has the same count, so that users stays sorted when the count
	// grows.
	first, _ := slices.BinarySearchFunc(s.users[:e.at], e.count, func(x *refusedUser, count uint64) int { return cmp.Compare(count, x.count) })
	other := s.users[first]
	s.users[first], s.users[e.at] = e, other
	e.at, other.at = first, e.at
	e.count++
}
