package core_test

import (
	"context"
	"fmt"
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
