package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
)

// next answers every request and notes when it came.
type next struct {
	start time.Time
	came  []time.Duration
	busy  func() string // the Retry-After of a refusal, or ""
}

func (n *next) RoundTrip(*http.Request) (*http.Response, error) {
	n.came = append(n.came, time.Since(n.start))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	if n.busy != nil {
		if after := n.busy(); after != "" {
			resp.StatusCode = http.StatusTooManyRequests
			resp.Header.Set("Retry-After", after)
		}
	}
	return resp, nil
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &next{start: time.Now()}
		c := client(n)
		for _, host := range []string{"a", "A", "a", "A", "a", "b"} {
			if _, err := c.Get("http://" + host + ".example/"); err != nil {
				t.Fatal(err)
			}
		}
		// The sixth is for another host, which has a limit of its own.
		if got, want := fmt.Sprint(n.came), "[0s 0s 0s 500ms 1s 1s]"; got != want {
			t.Errorf("the calls went out at %s, want %s", got, want)
		}
	})
}

// Calls to other hosts do not wait for a host that answered with Retry-After.
func TestCallsWaitForRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, after := range map[string]func() string{
			"seconds": func() string { return "60" },
			"a date":  func() string { return time.Now().Add(time.Minute).UTC().Format(http.TimeFormat) },
		} {
			n := &next{start: time.Now()}
			n.busy = func() string {
				if len(n.came) == 2 {
					return after()
				}
				return ""
			}
			c := client(n)
			for _, host := range []string{"a", "a", "b", "a"} {
				if _, err := c.Get("http://" + host + ".example/"); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := fmt.Sprint(n.came), "[0s 0s 0s 1m0s]"; got != want {
				t.Errorf("%s: the calls went out at %s, want %s", name, got, want)
			}
		}
	})
}

// A body notes that it was closed.
type body struct {
	*strings.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestACallWithoutATurnBeforeItsDeadlineFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &next{start: time.Now()}
		c := client(n)
		for range 3 {
			if _, err := c.Get("http://a.example/"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		b := &body{Reader: strings.NewReader("{}")}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a.example/", b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(r); !errors.Is(err, core.ErrRefused) || !b.closed || time.Since(n.start) != 0 || len(n.came) != 3 {
			t.Errorf("%v after %s, body closed: %t, %d calls", err, time.Since(n.start), b.closed, len(n.came))
		}
	})
}
