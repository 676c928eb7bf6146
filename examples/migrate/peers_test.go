package migrate

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	limiter "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"
)

// What the table on the project's page says of the other limiters, as far as they can be asked.

func TestRetryAfterOfTheOthers(t *testing.T) {
	retryAfter := func(t *testing.T, h http.Handler) string {
		burst(h, 100)
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/posts/1/replies", nil)
		r.RemoteAddr = "203.0.113.9:4711"
		h.ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("status %d", w.Code)
		}
		return w.Header().Get("Retry-After")
	}
	for name, h := range map[string]http.Handler{"ulule/limiter": ululeBefore(ok), "tollbooth": tollboothBefore(ok)} {
		if got := retryAfter(t, h); got != "" {
			t.Errorf("%s sends %s", name, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		h := httprateBefore(ok)
		time.Sleep(45 * time.Second)
		if got := retryAfter(t, h); got != "60" {
			t.Errorf("15 s before the end of a window of 60 s, httprate sends %s", got)
		}
	})
}

func TestTheOthersWithoutRedis(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := ululeredis.NewStore(rdb)
	if err != nil {
		t.Fatal(err)
	}
	h := stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Period: time.Minute, Limit: 5})).Handler(ok)
	server.Close()

	if _, err := redis_rate.NewLimiter(rdb).Allow(t.Context(), "alice", redis_rate.PerMinute(5)); err == nil {
		t.Error("redis_rate returns no error")
	}
	defer func() {
		if recover() == nil {
			t.Error("ulule/limiter does not panic")
		}
	}()
	burst(h, 1)
}

func TestRefundsOfTheOthers(t *testing.T) {
	t.Run("ulule/limiter", func(t *testing.T) {
		l := limiter.New(memory.NewStore(), limiter.Rate{Period: time.Minute, Limit: 5})
		for _, tt := range []struct{ count, remaining int64 }{{2, 3}, {-1, 4}} {
			if c, err := l.Increment(t.Context(), "alice", tt.count); err != nil || c.Remaining != tt.remaining {
				t.Errorf("%d: %+v, %v", tt.count, c, err)
			}
		}
	})
	t.Run("httprate", func(t *testing.T) {
		l := httprate.NewRateLimiter(5, time.Hour)
		for _, tt := range []struct {
			count     int
			remaining string
		}{{2, "3"}, {-1, "4"}} {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			l.OnLimit(w, r.WithContext(httprate.WithIncrement(t.Context(), tt.count)), "alice")
			if got := w.Header().Get("X-RateLimit-Remaining"); got != tt.remaining {
				t.Errorf("%d: %s remain", tt.count, got)
			}
		}
	})
	t.Run("redis_rate", func(t *testing.T) {
		l := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
		for _, tt := range []struct{ n, remaining int }{{2, 3}, {-1, 4}} {
			if r, err := l.AllowN(t.Context(), "alice", redis_rate.PerHour(5), tt.n); err != nil || r.Remaining != tt.remaining {
				t.Errorf("%d: %+v, %v", tt.n, r, err)
			}
		}
	})
	t.Run("x/time/rate", func(t *testing.T) {
		l := rate.NewLimiter(rate.Every(time.Hour), 5)
		for _, tt := range []struct {
			n      int
			tokens float64
		}{{2, 3}, {-1, 4}} {
			if l.AllowN(time.Now(), tt.n); math.Round(l.Tokens()) != tt.tokens {
				t.Errorf("%d: %v tokens", tt.n, l.Tokens())
			}
		}
	})
}
