package main

// Tokens: an estimate is charged when a request begins, and what it has cost when it ends.

import (
	"bytes"
	"encoding/json"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const (
	quota    = 100_000  // tokens of a customer, in any minute
	estimate = 500      // tokens of an answer; most have fewer
	longest  = 256_000  // bytes of a request
	most     = 64 << 10 // bytes of an event, or of an answer that is not a stream, in which usage is looked for
)

// metered limits the tokens of a customer. A request is admitted if there is room for the estimate: four
// bytes of it are a token, and its answer is of usual length. A longer answer is not cut off: what exceeds
// the quota is debt, and the customer's next requests are refused until it is paid.
//
// The customer gets something back only if the upstream has reported the usage. One who disconnects before
// that has had the upstream work, and nobody here knows how much.
func metered(store core.Store, next http.Handler) http.Handler {
	tokens := core.Must(core.New(store, core.MovingWindow(quota, time.Minute)))
	prompt := func(r *http.Request) int { return int(r.ContentLength / 4) }
	cfg := nethttp.Config{Settle: true, Cost: func(r *http.Request) (int, error) { return prompt(r) + estimate, nil }}
	limit := cfg.Limit(tokens, keyfuncs.ContextValue(customer{}), keyfuncs.Action("tokens"))
	settles := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &counted{ResponseWriter: w}
		defer func() { // the proxy panics if the customer disconnects
			if err := nethttp.Settle(r, c.cost(prompt(r)+estimate, prompt(r))); err != nil {
				log.Printf("a request stays charged with its estimate: %v", err)
			}
		}()
		next.ServeHTTP(c, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 || r.ContentLength > longest {
			http.Error(w, "the request is too long, or does not say how long it is", http.StatusRequestEntityTooLarge)
			return
		}
		settles.ServeHTTP(w, r)
	})
}

// A counted response counts what the upstream sends, and reads the usage that it reports.
type counted struct {
	http.ResponseWriter
	tokens int    // an event of a stream is one; if your API packs several into one, ask for its usage
	other  int    // bytes that are not of a stream: four are a token
	kept   []byte // the beginning of the event that is being written, or of an answer that is not a stream
	usage  int    // as reported, or 0
}

func (c *counted) streams() bool {
	return strings.HasPrefix(c.Header().Get("Content-Type"), "text/event-stream") && c.Header().Get("Content-Encoding") == ""
}

func (c *counted) Write(p []byte) (int, error) {
	if c.streams() {
		for rest := p; len(rest) > 0; {
			line, after, ends := bytes.Cut(rest, []byte("\n"))
			if c.keep(line); ends {
				c.event()
			}
			rest = after
		}
	} else {
		c.keep(p)
		c.other += len(p)
	}
	return c.ResponseWriter.Write(p)
}

func (c *counted) keep(p []byte) { c.kept = append(c.kept, p[:min(len(p), most-len(c.kept))]...) }

// event is called at the end of a line. A stream has its usage in the last event, if the customer has asked
// for it with stream_options: {include_usage: true}.
func (c *counted) event() {
	if data, ok := bytes.CutPrefix(c.kept, []byte("data:")); ok && string(bytes.TrimSpace(data)) != "[DONE]" {
		c.tokens++
		c.report(data)
	}
	c.kept = c.kept[:0]
}

// report reads the usage of an event or an answer, if it has one.
func (c *counted) report(data []byte) {
	var answer struct {
		Usage struct {
			Total int `json:"total_tokens"`
		} `json:"usage"`
	}
	if bytes.Contains(data, []byte(`"usage"`)) && json.Unmarshal(data, &answer) == nil {
		c.usage = max(c.usage, answer.Usage.Total)
	}
}

// cost is what a request has cost that was charged so much when it began.
func (c *counted) cost(charged, prompt int) int {
	if !c.streams() {
		c.report(c.kept)
	}
	if c.usage > 0 {
		return c.usage
	}
	return max(charged, prompt+c.tokens+c.other/4)
}

// Unwrap lets http.ResponseController flush.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
