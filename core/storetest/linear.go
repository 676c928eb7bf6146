package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tailcut/tailcut/core"
)

// Linearizable has several goroutines charge, peek and reset a few users. Some of them cancel. For
// each history it looks for an order of the calls that explains every answer: each call happens at
// one instant between its beginning and its end. A call that ended in an error may have happened
// at any time after it began, or never. If it took slots, a store may have released them at any time after that.
func Linearizable(t *testing.T, open func(testing.TB) Fixture) {
	const quota = 6
	for _, l := range append(everyKind(quota, quota*time.Hour), core.TokenBucket(2*quota, core.Every(time.Hour)).Initial(quota)) {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			f := open(t)
			f.slots(t, []core.Limit{l})
			f.dated(t, l)
			store := f.Store
			ops, answered := interleave(t, store, l)
			if answered < len(ops)/2 {
				t.Errorf("%d of %d calls had an answer", answered, len(ops))
			}
			if got := explain(ops, l, l.Quota()-quota); got != porcupine.Ok {
				t.Errorf("whether the history can be explained: %s\n%v", got, ops)
			}
		})
	}
}

// An ask is a call: a charge of cost, a peek if that is 0, or a reset.
type ask struct {
	user, cost int
	reset      bool

	lost    int  // if it has taken slots without an answer: its number, from 1
	release bool // of that one's slots, if it has any
}

// A use is what is taken of a quota, and which calls without an answer have slots.
type use struct {
	units int
	lost  [4]uint64
}

// An answer is what it returned. Times are left out: a clock may run meanwhile.
type answer struct {
	err       error
	allowed   bool
	remaining int
}

// interleave records what goroutines see. It returns how many calls had an answer.
func interleave(t testing.TB, store core.Store, l core.Limit) (ops []porcupine.Operation, answered int) {
	const goroutines, calls, users = 6, 40, 3
	lim := core.Must(core.New(store, l))
	start := time.Now()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	together(t, goroutines, func(g int) error {
		r := rand.New(rand.NewPCG(seed, uint64(g)))
		for range calls {
			a := ask{user: r.IntN(users)}
			switch r.IntN(10) {
			case 0:
				a.reset = true
			case 1, 2, 3:
			default:
				a.cost = 1 + r.IntN(3)
			}
			ctx, leave := t.Context(), context.CancelFunc(func() {})
			if r.IntN(10) == 0 {
				ctx, leave = context.WithTimeout(ctx, time.Duration(r.IntN(200))*time.Microsecond)
			}
			var d core.Decision
			var err error
			who := fmt.Sprint("user", a.user)
			called := time.Since(start)
			switch {
			case a.reset:
				err = lim.Reset(ctx, who, "linear")
			case a.cost == 0:
				d, err = lim.Peek(ctx, who, "linear")
			default:
				d, err = lim.AllowN(ctx, who, "linear", a.cost)
			}
			returned := int64(time.Since(start))
			leave()
			mu.Lock()
			if err == nil && !a.reset && d.Source != core.SourceStore && d.Source != core.SourceCache {
				err = errElsewhere
			}
			if err != nil {
				returned = math.MaxInt64
			} else {
				answered++
			}
			ops = append(ops, porcupine.Operation{
				ClientId: g, Input: a, Call: int64(called), Output: answer{err, d.Allowed, d.Remaining}, Return: returned,
			})
			mu.Unlock()
			time.Sleep(time.Duration(r.IntN(50)) * time.Microsecond) // or each would run by itself
		}
		return nil
	})
	return ops, answered
}

// errElsewhere says that the store behind a decorator may not have decided a call, since the
// call's deadline ended.
var errElsewhere = errors.New("another store has decided, or none")

// explain looks for an order. start is how much of a new user's quota is taken.
func explain(ops []porcupine.Operation, l core.Limit, start int) porcupine.CheckResult {
	counting := l.Kind() == "refused"
	ops, lost := slices.Clone(ops), 0
	for i := range ops {
		if a := ops[i].Input.(ask); l.TakesSlots() && a.cost > 0 && ops[i].Output.(answer).err != nil {
			lost++
			a.lost = lost
			ops[i].Input = a
			a.release = true
			released := ops[i]
			released.Input = a
			ops = append(ops, released)
		}
	}
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			byUser := map[int][]porcupine.Operation{}
			for _, op := range all {
				u := op.Input.(ask).user
				byUser[u] = append(byUser[u], op)
			}
			for _, part := range byUser {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return use{units: start} },
		// The state is what is taken of the quota. A call without an answer that never
		// happened is one that came after all others.
		Step: func(state, input, output any) (bool, any) {
			used, a, got := state.(use), input.(ask), output.(answer)
			word, bit := a.lost/64, uint64(1)<<(a.lost%64)
			switch {
			case a.reset:
				return true, use{units: start}
			case a.release:
				if used.lost[word]&bit != 0 {
					used.units -= a.cost
					used.lost[word] &^= bit
				}
				return true, used
			}
			fits := used.units+max(a.cost, 1) <= l.Quota()
			switch {
			case fits:
				used.units += a.cost
				if a.lost > 0 {
					used.lost[word] |= bit
				}
			case counting:
				used.units = min(used.units+a.cost, l.Quota())
			}
			return got.err != nil || got.allowed == fits && got.remaining == l.Quota()-used.units, used
		},
	}, ops, 30*time.Second)
}
