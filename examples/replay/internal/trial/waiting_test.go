package trial

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/source"
)

// A run lets go of users who are gone for a day.
func TestARunSweeps(t *testing.T) {
	var log strings.Builder
	for _, hit := range []string{"01T08:00:00Z 10.0.0.1", "01T08:00:01Z 10.0.0.1", "03T08:00:00Z 10.0.0.2"} {
		at, user, _ := strings.Cut(hit, " ")
		fmt.Fprintf(&log, `{"time":"2026-11-%s","method":"GET","path":"/","remote_addr":"%s"}`+"\n", at, user)
	}
	p := newPipeline(Options{}, new(route.Routes), []string{route.All})
	p.shards = p.shards[:1]
	if err := p.run(t.Context(), []source.Log{{Reader: strings.NewReader(log.String())}}); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.shards {
		for i := range s.members[1:] {
			if !reflect.ValueOf(s.members[1+i].Member).FieldByName("recent").IsNil() {
				t.Error("it keeps what a user did two days ago")
			}
		}
	}
}

// A sweep looks at two users, so that a log of many users and days takes no more time than its lines. After as
// many actions as there are users, all who are gone are forgotten.
func TestASweepLooksAtTwo(t *testing.T) {
	const users = 1000
	s := &shard{members: make([]member, 1+users)}
	kept := func() (n int) {
		for i := range s.members {
			if !reflect.ValueOf(s.members[i].Member).FieldByName("recent").IsNil() {
				n++
			}
		}
		return n
	}
	for i := range s.members[1:] {
		s.members[1+i].Act(0, 1)
		s.members[1+i].Act(1, 1)
	}
	if s.sweep(2 * day); kept() != users-2 {
		t.Errorf("a sweep leaves %d of %d users", kept(), users)
	}
	for range users / 2 {
		s.sweep(2 * day)
	}
	if kept() != 0 {
		t.Errorf("%d users are kept", kept())
	}
}

// A long name takes no more memory than a short one, and stays apart from others that start or end alike.
func TestLongNamesAreShort(t *testing.T) {
	long := strings.Repeat("a", 900_000)
	var log strings.Builder
	for _, user := range []string{long, long + "b", "b" + long, long, strings.Repeat("c", longestName)} {
		fmt.Fprintf(&log, `{"time":"2026-11-01T08:00:00Z","method":"GET","path":"/","user":"%s"}`+"\n", user)
	}
	p := newPipeline(Options{Line: line.Options{User: line.UserAuth}}, new(route.Routes), []string{route.All})
	if err := p.run(t.Context(), []source.Log{{Reader: strings.NewReader(log.String())}}); err != nil {
		t.Fatal(err)
	}
	users := 0
	for _, s := range p.shards {
		for _, u := range s.users {
			if users++; len(u.name) > longestName {
				t.Errorf("a name takes %d bytes", len(u.name))
			}
		}
	}
	if users != 4 {
		t.Errorf("%d users, want 4", users)
	}
}
