package core_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// What a scripted store does with a call.
type does int

const (
	answers  does = iota
	fails         // with an error of its own
	nonsense      // an ErrKey
	cached        // answers from a cache
	leased        // answers from a lease
	canceled      // the caller cancels while the store is asked
	panics
	answersLate  // after a second
	answersSoon  // after a millisecond, unless the caller's context ends
	failsLate    // after a second
	hangs        // for a second, or until the caller's context ends
	neverAnswers // until the caller's context ends
)

var errKey = fmt.Errorf("store: nonsense: %w", core.ErrKey)

// A scripted store does as it is told, and counts who asks.
type scripted struct {
	core.Store
	does  atomic.Int64
	asked atomic.Int64
}

func scriptedStore(d does) *scripted {
	s := &scripted{Store: memorystore.New(nil)}
	s.does.Store(int64(d))
	return s
}

func (s *scripted) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.asked.Add(1)
	switch does(s.does.Load()) {
	case fails:
		return core.Decision{}, nil, errDown
	case cached:
		d, r, err := s.Store.Take(ctx, c)
		d.Source = core.SourceCache
		return d, r, err
	case leased:
		d, r, err := s.Store.Take(ctx, c)
		d.Source = core.SourceLease
		return d, r, err
	case nonsense:
		return core.Decision{}, nil, errKey
	case canceled:
		ctx.Value(leave{}).(context.CancelFunc)()
		return core.Decision{}, nil, ctx.Err()
	case panics:
		panic("the store panics")
	case answersLate:
		time.Sleep(time.Second)
	case answersSoon:
		select {
		case <-ctx.Done():
			return core.Decision{}, nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	case failsLate:
		time.Sleep(time.Second)
		return core.Decision{}, nil, errDown
	case neverAnswers:
		<-ctx.Done()
		return core.Decision{}, nil, ctx.Err()
	case hangs:
		select {
		case <-ctx.Done():
			return core.Decision{}, nil, ctx.Err()
		case <-time.After(time.Second):
			return core.Decision{}, nil, errDown
		}
	}
	return s.Store.Take(ctx, c)
}

type leave struct{}

// allow asks once, as a caller who can leave, and swallows a panic.
func allow(l *core.Limiter) (d core.Decision, err error) { return allowUser(l, "u") }

func allowUser(l *core.Limiter, user string) (d core.Decision, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer func() { _ = recover() }()
	return l.Allow(context.WithValue(ctx, leave{}, cancel), user, "a")
}

var breakers = map[string]func(core.Store) core.Store{
	"FailOpen": core.FailOpen,
	"Shadow":   core.Shadow,
	"Fallback": func(s core.Store) core.Store { return core.Fallback(s, memorystore.New(nil)) },
}

var plenty = core.FixedWindow(1_000_000, time.Hour)
