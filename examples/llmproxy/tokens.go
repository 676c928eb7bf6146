package main

// Tokens: an estimate is charged when a request begins, and what has passed when it ends.

import (
	"bytes"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const (
	quota    = 100_000 // tokens of a customer, in any minute
	estimate = 500     // tokens of an answer; most have fewer
)

// metered limits the tokens of a customer. A request is admitted if there is room for the estimate. A
// longer answer is not cut off: what exceeds the quota is debt, and the customer's next requests are
// refused until it is paid. A shorter answer gets the rest back.
func metered(store core.Store, next http.Handler) http.Handler {
	tokens := core.Must(core.New(store, core.MovingWindow(quota, time.Minute)))
	cfg := nethttp.Config{Settle: true, Cost: func(*http.Request) (int, error) { return estimate, nil }}
	return cfg.Limit(tokens, keyfuncs.ContextValue(customer{}), keyfuncs.Action("tokens"))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := &counted{ResponseWriter: w}
			// Deferred, because the proxy panics if the customer disconnects. The tokens that have
			// passed by then were used.
			defer func() {
				if err := nethttp.Settle(r, c.tokens+c.other/4); err != nil {
					log.Printf("a request stays charged with its estimate: %v", err)
				}
			}()
			next.ServeHTTP(c, r)
		}))
}

// A counted response counts the tokens that pass: one for each event of the stream. If your API packs
// several into an event, read its usage field instead, and keep the count for a stream that is cut off.
// A body that is no stream is not free: every four bytes count as a token.
type counted struct {
	http.ResponseWriter
	tokens int
	other  int    // bytes that are not of a stream
	line   []byte // the beginning of the line that is being written
}

var (
	event = []byte("data: ")
	done  = []byte("data: [DONE]")
)

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	if !strings.HasPrefix(c.Header().Get("Content-Type"), "text/event-stream") || c.Header().Get("Content-Encoding") != "" {
		c.other += n
		return n, err
	}
	for rest := p[:n]; len(rest) > 0; {
		line, after, ends := bytes.Cut(rest, []byte("\n"))
		c.line = append(c.line, line[:min(len(line), len(done)+1-len(c.line))]...)
		if ends {
			if bytes.HasPrefix(c.line, event) && !bytes.Equal(c.line, done) {
				c.tokens++
			}
			c.line = c.line[:0]
		}
		rest = after
	}
	return n, err
}

// Unwrap lets http.ResponseController flush.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
