package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A faulty store does now and then what take or reset does in its place.
type faulty struct {
	core.Store
	calls atomic.Int64
	take  func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error)
	reset func(s core.Store, ctx context.Context, user, action string, limits []core.Limit) error
}

func (s *faulty) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if s.take != nil && s.calls.Add(1)%5 == 0 {
		return s.take(s.Store, ctx, c)
	}
	return s.Store.Take(ctx, c)
}

func (s *faulty) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	if s.reset != nil {
		return s.reset(s.Store, ctx, user, action, limits)
	}
	return s.Store.Reset(ctx, user, action, limits)
}

// No order explains what a store does that is not atomic, or that charges twice.
func TestWhatIsNotLinearizable(t *testing.T) {
	lost := errors.New("lost")
	var mu sync.Mutex
	stale := map[string]core.Decision{}
	for what, s := range map[string]*faulty{
		"one too many": {take: func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
			d, r, err := s.Take(ctx, c)
			d.Allowed = true
			return d, r, err
		}},
		"a stale Peek": {take: func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
			d, r, err := s.Take(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			if old, ok := stale[c.User]; ok && c.Mode == machine.ModePeek {
				return old, nil, nil
			}
			stale[c.User] = d
			return d, r, err
		}},
		"a charge taken twice": {take: func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
			_, _, _ = s.Take(ctx, c)
			return s.Take(ctx, c)
		}},
		"a charge without an answer taken twice": {take: func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
			_, _, _ = s.Take(ctx, c)
			_, _, _ = s.Take(ctx, c)
			return core.Decision{}, nil, lost
		}},
		"a charge forgotten": {take: func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
			d, r, err := s.Take(ctx, c)
			if d.Allowed && c.Mode != machine.ModePeek {
				_ = s.Reset(ctx, c.User, c.Action, c.Limits)
			}
			return d, r, err
		}},
		"a Reset that comes later": {reset: func(s core.Store, ctx context.Context, user, action string, limits []core.Limit) error {
			time.AfterFunc(5*time.Millisecond, func() { _ = s.Reset(context.Background(), user, action, limits) })
			return nil
		}},
	} {
		t.Run(what, func(t *testing.T) {
			for _, l := range []core.Limit{core.FixedWindow(6, time.Hour), core.SlidingWindow(6, time.Hour), core.Funnel(6, core.Every(time.Hour))} {
				got := porcupine.Ok
				for try := 0; try < 20 && got != porcupine.Illegal; try++ { // it is left to chance
					s.Store = newMapStore(func() int64 { return time.Now().UnixMicro() })
					ops, _ := interleave(t, s, l)
					got = explain(ops, l, 0)
				}
				if got != porcupine.Illegal {
					t.Errorf("%s: %s, not Illegal", l, got)
				}
			}
		})
	}
}

// What had no answer may have been taken or not.
func TestUnknownOutcomesAreExplained(t *testing.T) {
	lost := errors.New("lost")
	for what, take := range map[string]func(core.Store, context.Context, core.Charge) (core.Decision, *core.Record, error){
		"taken": func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
			_, _, _ = s.Take(ctx, c)
			return core.Decision{}, nil, lost
		},
		"not taken": func(core.Store, context.Context, core.Charge) (core.Decision, *core.Record, error) {
			return core.Decision{}, nil, lost
		},
		"taken later": func(s core.Store, ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
			time.AfterFunc(time.Millisecond, func() { _, _, _ = s.Take(ctx, c) })
			return core.Decision{}, nil, lost
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := core.FixedWindow(6, time.Hour)
			ops, _ := interleave(t, &faulty{Store: newMapStore(func() int64 { return time.Now().UnixMicro() }), take: take}, l)
			if got := explain(ops, l, 0); got != porcupine.Ok {
				t.Errorf("%s, not Ok", got)
			}
		})
	}
}
