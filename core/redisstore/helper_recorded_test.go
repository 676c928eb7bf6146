//go:build !race

package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A player does what a recording says on one store.
type player struct {
	*recording
	store interface {
		core.Store
		core.Amender
	}
	limiter  *core.Limiter
	limits   []core.Limit // a charge's, the ban policy's included
	ahead    int64
	receipts []receipt
	advance  func(time.Duration)
}

func play(t *testing.T, r *recording, store interface {
	core.Store
	core.Amender
}, advance func(time.Duration)) *player {
	t.Helper()
	p := &player{recording: r, store: store, advance: advance}
	p.limiter = core.Must(core.Must(core.New(p, r.Limits...)).With(core.Refundable{}))
	if r.Ban != nil {
		p.limiter = core.Must(p.limiter.With(*r.Ban))
	}
	if _, err := p.limiter.Peek(t.Context(), r.User, action); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *player) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	t := *c.Terms
	p.limits, t.Ahead = t.Limits, p.ahead
	c.Terms = &t
	d, r, err := p.store.Take(ctx, c)
	if r != nil {
		r.By = p
	}
	return d, r, err
}

func (p *player) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return p.store.Reset(ctx, user, action, limits)
}

// Amend takes the receipt down, and gives nothing back.
func (p *player) Amend(_ context.Context, r *core.Record, _ machine.Amendment) (bool, error) {
	p.receipts = append(p.receipts, receipt{User: r.User, Action: r.Action, Limits: r.Limits, Cost: r.Cost, At: r.At, Readings: r.Readings})
	return true, nil
}

// do does one thing, such as "allow 2" or "allow 2 like", and says what came of it.
// "refund 2 3" gives back up to 3 units of the last admitted action but one, or of the first
// if there are not so many; "turn 30s" reserves a turn that comes within so long.
func (p *player) do(t *testing.T, what string) string {
	t.Helper()
	words := strings.Fields(what)
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return n
	}
	duration := func() time.Duration {
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return d
	}
	act := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return action
	}
	ctx := t.Context()
	var d core.Decision
	var err error
	p.ahead = 0
	switch words[0] {
	case "allow":
		d, err = p.limiter.AllowN(ctx, p.User, act(2), number(1))
	case "turn":
		p.ahead = duration().Microseconds()
		d, err = p.limiter.Allow(ctx, p.User, action)
	case "surcharge":
		d, err = p.limiter.Surcharge(ctx, p.User, action, number(1))
	case "peek":
		d, err = p.limiter.Peek(ctx, p.User, act(1))
	case "refund":
		r := p.receipts[max(0, len(p.receipts)-number(1))]
		_, err = p.store.Amend(ctx, &core.Record{Charge: core.Charge{User: r.User, Action: r.Action, Cost: r.Cost, Terms: &core.Terms{Limits: p.limits}}, At: r.At, Readings: r.Readings},
			machine.Amendment{Units: min(r.Cost, int64(number(2)))})
	case "ban":
		err = p.limiter.Ban(ctx, p.User, action, duration())
	case "unban":
		err = p.limiter.Unban(ctx, p.User, action)
	case "advance":
		p.advance(duration())
	case "status":
		var s core.Status
		if s, err = p.limiter.Status(ctx, p.User, act(1)); err == nil {
			return fmt.Sprintf("%s: %+v", what, s.Ban)
		}
	default:
		t.Fatalf("%q is nothing to do", what)
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if d.Limit == 0 {
		return what
	}
	if words[0] == "allow" || words[0] == "turn" {
		if err := p.limiter.Refund(ctx, d); d.Allowed && err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	return fmt.Sprintf("%s: %t, %d of %d remain, again in %s, whole in %s, limit %d %s, ban %d",
		what, d.Allowed, d.Remaining, d.Limit, d.RetryAfter, d.ResetAfter, d.Binding, d.Reason, d.BanLevel)
}

// blobs is a store of package machine's binary states.
type blobs struct {
	states map[string][]byte
	now    int64
}

func (b *blobs) edit(user, action string, limits []core.Limit, edit func([]machine.Entry)) error {
	entries := make([]machine.Entry, len(limits))
	key := func(l *core.Limit) string {
		if l.IsPerUser() {
			return user + "|*|" + l.Identity()
		}
		return user + "|" + action + "|" + l.Identity()
	}
	for i := range limits {
		state, err := limits[i].Rule().Unmarshal(b.states[key(&limits[i])])
		if err != nil {
			return err
		}
		entries[i].State = state
	}
	edit(entries)
	for i, e := range entries {
		switch {
		case e.Dirty && e.State == machine.State{}:
			delete(b.states, key(&limits[i]))
		case e.Dirty:
			b.states[key(&limits[i])] = limits[i].Rule().Marshal(e.State)
		}
	}
	return nil
}

func (b *blobs) Take(_ context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	err = b.edit(c.User, c.Action, c.Limits, func(entries []machine.Entry) {
		r = c.Commit(&d, entries, b.now, c.Check(entries, b.now))
	})
	if r != nil {
		r.By = b
	}
	return d, r, err
}

func (b *blobs) Amend(_ context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	err = b.edit(r.User, r.Action, r.Limits, func(entries []machine.Entry) { done = r.Amend(entries, b.now, a) })
	return done, err
}

func (b *blobs) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	return b.edit(user, action, limits, func(entries []machine.Entry) {
		for i := range entries {
			entries[i] = machine.Entry{Dirty: true}
		}
	})
}
