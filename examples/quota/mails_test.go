package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// small is the program's document with smaller quotas, and with more at once.
var small = []byte(strings.NewReplacer("Funnel(10, Per(2, 1s))", "Funnel(1000, Per(2, 1s))", "(10000, month", "(50, month", "(500, month", "(10, month").Replace(string(document)))

// Whatever number of requests come to two replicas at the same time, each customer has one mail for 80 % and one
// for 100 %, in each month of the customer's own. A quota that grows has mails of its own. Carol's
// plan has no mails.
func TestOneMailOfEachKindAMonth(t *testing.T) {
	for name, stores := range map[string]func(*testing.T) [2]core.Store{
		"memory": func(*testing.T) [2]core.Store {
			store := memorystore.New(nil)
			return [2]core.Store{store, store}
		},
		"Redis": func(t *testing.T) (stores [2]core.Store) {
			if strconv.IntSize < 64 {
				t.Skip("miniredis reads PXAT as an int, which is too small here")
			}
			server := miniredis.NewMiniRedis()
			t.Cleanup(server.Close)
			server.ClockTTL(true)
			for i := range stores {
				rdb := redis.NewClient(&redis.Options{
					Addr:   "127.0.0.1:6379", // a name would be looked up
					Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
				})
				t.Cleanup(func() { _ = rdb.Close() })
				stores[i] = core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
			}
			return stores
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var mails []string
				current := small
				var replicas [2]replica
				for i, store := range stores(t) {
					replicas[i] = start(t, store, func(context.Context) ([]byte, error) { return current, nil })
					replicas[i].send = func(m mail) {
						mu.Lock()
						defer mu.Unlock()
						mails = append(mails, fmt.Sprintf("%s %d%% of %d until %s", m.customer, m.percent, m.quota, m.ends.UTC().Format("2 Jan 15:04")))
					}
				}
				// spend has the replicas asked n times each by each customer, and reports who passed and the mails.
				spend := func(n int) string {
					mails = nil
					passed := map[string]int{}
					var all sync.WaitGroup
					for _, r := range replicas {
						for _, key := range []string{"key-alice", "key-bob", "key-carol"} {
							for range n {
								all.Go(func() {
									if get(r.h, "/v1/report", key).Code == http.StatusOK {
										mu.Lock()
										defer mu.Unlock()
										passed[key]++
									}
								})
							}
						}
					}
					all.Wait()
					slices.Sort(mails)
					return fmt.Sprintf("%d %d: %s", passed["key-alice"], passed["key-bob"], strings.Join(mails, ", "))
				}
				expect := func(name string, n int, want string) {
					t.Helper()
					if got := spend(n); got != want {
						t.Errorf("%s:\n got %s\nwant %s", name, got, want)
					}
				}
				expect("below 80 %", 19, "38 38: ")
				expect("alice has used 40 of 50", 1, "2 2: alice 80% of 50 until 16 Jan 16:00")
				expect("both months are used up", 70, "10 60: alice 100% of 50 until 16 Jan 16:00, bob 100% of 100 until 1 Jan 05:00, bob 80% of 100 until 1 Jan 05:00")
				expect("later", 10, "0 0: ")
				time.Sleep(5 * time.Hour)
				expect("January in New York", 70, "0 100: bob 100% of 100 until 1 Feb 05:00, bob 80% of 100 until 1 Feb 05:00")
				time.Sleep(15*24*time.Hour + 11*time.Hour)
				expect("alice's next month", 70, "50 0: alice 100% of 50 until 16 Feb 16:00, alice 80% of 50 until 16 Feb 16:00")
				current = []byte(strings.ReplaceAll(string(current), "(100, month", "(200, month"))
				for _, r := range replicas {
					if err := r.plans.Refresh(t.Context()); err != nil {
						t.Error(err)
					}
				}
				expect("a larger quota", 70, "0 100: bob 100% of 200 until 1 Feb 05:00, bob 80% of 200 until 1 Feb 05:00")
			})
		})
	}
}
