package nethttp

// What package gate needs to know of net/http.

import (
	"net/http"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// An exchange is what a handler gets.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

type framework struct{}

func (framework) Name() string                     { return "nethttp" }
func (framework) Request(x exchange) *http.Request { return x.r }
func (framework) Header(x exchange) http.Header    { return x.w.Header() }

func (framework) WithRequest(x exchange, r *http.Request) exchange { return exchange{x.w, r} }

func (framework) Watch(x exchange, answers *gate.Answering) (exchange, gate.Watched) {
	w, answered := gate.Watch(x.w, answers)
	return exchange{w, x.r}, watched(answered)
}

func (framework) Answer(x exchange, p gate.Problem, _ error) error {
	gate.ClearBody(x.w)
	p.Write(x.w, x.r)
	return nil
}

// Finish does nothing, because the handler has its own copy of w.
func (framework) Finish(exchange, error, func() error) {}

type watched func() (status int, begun bool)

func (w watched) Answered() bool           { _, begun := w(); return begun }
func (w watched) Result(error) (int, bool) { return w() }
func (w watched) Restore()                 {}

// lift makes a function of a request one of an exchange.
func lift[T any](f func(*http.Request) (T, error)) func(exchange) (T, error) {
	if f == nil {
		return nil
	}
	return func(x exchange) (T, error) { return f(x.r) }
}

func (cfg Config) lift() gate.Config[exchange] {
	lifted := gate.Config[exchange]{
		Cost: lift(cfg.Cost), Limiter: lift(cfg.Limiter), CountPreflights: cfg.CountPreflights,
		MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, Settle: cfg.Settle,
		Deny: hook(cfg.Deny), Fail: hook(cfg.Fail),
		Keep: cfg.Keep, Headers: cfg.Headers, SpreadRetryAfter: cfg.SpreadRetryAfter, Forbid: cfg.Forbid,
	}
	if cfg.Skip != nil {
		lifted.Skip = func(x exchange) bool { return cfg.Skip(x.r) }
	}
	if cfg.FinalCost != nil {
		lifted.FinalCost = func(x exchange, status int) int { return cfg.FinalCost(x.r, status) }
	}
	if cfg.OnlyFailures != nil {
		lifted.OnlyFailures = func(x exchange, status int) bool { return cfg.OnlyFailures(x.r, status) }
	}
	return lifted
}

// hook makes a Deny or a Fail one of an exchange.
func hook[T any](f func(http.ResponseWriter, *http.Request, T)) func(exchange, T) error {
	if f == nil {
		return nil
	}
	return func(x exchange, v T) error { f(x.w, x.r, v); return nil }
}
