package examples

import (
	"context"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
)

// What the snippets leave to the reader's imagination.

var ctx = context.Background()

var (
	created    = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }
	reply      = http.HandlerFunc(created)
	createPost = http.HandlerFunc(created)
)

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

// redisAddr is a Redis's host:port: here of one that lives in the test.
var redisAddr = func() string {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	return m.Addr()
}()
