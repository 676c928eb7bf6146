package examples

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"

	"github.com/tailcut/tailcut/core"
)

// What the snippets leave to the reader's imagination.

var ctx = context.Background()

// userKey is where the login has put the user's id.
type userKey struct{}

func guest(address string) *http.Request {
	r := httptest.NewRequest("POST", "/", nil)
	r.RemoteAddr = address + ":4711"
	return r
}

func member(user string) *http.Request {
	r := guest("192.0.2.1")
	return r.WithContext(context.WithValue(ctx, userKey{}, user))
}

func forwarded(peer, header string) *http.Request {
	r := guest(peer)
	r.Header.Set("X-Forwarded-For", header)
	return r
}

func attempt(user, address string) *http.Request {
	r := guest(address)
	r.SetBasicAuth(user, "a guess")
	return r
}

func hasPaid(r *http.Request) bool { return r.Context().Value(userKey{}) != "laoqian" }

var checkPassword = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusUnauthorized)
})

var export = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func status(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// redisAddr is a Redis's host:port: here of one that lives in the test.
var redisAddr = func() string {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	return m.Addr()
}()

// broken is a store without an answer.
var broken core.Store = brokenStore{}

type brokenStore struct{}

var errDown = errors.New("the store is down")

func (brokenStore) Take(context.Context, core.Charge) (core.Decision, error) {
	return core.Decision{}, errDown
}

func (brokenStore) Reset(context.Context, string, string, []core.Limit) error { return errDown }
