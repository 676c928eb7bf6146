package nethttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// A client repeats a request with the same Idempotency-Key because it got no answer. The request costs one unit, and
// two repeats within a day are free, if the handler answers them with the result that it has stored. Further ones
// cost one unit each. Requests that come at the same time may each find a repeat free.
func ExampleConfig_idempotencyKey() {
	store := memorystore.New(nil)
	orders := core.Must(core.New(store, core.FixedWindow(3, time.Hour)))
	seen := core.Must(core.New(store, core.FixedWindow(3, 24*time.Hour).Named("idempotency-key")))
	user := keyfuncs.ContextValue(userKey{}) // set by a login

	cost := func(r *http.Request) (int, error) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			return 1, nil
		}
		who, err := user(r)
		if err != nil {
			return 0, err
		}
		d, err := seen.Peek(r.Context(), who, key) // nothing is noted yet: the request may be refused
		if repeats := d.Allowed && d.Remaining < d.Limit; repeats {
			return 0, err
		}
		return 1, err
	}
	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, err := user(r); err == nil && r.Header.Get("Idempotency-Key") != "" {
			_, _ = seen.Allow(r.Context(), who, r.Header.Get("Idempotency-Key"))
		}
		// order, or answer with the result stored for the key
	})
	handler := nethttp.Config{Cost: cost}.Limit(orders, user, keyfuncs.Action("order"))(order)

	for _, key := range []string{"a", "a", "a", "b", "b", "a", "c"} {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, "alice"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(key, w.Code, w.Header().Get("X-RateLimit-Remaining"), "left")
	}
	// Output:
	// a 200 2 left
	// a 200 2 left
	// a 200 2 left
	// b 200 1 left
	// b 200 1 left
	// a 200 0 left
	// c 429 0 left
}
