package redisstore_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// ringScript runs functions of lua/ring.lua on a key, and returns all instants. Its lengths are so short that a few
// instants are a long ring.
func ringScript(t *testing.T) *redis.Script {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile("lua/" + name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ring := read("ring")
	for _, length := range []string{"maxList = 32", "inPlace = 500000", "piece = 8192", "maxSince = 65536"} {
		name, _, _ := strings.Cut(length, " ")
		short := map[string]int{"maxList": 9, "inPlace": 25, "piece": 3, "maxSince": 20}[name]
		if strings.Count(ring, "local "+length) != 1 {
			t.Fatalf("lua/ring.lua has no %s", length)
		}
		ring = strings.Replace(ring, "local "+length, fmt.Sprint("local ", name, " = ", short), 1)
	}
	return redis.NewScript("local function require()\n" + read("state") + "end\nlocal function make()\n" + ring + `end
		local ring, number = make(), function(i) return ARGV[i] + 0 end
		local what, now, units, period, max, most = ARGV[1], number(2), number(3), number(4), number(5), number(6)
		local l = {period = period, max = max, most = most}
		ring.load(l, KEYS[1])
		l.behind = math.max(0, (l.newest or 0) - now)
		if what == 'add' then
			l.stored, l.added = l.newest and ring.live(l, now - period + l.behind) or 0, units
			ring.save(l, now)
		elseif what == 'remove' then
			ring.remove(l, now, units)
		end
		local kept = {period = period}
		ring.load(kept, KEYS[1])
		local all = {}
		for i = kept.n - 1, 0, -1 do
			all[#all + 1] = string.format('%d', ring.fromNewest(kept, i))
		end
		return all
	`)
}

// The ring is a queue: whatever is added and removed, and however the clock steps, it has what a plain list has.
func TestRingIsAQueue(t *testing.T) {
	const period = 1000
	mini := newMini(t)
	if err := mini.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mini.Close)
	rdb := connect(t, &redis.Options{Addr: mini.Addr()})
	script := ringScript(t)
	longest := 0
	rapid.Check(t, func(rt *rapid.T) {
		mini.FlushAll()
		mini.SetTime(time.UnixMicro(1_767_323_000_000_000))
		var want []int64
		now := int64(1_767_323_045_678_901)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += int64(rapid.SampledFrom([]int{0, 0, 1, 40, 100, 300, 1001, -150}).Draw(rt, "passed"))
			units := rapid.SampledFrom([]int{1, 1, 2, 3, 5, 13, 40}).Draw(rt, "units")
			what, at := "add", now
			if len(want) > 0 && rapid.IntRange(0, 4).Draw(rt, "remove") == 0 {
				what, at = "remove", rapid.SampledFrom(want).Draw(rt, "at")
			}
			quota := rapid.SampledFrom([]int{10, 50, 1000}).Draw(rt, "quota")
			got, err := script.Run(t.Context(), rdb, []string{"ring"}, what, at, units, period, quota, 2*quota).Int64Slice()
			if err != nil {
				rt.Fatal(err)
			}
			if what == "add" {
				if n := len(want); n > 0 && want[n-1] > now { // the clock stepped back
					ahead := want[n-1] - now
					for i := range want {
						want[i] -= ahead
					}
				}
				want = slices.DeleteFunc(want, func(at int64) bool { return at <= now-period })
				want = append(want, slices.Repeat([]int64{now}, units)...)
			} else if later := len(want) - 1 - last(want, at); later <= 20 {
				to := len(want) - later
				from := max(slices.Index(want, at), to-units)
				want = slices.Delete(want, from, to)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("after %s of %d at %d:\n%v, want\n%v", what, units, at, got, want)
			}
			longest = max(longest, len(want))
		}
	})
	if longest < 100 {
		t.Errorf("the longest ring had %d instants", longest)
	}
}

// last is the index of the last of some instants that is at.
func last(instants []int64, at int64) int {
	i := len(instants) - 1
	for instants[i] != at {
		i--
	}
	return i
}
