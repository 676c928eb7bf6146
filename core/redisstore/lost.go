package redisstore

// Slots of InFlight whose charge has no answer.

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/later"
	"github.com/tailcut/tailcut/core/machine"
)

// mostNumber is the highest number of a charge's first slot. The numbers of all its slots are below 2^53, as Lua
// needs. They are random, so that no two live slots of one key have one number: with 10,000 of them, one
// charge in 10^12 would meet another.
const mostNumber = 1<<53 - 1<<14

// releaseLost releases, in the background, the slots of a charge that has no answer. The charge may still be on
// its way, or it may have been refused. So while the slots are not found, they may come.
func (s *wire) releaseLost(c *core.Charge, number int64) {
	release := machine.Amendment{Verb: machine.VerbRelease}
	for _, p := range c.Parts() {
		r := &core.Record{Charge: core.Charge{User: strings.Clone(p.User), Action: strings.Clone(p.Action), Cost: p.Cost, Terms: &core.Terms{Limits: p.Limits}}}
		var taken machine.Reading
		taken.Fits, taken.Detail = true, number
		r.Readings = slices.Repeat([]machine.Reading{taken}, len(r.Limits))
		lease := time.Duration(0)
		for i := range r.Limits {
			if r.Amends(i, release) {
				lease = max(lease, r.Limits[i].Period())
			}
		}
		if lease > 0 {
			later.Try(func() (found bool, err error) {
				return s.Amend(context.Background(), r, release)
			}).Now(lease)
		}
	}
}
