package memorystore

import (
	"testing"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/storetest"
)

func TestConforms(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Fixture {
		c := &clock{us: 1e15}
		return storetest.Fixture{Store: newStore(nil, c.now, c.epoch), Advance: c.advance, Now: c.time}
	})
}

// Decorators over a store that answers, and a division by one, change nothing.
func TestDecoratedConforms(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Fixture {
		c := &clock{us: 1e15}
		store := core.FailOpen(core.Divide(core.Fallback(newStore(nil, c.now, c.epoch), New(nil)), 1))
		return storetest.Fixture{Store: store, Advance: c.advance, Now: c.time, Traces: 100}
	})
}
