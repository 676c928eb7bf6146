// Package roundtripper limits the calls that a program makes to other servers.
//
//	calls := core.Must(core.New(store, core.SlidingWindow(9, time.Second))) // the server allows 10 a second
//	client := &http.Client{Transport: roundtripper.New(nil, calls, "our-account"), Timeout: 10 * time.Second}
//
// A call waits for its turn. If a server answers with Retry-After, later calls to it wait until then, in
// every process that shares the store.
//
// A limit holds when a call is let go, not when it arrives: a call that the network delays can arrive
// together with those after it. So leave one unit of the server's quota unused. A Funnel(10, Per(10,
// time.Second)) lets 19 calls go in its first second.
package roundtripper

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
)

// New returns a RoundTripper that waits for the call's turn, and then sends it with next; nil is
// http.DefaultTransport. The limits count the calls of an account to a host: the limiter's user is account,
// and its action is the host with its port, in lower case. With [core.Limit.PerUser] they count the calls
// to all hosts.
//
// A call whose turn does not come before its deadline fails at once, with an error that matches
// [core.ErrRefused]. Set a deadline, which includes the wait: the call's context, or http.Client.Timeout.
// Any other error is the context's, the store's or next's.
//
// If a response of status 400 or more has Retry-After, in seconds or as a date, no call of the account to the
// host begins before then: New gives the limiter a [core.BanPolicy], unless it has one. A wait of more
// than a day counts as a day. Calls that have begun are not held back. New does not repeat a refused call.
//
// New panics if calls is nil or account is empty.
func New(next http.RoundTripper, calls *core.Limiter, account string) http.RoundTripper {
	switch {
	case calls == nil:
		panic("roundtripper: New: the limiter is nil; make one with core.New")
	case len(calls.Limits()) == 0:
		panic("roundtripper: New: the limiter is empty; make one with core.New")
	case account == "":
		panic("roundtripper: New: the account is empty; name whose quota it is at the other servers")
	case next == nil:
		next = http.DefaultTransport
	}
	if banning, err := calls.With(core.BanPolicy{}); err == nil { // else it has a policy
		calls = banning
	}
	return &transport{next: next, calls: calls, account: account, start: time.Now()}
}

type transport struct {
	next    http.RoundTripper
	calls   *core.Limiter
	account string

	start  time.Time
	logged atomic.Int64 // when a failed ban was logged, since start; 0 is never
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	host := strings.ToLower(r.URL.Host)
	if _, err := t.calls.Wait(r.Context(), t.account, host); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if pause := retryAfter(resp); pause >= time.Millisecond {
		if err := t.ban(context.WithoutCancel(r.Context()), host, min(pause, longest).Truncate(time.Millisecond)); err != nil && t.due() {
			slog.Default().Error("roundtripper: a Retry-After cannot be kept; calls go on", "error", err)
		}
	}
	return resp, nil
}

// ban bans the account from calls to the host, unless it is banned for longer already. Wait sits a ban out. Of two
// calls at the same instant the shorter time may count: the next call is then told again.
func (t *transport) ban(ctx context.Context, host string, pause time.Duration) error {
	s, err := t.calls.Status(ctx, t.account, host)
	if err != nil || s.Ban.RetryAfter >= pause {
		return err
	}
	return t.calls.Ban(ctx, t.account, host, pause)
}

// due allows a log line once a minute.
func (t *transport) due() bool {
	was, now := t.logged.Load(), int64(time.Since(t.start))+1
	return (was == 0 || now-was > int64(time.Minute)) && t.logged.CompareAndSwap(was, now)
}

// longest is the longest wait that is heeded.
const longest = 24 * time.Hour

// retryAfter is how long the server wants no further call.
func retryAfter(resp *http.Response) time.Duration {
	if resp.StatusCode < 400 { // of a redirect it is about the new address
		return 0
	}
	after := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(after, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longest/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(after); err == nil {
		return time.Until(at)
	}
	return 0
}
