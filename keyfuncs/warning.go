package keyfuncs

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
)

// A warning is said once.
type warning struct{ said atomic.Bool }

func (w *warning) say(code, text string) {
	if w.said.CompareAndSwap(false, true) {
		slog.Default().Warn("keyfuncs: "+text, "code", code)
	}
}

// The codes, which package nethttp documents.
const (
	codeUntrusted = "forwarded-untrusted"
	codeNever     = "trusted-never-matches"
)

// What proxies tell of their clients in.
var forwardedHeaders = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}

// lookout looks for them among the requests that RemoteIP serves: at the first, and
// then at some, since a proxy puts them into all, and looking takes its time.
type lookout struct {
	warning
	looked atomic.Int32
}

var nobodyTrusts lookout

const (
	firstLooks = 1000
	someLooks  = 64 // one of so many
)

func (l *lookout) look(h http.Header) {
	if l.said.Load() {
		return
	}
	if l.looked.Load() < firstLooks {
		l.looked.Add(1)
	} else if rand.Uint32()%someLooks != 0 {
		return
	}
	for _, name := range forwardedHeaders {
		if _, there := h[name]; there {
			l.say(codeUntrusted, "a request that is limited by RemoteIP has the header "+name+
				", which nobody trusts; if a proxy of yours sets it, all clients behind the proxy share one limit: use ForwardedIP or TrustedHeaderIP with its prefixes")
			return
		}
	}
}

// fewMatches is how many requests with the header must come before it is said that
// no peer was ever trusted.
const fewMatches = 1000

// trust watches whether the prefixes that were given are those of the peers.
type trust struct {
	proxies
	maker, header    string
	matched          atomic.Bool
	strangers        atomic.Int64 // requests with the header, before the first match
	untrusted, never warning
}

// match notes a peer that is trusted.
func (t *trust) match() {
	if !t.matched.Load() {
		t.matched.Store(true)
	}
}

// stranger notes a peer that is not, by the headers of its request.
func (t *trust) stranger(h http.Header) {
	if t.untrusted.said.Load() && (t.matched.Load() || t.never.said.Load()) {
		return
	}
	if _, there := h[t.header]; !there {
		return
	}
	t.untrusted.say(codeUntrusted, "the header "+t.header+" came from a peer that "+t.maker+
		" was not told to trust, so the peer's own address is limited; if it is a proxy of yours, give its prefix to "+t.maker)
	if t.strangers.Add(1) >= fewMatches {
		t.never.say(codeNever, fmt.Sprintf("%d requests had the header %s and no peer was ever in the prefixes that %s was given; give it those from which your proxies connect", fewMatches, t.header, t.maker))
	}
}
