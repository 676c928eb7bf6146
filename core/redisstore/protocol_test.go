//go:build !race

package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
)

// The examples in protocol.go are what is sent and replied.
func TestExamplesOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile("protocol.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, _ := strings.Cut(string(text), "An example has")
	var lines []string
	for line := range strings.Lines(text2) {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	worlds(t, func(t *testing.T, w *world) {
		var got []string
		say := func(title, words string, reply []any) {
			got = append(got, title, words, strings.Trim(fmt.Sprint(reply), "[]"))
		}
		charge := func(title string, receipt bool, limits ...core.Limit) *core.Record {
			c := core.Charge{User: title, Action: action, Cost: 1, Terms: &core.Terms{Limits: limits, Receipt: receipt}}
			reply, err := w.store.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			say(title, w.store.Word(c), reply)
			_, r, errs := redisstore.Decode([]core.Charge{c}, reply)
			if errs[0] != nil {
				t.Fatal(errs[0])
			}
			return r[0]
		}
		fixed, sliding := core.FixedWindow(100, time.Hour), core.SlidingWindow(1, time.Minute)
		charge("Funnel(15, Per(1, time.Second)), empty", false, core.Funnel(15, core.Per(1, time.Second)))
		r := charge("FixedWindow(100, time.Hour), the first action, with a receipt", true, fixed)
		giver := &giver{Store: w.store}
		r.By = giver
		if err := core.Must(core.New(w.store, fixed)).Refund(t.Context(), kept(t, core.Decision{Allowed: true}, r)); err != nil {
			t.Fatal(err)
		}
		say("the refund of that action", giver.words, []any{1})
		charge("CalendarWindow(100, core.Day, nil), the first action, at 03:04:05.678901 UTC", false, core.CalendarWindow(100, core.Day, nil))
		both := "FixedWindow(100, time.Hour), SlidingWindow(1, time.Minute) and a BanPolicy, 20 s after an action"
		ban := limitOf(t, core.BanPolicy{Refusals: 3, Within: time.Minute, Bans: []time.Duration{5 * time.Minute}, ForgetAfter: 2 * time.Hour})
		charge(both, false, fixed, sliding, ban)
		got = got[:len(got)-3]
		w.advance(20 * time.Second)
		charge(both, false, fixed, sliding, ban)
		org := core.Part{User: "org-7", Action: action, Cost: 1, Limits: []core.Limit{core.FixedWindow(100, time.Minute)}}
		c := core.Charge{User: "alice", Action: action, Cost: 1, Terms: &core.Terms{Limits: []core.Limit{core.FixedWindow(5, time.Minute)}, More: []core.Part{org}}}
		reply, err := w.store.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		say("FixedWindow(5, time.Minute) of a user and FixedWindow(100, time.Minute) of their organization, new", w.store.Word(c), reply)
		if strings.Join(got, "\n") != strings.Join(lines, "\n") {
			t.Errorf("%s\n\nprotocol.go says\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	})
}

// A giver notes what a refund sends.
type giver struct {
	*redisstore.Store
	words string
}

func (g *giver) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	g.words = redisstore.AmendWords(r, a)
	return g.Store.Amend(ctx, r, a)
}

// An encoded charge that is used again is that of an equal charge.
func TestAKeptRequestIsThatOfAnEqualCharge(t *testing.T) {
	store := redisstore.New(redis.NewClient(&redis.Options{}), nil)
	r := rand.New(rand.NewPCG(7, 8))
	limiters := [2][]core.Limit{{kinds[0], kinds[1], kinds[0]}, {kinds[0], kinds[0], kinds[1]}}
	for range 2000 {
		limits := limiters[r.IntN(2)]
		c := core.Charge{User: user, Action: action, Cost: r.Int64N(2), Terms: &core.Terms{
			Limits: limits[:1+r.IntN(3)], Receipt: r.IntN(2) == 0, Ask: machine.Ask{Mode: machine.Mode(r.IntN(5)), Ahead: r.Int64N(2)},
		}}
		if !store.Anew(c) {
			t.Fatalf("%+v", c)
		}
	}
}
