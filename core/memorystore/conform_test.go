package memorystore

import (
	"testing"

	"github.com/tailcut/tailcut/core/storetest"
)

func TestConforms(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Fixture {
		c := &clock{us: 1e15}
		return storetest.Fixture{Store: newStore(nil, c.now, c.epoch), Advance: c.advance, Now: c.time}
	})
}
