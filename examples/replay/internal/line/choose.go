package line

// Of several addresses in a line, the one that is the client's.

import "fmt"

// A pick is which of the addresses of a line is the client's.
type pick uint8

const (
	pickFirst     pick = iota // the first one in front of the time, or the client's address in JSON
	pickSecond                // the second one there
	pickForwarded             // that of X-Forwarded-For, or another one behind the user agent
	picks
)

var picked = [picks]string{"the first", "the second", "that of X-Forwarded-For"}

// seen are the addresses of a sample.
type seen struct {
	at     [picks]int
	values [picks]map[string]bool
	lists  bool // some of them are lists
}

func (s *seen) add(p pick, user []byte) {
	if len(user) == 0 {
		return
	}
	s.at[p]++
	if s.values[p] == nil {
		s.values[p] = make(map[string]bool)
	}
	s.values[p][string(user)] = true
}

// pick chooses an address that varies over one that hardly does: that is a proxy, or the server.
func (s *seen) pick() (p pick, note string) {
	most := max(s.at[pickFirst], s.at[pickSecond], s.at[pickForwarded])
	for other := pickSecond; other < picks; other++ {
		if s.at[pickFirst] > 0 && s.at[other]*10 >= most*9 && len(s.values[other]) >= 3*max(1, len(s.values[p])) {
			p = other
		}
	}
	switch {
	case p != pickFirst:
		note = fmt.Sprintf("Lines have several addresses. The user is %s, since the first is one of only %d, as those of proxies or servers are.", picked[p], len(s.values[pickFirst]))
	case s.at[pickSecond]*10 >= most*9 && most > 0:
		note = "Lines have several addresses in front. The user is the first; to take another one, describe the line with -format, such as '$proxy $remote_addr - $remote_user [$time_local] \"$request\" $rest'."
	case s.at[pickFirst] > 0 && s.at[pickForwarded]*10 >= most && len(s.values[pickForwarded]) > len(s.values[pickFirst]):
		note = "Lines have a list of X-Forwarded-For too, and it varies more than the first address, which is the user. If that is a proxy, name the other one with -user field:NAME or NUMBER."
	}
	if s.lists {
		note = joined(note, "The client's address is a list of several addresses (X-Forwarded-For). The user is the first public one, which a client can forge if no proxy replaces the list.")
	}
	return p, note
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + " " + b
}
