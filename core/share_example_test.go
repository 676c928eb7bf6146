package core_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A sharing is a common limit, and a guarantee of each tenant.
type sharing struct{ guarantee, common *core.Limiter }

// allow lets a tenant within its guarantee pass even if the common limit is used up, and charges that to the common
// limit as far as there is room. A tenant beyond its guarantee needs room in the common limit.
func (s sharing) allow(ctx context.Context, tenant string) (core.Decision, error) {
	d, err := s.guarantee.Allow(ctx, tenant, "request")
	if err != nil || !d.Allowed {
		return s.common.Allow(ctx, "all", "request")
	}
	_, err = s.common.Surcharge(ctx, "all", "request", 1)
	return d, err
}

// A share of a common limit is kept for quiet tenants: a loud one does not use it up.
func Example_guarantee() {
	store := memorystore.New(nil)
	s := sharing{
		guarantee: core.Must(core.New(store, core.Funnel(2, core.Every(time.Hour)))), // for each tenant
		common:    core.Must(core.New(store, core.Funnel(10, core.Every(time.Hour)))),
	}
	for _, tenant := range []string{"loud", "quiet"} {
		passed := 0
		for range 100 {
			if d, err := s.allow(context.Background(), tenant); err == nil && d.Allowed {
				passed++
			}
		}
		fmt.Println(tenant, passed)
	}
	// Output:
	// loud 10
	// quiet 2
}

// Beside a tenant that asks ten times as often as the common limit allows, quiet tenants are never refused, and all
// together have at most the capacity and the rate of the common limit and of all guarantees.
func TestAShareIsKeptForTheQuiet(t *testing.T) {
	const tenants, capacity, rate, burst, guaranteed = 11, 10, 100, 2, 5 // rates a second
	now := time.Unix(0, 0)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	s := sharing{
		guarantee: core.Must(core.New(store, core.Funnel(burst, core.Per(guaranteed, time.Second)))),
		common:    core.Must(core.New(store, core.Funnel(capacity, core.Per(rate, time.Second)))),
	}
	var level float64 // of a bucket that leaks at the rate of all: its highest is the most above it in any interval
	passed := map[string]int{}
	send := func(tenant string) bool {
		d, err := s.allow(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			level++
			passed[tenant]++
		}
		if most := capacity + tenants*burst; level > float64(most) {
			t.Fatalf("after %s: %.1f above the rate, more than %d", now.Sub(time.Unix(0, 0)), level, most)
		}
		return d.Allowed
	}
	for ms := range 20_000 {
		for quiet := range tenants - 1 {
			if ms%200 == 13*quiet && !send(fmt.Sprint("quiet-", quiet)) {
				t.Fatalf("quiet tenant %d is refused after %d ms", quiet, ms)
			}
		}
		send("loud")
		now = now.Add(time.Millisecond)
		level = max(0, level-float64(rate+tenants*guaranteed)/1000)
	}
	if n := passed["loud"]; n < 1700 || n > 1900 { // 2,110 without Surcharge
		t.Errorf("%d requests of the loud tenant pass", n)
	}
}
