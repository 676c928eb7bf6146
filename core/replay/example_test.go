package replay_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/replay"
)

// Would a limit of five replies a minute have refused any user?
func ExampleRun() {
	var access strings.Builder // in a program an open file
	for i := range 8 {
		fmt.Fprintf(&access, `203.0.113.9 - - [22/Nov/2026:08:00:%02d +0000] "POST /posts/1/replies HTTP/1.1" 201 5`+"\n", 7*i)
	}
	report, err := replay.Run(context.Background(), strings.NewReader(access.String()), replay.Options{
		Routes:     []replay.Route{{Pattern: "POST /posts/{id}/replies", Action: "reply"}},
		Candidates: []replay.Candidate{{Limits: []core.Limit{core.SlidingWindow(5, time.Minute)}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range report.Limits {
		fmt.Printf("%s refuses %d of %d requests, and %d of %d users\n", l.Limit, l.Refused, l.Requests, l.UsersRefused, l.Users)
	}
	fmt.Println("nobody is refused by a max of", report.Actions[0].Windows[0].Max.Nobody)
	// Output:
	// SlidingWindow(5, 1m) refuses 3 of 8 requests, and 1 of 1 users
	// nobody is refused by a max of 8
}

// A service's own log names its fields in its own way, and says what each request cost.
func ExampleFields() {
	const access = `{"at": "2026-01-01T09:00:00Z", "who": {"id": "alice"}, "verb": "POST", "target": "/export", "rows": 800}
{"at": "2026-01-01T09:10:00Z", "who": {"id": "alice"}, "verb": "POST", "target": "/export", "rows": 800}
{"at": "2026-01-01T09:20:00Z", "who": {"id": "xiaoming"}, "verb": "POST", "target": "/export", "rows": 20}
`
	report, err := replay.Run(context.Background(), strings.NewReader(access), replay.Options{
		Format:     replay.FormatJSON,
		User:       "field:who.id",
		Fields:     replay.Fields{Time: "at", Method: "verb", Path: "target", Cost: "rows"},
		Candidates: []replay.Candidate{{Limits: []core.Limit{core.FixedWindow(1000, time.Hour)}}},
		ShowUsers:  true,
	})
	if err != nil {
		log.Fatal(err)
	}
	l := report.Limits[0]
	fmt.Printf("%s refuses %d of %d requests\n", l.Limit, l.Refused, l.Requests)
	fmt.Println("most often", l.Most[0].Name)
	// Output:
	// FixedWindow(1000, 1h) refuses 1 of 3 requests
	// most often alice
}
