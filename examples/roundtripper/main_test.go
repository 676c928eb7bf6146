package main

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// next notes when each request came.
type next struct {
	start time.Time
	came  []time.Duration
}

func (n *next) RoundTrip(*http.Request) (*http.Response, error) {
	n.came = append(n.came, time.Since(n.start).Truncate(time.Millisecond))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &next{start: time.Now()}
		c := client(n)
		for range 4 {
			resp, err := c.Get("http://a.example/")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		if got, want := fmt.Sprint(n.came), "[0s 111ms 222ms 333ms]"; got != want {
			t.Errorf("the calls went out at %s, want %s", got, want)
		}
	})
}
