// Package roundtripper limits the calls that a program makes to other servers.
//
//	calls := core.Must(core.New(store, core.Funnel(1, core.Per(9, time.Second)))) // the server allows 10 a second
//	client := &http.Client{Transport: roundtripper.New(nil, calls, "our-account"), Timeout: 10 * time.Second}
//
// A call waits for its turn. If a server answers 429 or 503 with Retry-After, later calls of the
// account to this server wait until the time that Retry-After says, but at most a day. This holds
// in every process that shares the store.
//
// # Which limit
//
// The limit counts a call when the call leaves. The server counts it when it arrives. The network
// delays some calls more than others. So the server can count more calls in a second than the limit
// did:
//
//   - With a SlidingWindow(9, time.Second), nine calls may leave together. If they take a
//     millisecond longer than the next nine calls, the server counts eighteen calls in one second.
//   - A Funnel of capacity 1 spaces the calls. The calls of the example leave at least 111 ms
//     apart. The server allows ten calls a second, and the limit nine. So the server counts more
//     than ten calls in a second only if the delays of two calls differ by 111 ms or more.
//
// # Codes in the log
//
//	retry-after-lost  The store has not kept a server's Retry-After, so later calls do not wait for it.
//	                  Logged at most once a minute.
package roundtripper

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
)

// New returns a RoundTripper that waits for a call's turn, and then sends the call with next. If
// next is nil, http.DefaultTransport sends it.
//
// The limits count the calls of one account to one host. The limiter's user is account. Its action
// is the host in lower case, with the port. The ports 80 of http and 443 of https are left out.
// Different spellings of a host, such as one with a dot at its end, are one action. If a host's
// name is not in ASCII, the call fails: write the name as xn--. With [core.Limit.PerUser] the
// limits count the calls to all hosts together.
//
// http.Client follows a redirect with a further call, which counts for the host that it goes to. So
// one server can use up your quota at another server. If your users choose which servers are
// called, do not follow redirects: set http.Client.CheckRedirect.
//
// If a call's turn does not come before its deadline, the call fails as soon as that is known, with
// an error that matches [core.ErrRefused]. So set a deadline: that of the call's context, or
// http.Client.Timeout. The deadline includes the wait. Other errors come, for example, from the
// context, the store or next.
//
// If a response of status 429 or 503 has Retry-After, in seconds or as a date, later calls of the
// account to the host wait until then. A wait of more than a day counts as a day. To keep the wait,
// New gives the limiter a [core.BanPolicy], unless the limiter has one. Calls that have begun go
// on. The RoundTripper does not repeat a call that the server has refused.
//
// New panics if calls is nil, if core.New did not make calls, or if account is empty.
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
	if banning, err := calls.With(core.BanPolicy{}); err == nil { // otherwise the limiter has a policy already
		calls = banning
	}
	return &transport{next: next, calls: calls, account: account}
}

type transport struct {
	next    http.RoundTripper
	calls   *core.Limiter
	account string

	lost notice.Rarely // logs that a ban has failed
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	host, err := hostOf(r.URL)
	if err == nil {
		_, err = t.calls.Wait(r.Context(), t.account, host)
	}
	if err != nil {
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
		if err := t.ban(context.WithoutCancel(r.Context()), host, min(pause, longest).Truncate(time.Millisecond)); err != nil && t.lost.Due() {
			slog.Default().Error("roundtripper: a Retry-After cannot be kept; calls go on", "code", "retry-after-lost", "error", err)
		}
	}
	return resp, nil
}

// hostOf returns one name for all spellings of a host that net/http connects to the same address.
func hostOf(u *url.URL) (string, error) {
	name, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), strings.TrimLeft(u.Port(), "0")
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "", errors.New("roundtripper: the host is not in ASCII; write an international name as xn--")
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		name = ip.Unmap().String()
	}
	if port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		return name, nil
	}
	return net.JoinHostPort(name, port), nil
}

// ban bans the account from calls to the host, unless a ban of at least the same length is in
// force. Wait waits until a ban has ended. If two calls ban at the same instant, the shorter ban
// may stay. The server may then refuse a later call with a Retry-After again.
func (t *transport) ban(ctx context.Context, host string, pause time.Duration) error {
	s, err := t.calls.Status(ctx, t.account, host)
	if err != nil || s.Ban.RetryAfter >= pause {
		return err
	}
	return t.calls.Ban(ctx, t.account, host, pause)
}

// longest is the longest time that a Retry-After counts for.
const longest = 24 * time.Hour

// retryAfter returns how long the server wants no further call.
func retryAfter(resp *http.Response) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0 // it is about one resource of the server
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
