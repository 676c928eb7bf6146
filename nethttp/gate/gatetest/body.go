package gatetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
)

// failedIsFree is the final cost that a client with a silent body tries to cheat.
var failedIsFree = finalCost(1, func(status int) int {
	if status >= 500 {
		return 0
	}
	return 1
})

// A silentBody is a request's body whose client sends its end when told to.
type silentBody struct {
	sent, closed chan struct{}
	once         sync.Once
	waits        chan struct{} // has room for one who reads, or with HTTP/1.1 closes; nil if Close does not wait for Read
}

func (b *silentBody) Read([]byte) (int, error) {
	if b.waits != nil {
		b.waits <- struct{}{}
		defer func() { <-b.waits }()
	}
	select {
	case <-b.closed:
		return 0, http.ErrBodyReadAfterClose
	case <-b.sent:
		return 0, io.EOF
	}
}

func (b *silentBody) Close() error {
	if b.waits != nil {
		b.waits <- struct{}{}
		defer func() { <-b.waits }()
	}
	b.once.Do(func() { close(b.closed) })
	return nil
}

// A client that is silent makes a handler give up. That is refunded only if the handler did not
// want the body.
func testASilentBody(t *testing.T, adapters []Adapter) {
	gaveUp := func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) }
	reads := func(body io.Reader) (done chan struct{}) {
		done = make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(io.Discard, body)
		}()
		time.Sleep(time.Second) // it is silent for long
		return done
	}
	for _, c := range []struct {
		name   string
		passed int // of 30, by a limit of 5
		handle func(w http.ResponseWriter, r *http.Request)
	}{
		{"read", 5, func(w http.ResponseWriter, r *http.Request) {
			reads(r.Body)
			gaveUp(w)
		}},
		{"read, and closed after the answer", 5, func(w http.ResponseWriter, r *http.Request) {
			reads(r.Body)
			gaveUp(w)
			_ = r.Body.Close()
		}},
		{"read, and closed before the answer", 5, func(w http.ResponseWriter, r *http.Request) {
			done := reads(r.Body)
			_ = r.Body.Close()
			<-done
			gaveUp(w)
		}},
		{"read by an http.TimeoutHandler that closes", 5, func(w http.ResponseWriter, r *http.Request) {
			http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				go func() { left(r); _ = r.Body.Close() }()
				_, _ = io.Copy(io.Discard, r.Body)
			}), time.Second, "late").ServeHTTP(w, r)
		}},
		{"closed before it is read", 30, func(w http.ResponseWriter, r *http.Request) {
			_ = r.Body.Close()
			<-reads(r.Body)
			gaveUp(w)
		}},
		{"closed and not read", 30, func(w http.ResponseWriter, r *http.Request) {
			_ = r.Body.Close()
			gaveUp(w)
		}},
	} {
		for _, ad := range adapters {
			for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
				t.Run(c.name+"/"+ad.Name+"/"+proto, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ran := NewRan(t, c.passed)
						limiter := core.Must(core.New(memory(), core.SlidingWindow(5, time.Hour)))
						h := ad.Mount(App{Routes: []Route{{
							Limits: []Limit{{Limiter: limiter, Config: failedIsFree}},
							Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
								ran.Now()
								c.handle(w, r)
							},
						}}})
						for range 30 {
							body := &silentBody{sent: make(chan struct{}), closed: make(chan struct{})}
							if proto == "HTTP/1.1" {
								body.waits = make(chan struct{}, 1)
							}
							r := httptest.NewRequest("POST", "/replies/7", body)
							r.Header.Set("X-User-ID", "alice")
							sends := time.AfterFunc(1100*time.Millisecond, func() { close(body.sent) })
							h.ServeHTTP(httptest.NewRecorder(), r)
							if sends.Stop() {
								close(body.sent)
							}
							synctest.Wait()
						}
					})
				})
			}
		}
	}
}
