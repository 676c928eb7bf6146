package core_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// Turns are in the order of arrival from the store's first instant on, and a decision
// that was waited for tells of the instant at which it is returned.
func TestTurnsFromTheFirstInstantOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		likes := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(time.Second))))
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				d, err := likes.Wait(t.Context(), "laoqian", "like")
				if err != nil || !d.Allowed || d.Remaining != 0 {
					t.Errorf("%d: %+v, %v", i+1, d, err)
				}
				if after := time.Since(begun); after != time.Duration(i)*time.Second {
					t.Errorf("%d: after %s, want %ds", i+1, after, i)
				}
				if d.ResetAfter != time.Second {
					t.Errorf("%d: ResetAfter %s, want 1s", i+1, d.ResetAfter)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}
