package examples

// The README's snippets: the bodies of the Examples, and the test at the end, stand
// in it as they stand here. readme_test.go sees to that.

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/keyfuncs"
)

func Example_who() {
	// The user's id from your login, or else the address with a mark (~2:), so that the two are never equal.
	user := keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)

	// Behind your own proxies, which append to X-Forwarded-For.
	client := keyfuncs.ForwardedIP(netip.MustParsePrefix("10.1.2.0/24"))

	fmt.Println(user(guest("203.0.113.9")))
	fmt.Println(user(member("alice")))
	fmt.Println(client(forwarded("10.1.2.3", "6.6.6.6, 203.0.113.9"))) // 6.6.6.6 is made up
	fmt.Println(client(forwarded("198.51.100.1", "6.6.6.6")))          // not your proxy
	// Output:
	// ~2:203.0.113.9 <nil>
	// alice <nil>
	// 203.0.113.9 <nil>
	// 198.51.100.1 <nil>
}

func Example_bans() {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
	replies = core.Must(replies.With(core.BanPolicy{
		Refusals: 5, Within: time.Minute, Bans: []time.Duration{10 * time.Minute, time.Hour},
	}))
	var d core.Decision
	for range 11 {
		d, _ = replies.Allow(ctx, "alice", "reply")
	}
	fmt.Println(d.Reason, d.RetryAfter.Round(time.Second))
	// Output: banned 10m0s
}

func Example_fleet() {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	fleet := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
	replies := core.Must(core.New(fleet, core.SlidingWindow(5, time.Minute)))

	d, err := replies.Allow(ctx, "alice", "reply")
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 4 <nil>
}

func TestFiveRepliesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
		for i := range 12 {
			if i == 6 {
				time.Sleep(time.Minute) // takes no time
			}
			d, err := replies.Allow(t.Context(), "alice", "reply")
			if err != nil || d.Allowed != (i%6 < 5) {
				t.Fatalf("reply %d: %+v, %v", i+1, d, err)
			}
		}
	})
}
