package gatetest

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
)

const slotFails = "ERROR adapter: the slot of a request cannot be renewed or released; it is tried again until the lease has ended | slot-not-freed | down"

// A slot whose store is down when the handler returns is released when the store answers again. The
// response waits for one try only.
func testSlotAfterAnOutage(t *testing.T, adapters []Adapter) {
	const timeout = 50 * time.Millisecond
	for _, c := range []struct {
		name     string
		takes    time.Duration
		from, to time.Duration // the outage
		kept     bool          // at the end of the handler
		freed    time.Duration // after that
		renewals int
		releases int
	}{
		{"a release fails", time.Second, 0, 4 * time.Second, true, 4 * time.Second, 0, 6},
		{"the outage is longer than the lease", time.Second, 0, time.Hour, true, lease, 0, 30},
		{"a renewal fails and the store comes back in time", 2 * lease, 5 * time.Second, 25 * time.Second, true, timeout, 19, 1},
		{"renewals fail for longer than the lease", 3 * lease, 15 * time.Second, time.Hour, false, 0, 21, 1},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				log := Capture(t)
				synctest.Test(t, func(t *testing.T) {
					store := newSlotStore()
					store.slow = timeout
					limiter := core.Must(core.New(store, core.InFlight(1).Lease(lease)))
					status := core.Must(core.New(store.Store, core.InFlight(1).Lease(lease)))
					h := ad.Mount(slotted(limiter, nil, func(http.ResponseWriter, *http.Request) {
						time.AfterFunc(c.from, func() { store.fail(true) })
						time.AfterFunc(c.to, func() { store.fail(false) })
						time.Sleep(c.takes)
						if got := free(t, status)[0] == 0; got != c.kept {
							t.Errorf("at the end of the handler the slot is kept: %t", got)
						}
					}))
					begun := time.Now()
					visiting(t.Context(), h)
					if took := time.Since(begun) - c.takes; took > timeout {
						t.Errorf("the response is %s late", took)
					}
					time.Sleep(time.Until(begun.Add(c.takes + c.freed)))
					wantFree(t, "afterwards", status, 1)
					time.Sleep(2 * time.Hour)
					got := store.asked()
					if got[0] != c.renewals || got[1] != c.releases {
						t.Errorf("%d renewals and releases, want %d and %d", got, c.renewals, c.releases)
					}
				})
				if got := log.Take(ad.pkg()); len(got) != 1 && len(got) != 2 || got[0] != slotFails {
					t.Errorf("log: %q", got)
				}
			})
		}
	}
	for _, ad := range adapters {
		t.Run("a slot that was reset is not renewed/"+ad.Name, func(t *testing.T) {
			log := Capture(t)
			synctest.Test(t, func(t *testing.T) {
				store := newSlotStore()
				limiter := core.Must(core.New(store, core.InFlight(1).Lease(lease)))
				h := ad.Mount(slotted(limiter, nil, func(http.ResponseWriter, *http.Request) {
					if err := limiter.Reset(t.Context(), "alice", "reply"); err != nil {
						t.Error(err)
					}
					time.Sleep(lease)
					if d, err := limiter.Allow(t.Context(), "alice", "reply"); err != nil || !d.Allowed {
						t.Errorf("%+v, %v", d, err)
					}
				}))
				visiting(t.Context(), h)
				synctest.Wait() // a renewal may have been under way
				wantFree(t, "of another action's slot", limiter, 0)
				if got := store.asked(); got[1] != 1 {
					t.Errorf("%d releases", got[1])
				}
			})
			if got := log.Take(ad.pkg()); got != nil {
				t.Errorf("log: %q", got)
			}
		})
	}
}
