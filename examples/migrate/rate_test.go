package migrate

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func rateBefore(next http.Handler) http.Handler {
	var limiters sync.Map // an entry for every address that ever came
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		l, _ := limiters.LoadOrStore(host, rate.NewLimiter(rate.Every(2*time.Second), 15))
		if !l.(*rate.Limiter).Allow() {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func rateAfter(next http.Handler) http.Handler {
	likes := core.Must(core.New(memorystore.New(nil), core.TokenBucket(15, core.Every(2*time.Second))))
	return nethttp.Limit(likes, keyfuncs.RemoteIP, keyfuncs.Action("like"))(next)
}

func waitBefore(ctx context.Context, jobs []func()) error {
	calls := rate.NewLimiter(10, 1) // 10 a second
	for _, job := range jobs {
		if err := calls.Wait(ctx); err != nil {
			return err
		}
		job()
	}
	return nil
}

func waitAfter(ctx context.Context, jobs []func()) error {
	calls := core.Must(core.New(memorystore.New(nil), core.TokenBucket(1, core.Per(10, time.Second))))
	for _, job := range jobs {
		if _, err := calls.Wait(ctx, "worker", "call"); err != nil {
			return err
		}
		job()
	}
	return nil
}

func TestRateLimitsAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := rateBefore(ok), rateAfter(ok)
		same(t, burst(before, 20), burst(after, 20), 15)
		time.Sleep(5 * time.Second)
		same(t, burst(before, 5), burst(after, 5), 2)
	})
}

func TestRateWaitsAlike(t *testing.T) {
	for name, wait := range map[string]func(context.Context, []func()) error{"before": waitBefore, "after": waitAfter} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			var at []time.Duration
			job := func() { at = append(at, time.Since(begun).Round(time.Millisecond)) }
			if err := wait(t.Context(), []func(){job, job, job}); err != nil {
				t.Fatal(err)
			}
			if len(at) != 3 || at[0] != 0 || at[1] != 100*time.Millisecond || at[2] != 200*time.Millisecond {
				t.Errorf("%s: jobs ran at %v", name, at)
			}
		})
	}
}
