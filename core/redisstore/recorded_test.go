//go:build !race

package redisstore_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
)

var record = flag.String("record", "", "record the states of this version in testdata/recorded/`version`.json")

// A recording is what one version of Tailcut has written, and what it decided afterwards.
type recording struct {
	Name    string
	Limits  []core.Limit
	Ban     *core.BanPolicy `json:",omitempty"`
	User    string
	Options *keyOptions `json:",omitempty"`

	Before   []string              // what was done
	State    map[string]redisState // the keys in Redis after that
	Binary   map[string][]byte     // package machine's binary states
	Receipts []receipt             // of what was admitted

	After     []string // what was done then
	Decisions []string
	LeftState map[string]redisState
	LeftBytes map[string][]byte
}

// keyOptions are the options that change the keys.
type keyOptions struct{ Prefix, Secret string }

// A receipt is the record of what was admitted.
type receipt struct {
	User, Action string
	Limits       []core.Limit
	Cost, At     int64
	Readings     []machine.Reading
}

type redisState struct {
	Text    string             `json:",omitempty"` // quoted, since a ring is not text
	Members map[string]float64 `json:",omitempty"`
	Expires int64              // Unix milliseconds
}

// recorded are the cases to record. The words are those of player.do.
func recorded() []recording {
	minute := core.Per(7, time.Minute)
	spend := []string{"allow 1", "advance 1s", "allow 2", "advance 250ms", "allow 4", "allow 9", "peek"}
	follow := []string{"peek", "refund 1 1", "peek", "allow 2", "advance 1500ms", "allow 3", "allow 9", "surcharge 2", "advance 20s", "allow 1", "refund 3 3", "peek", "advance 55s", "allow 5"}
	turns := []string{"allow 5", "turn 30s", "turn 30s"}
	afterTurns := []string{"peek", "turn 30s", "allow 1", "refund 1 1", "turn 60s", "refund 4 1", "advance 9s", "peek", "turn 60s", "advance 90s", "allow 5"}
	ban := &core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{5 * time.Second, time.Hour}, ForgetAfter: 2 * time.Hour}
	everywhere := *ban
	everywhere.PerUser = true
	var all []recording
	add := func(name string, before, after []string, limits ...core.Limit) *recording {
		all = append(all, recording{Name: name, Limits: limits, User: "laoqian", Before: before, After: after})
		return &all[len(all)-1]
	}
	for _, l := range []core.Limit{
		core.SlidingWindow(5, time.Minute), core.SlidingWindow(5, time.Minute).CountRefused(), core.MovingWindow(5, time.Minute),
		core.FixedWindow(5, time.Minute), core.ElasticWindow(5, time.Minute),
		core.TokenBucket(5, minute), core.TokenBucket(8, minute).Initial(5), core.TokenBucket(8, minute).Initial(5).ForgetAfter(2 * time.Minute),
		core.Funnel(5, minute), core.Funnel(5, core.Per(6, time.Minute)), core.Throttle(4, core.Per(1, 7*time.Second)),
	} {
		add(l.String(), spend, follow, l)
	}
	for _, l := range []core.Limit{core.Funnel(5, minute), core.TokenBucket(5, core.Every(6*time.Second)), core.TokenBucket(8, minute).Initial(5)} {
		add("turns in "+l.String(), turns, afterTurns, l)
		add("refunds of "+l.String(), []string{"allow 1", "allow 2", "allow 1", "advance 10ms", "refund 1 1", "advance 10ms", "allow 1", "refund 2 1"},
			[]string{"peek", "refund 9 1", "refund 3 1", "peek", "allow 2", "refund 4 1", "allow 5", "advance 20s", "peek", "allow 5"}, l)
	}
	add("a ring that has moved", []string{"allow 3", "advance 40s", "allow 2", "advance 21s", "allow 3", "advance 40s"},
		[]string{"peek", "allow 2", "allow 1", "refund 3 1", "allow 1", "advance 21s", "allow 4", "peek"}, core.MovingWindow(5, time.Minute).Named("moved"))
	add("a ring that grows", []string{"allow 3"}, []string{"allow 30", "advance 1s", "allow 60", "allow 8", "allow 7", "refund 1 20", "peek"}, core.MovingWindow(100, time.Minute))
	add("several limits", spend, follow, core.FixedWindow(20, time.Hour), core.SlidingWindow(5, time.Minute), core.Funnel(5, minute), core.MovingWindow(2, time.Minute).Shadow())
	add("all actions of a user", []string{"allow 2", "allow 2 like"}, []string{"peek", "allow 2 like", "allow 1 post", "peek like", "refund 9 1", "allow 1 like"},
		core.SlidingWindow(5, time.Minute).PerUser(), core.Funnel(5, minute), core.TokenBucket(9, minute).PerUser())
	add("a ban", []string{"allow 2", "allow 1", "allow 1"}, []string{"peek", "status", "allow 1", "advance 5s", "peek", "allow 1", "status", "allow 1", "status", "advance 1h", "allow 1", "ban 10m", "allow 1", "status"},
		core.FixedWindow(2, 3*time.Hour)).Ban = ban
	add("refusals before a ban", []string{"allow 2", "allow 1"}, []string{"status", "advance 30s", "allow 1", "status", "allow 1", "unban", "allow 1", "status"}, core.SlidingWindow(2, 3*time.Hour)).Ban = ban
	add("a ban by hand from all actions", []string{"allow 1", "ban 10m"}, []string{"status like", "allow 1 like", "advance 10m", "allow 1 like", "status"}, core.Funnel(5, minute)).Ban = &everywhere
	add("a user of other bytes", []string{"allow 2 {x}:%20"}, []string{"peek {x}:%20", "allow 2 {x}:%20"}, core.Funnel(3, minute)).User = "老钱 {0}:*~\x00"
	add("a user who looks like a digest", []string{"allow 2 ~x"}, []string{"allow 2 ~x"}, core.Funnel(3, minute)).User = "~digest"
	add("a long user and action", []string{"allow 2 " + strings.Repeat("a", 129)}, []string{"allow 2 " + strings.Repeat("a", 129)}, core.Funnel(3, minute)).User = strings.Repeat("u", 400)
	add("a prefix and a secret", []string{"allow 2"}, []string{"allow 2"}, core.Funnel(3, minute)).Options = &keyOptions{Prefix: "app:v1", Secret: "secret"}
	return all
}

// open is the recording's store on a server. Refusals are not repeated, so that all come of
// the state.
func (r *recording) open(w *world) *redisstore.Store {
	o := redisstore.Options{}
	if r.Options != nil {
		o.Prefix, o.Secret = r.Options.Prefix, r.Options.Secret
	}
	o.Timeout, o.NoRefusalCache = patient, true
	return redisstore.New(w.rdb, &o)
}

func (w *world) states(t *testing.T) map[string]redisState {
	t.Helper()
	states := map[string]redisState{}
	for _, k := range w.rdb.Keys(t.Context(), "*").Val() {
		s := redisState{Expires: w.expiry(k)}
		if w.rdb.Type(t.Context(), k).Val() == "zset" {
			s.Members = map[string]float64{}
			for _, z := range w.rdb.ZRangeWithScores(t.Context(), k, 0, -1).Val() {
				s.Members[fmt.Sprint(z.Member)] = z.Score
			}
		} else {
			s.Text = strconv.QuoteToASCII(w.rdb.Get(t.Context(), k).Val())
		}
		if s.Expires > w.now/1000 {
			states[k] = s
		}
	}
	return states
}

func (w *world) load(t *testing.T, states map[string]redisState) {
	t.Helper()
	ctx := t.Context()
	for k, s := range states {
		var err error
		if s.Members != nil {
			for m, score := range s.Members {
				err = w.rdb.ZAdd(ctx, k, redis.Z{Member: m, Score: score}).Err()
			}
		} else {
			var text string
			if text, err = strconv.Unquote(s.Text); err == nil {
				err = w.rdb.Set(ctx, k, text, 0).Err()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := w.rdb.PExpireAt(ctx, k, time.UnixMilli(s.Expires)).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// Every version reads the states that the versions before it have written: a process of
// this version goes on where one of theirs has stopped, with their receipts, decides as
// theirs did, and leaves the bytes that theirs left. So theirs can go on in turn, as during
// a rolling upgrade. What is held fixed: keys, values and expiries in Redis, the binary
// states of package machine, and every number of the decisions.
func TestRecordedStates(t *testing.T) {
	if *record != "" {
		recordStates(t, filepath.Join("testdata", "recorded", *record+".json"))
	}
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []recording
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		version := strings.TrimSuffix(filepath.Base(file), ".json")
		servers := map[string]func(testing.TB, int) *world{"miniredis": miniWorld, "redis": realWorld}
		for name, open := range servers {
			t.Run(version+"/"+name, func(t *testing.T) {
				w := open(t, 3)
				for i := range all {
					all[i].replayRedis(t, w)
				}
			})
		}
		t.Run(version+"/binary", func(t *testing.T) {
			for i := range all {
				r := &all[i]
				b := &blobs{states: maps.Clone(r.Binary), now: epoch.UnixMicro() + passed(t, r.Before)}
				p := play(t, r, b, func(d time.Duration) { b.now += d.Microseconds() })
				r.goOn(t, p)
				if !reflect.DeepEqual(b.states, r.LeftBytes) {
					t.Errorf("%s: it leaves\n%q, want\n%q", r.Name, b.states, r.LeftBytes)
				}
			}
		})
	}
}

// passed is how much time the steps let pass, in microseconds.
func passed(t *testing.T, steps []string) (us int64) {
	for _, s := range steps {
		if d, ok := strings.CutPrefix(s, "advance "); ok {
			d, err := time.ParseDuration(d)
			if err != nil {
				t.Fatal(err)
			}
			us += d.Microseconds()
		}
	}
	return us
}

func (r *recording) replayRedis(t *testing.T, w *world) {
	t.Helper()
	if err := w.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	// Each recording begins at the same instant.
	w.advance(time.Duration(epoch.UnixMicro()+passed(t, r.Before)-w.now) * time.Microsecond)
	w.load(t, r.State)
	r.goOn(t, play(t, r, r.open(w), w.advance))
	if got := w.states(t); !reflect.DeepEqual(got, r.LeftState) {
		t.Errorf("%s: it leaves\n%+v, want\n%+v", r.Name, got, r.LeftState)
	}
}

func (r *recording) goOn(t *testing.T, p *player) {
	t.Helper()
	p.receipts = slices.Clone(r.Receipts)
	for i, what := range r.After {
		if got := p.do(t, what); got != r.Decisions[i] {
			t.Errorf("%s: step %d:\n%s, want\n%s", r.Name, i, got, r.Decisions[i])
		}
	}
}

// recordStates records what this version writes and decides. A version that is released
// is not recorded again.
func recordStates(t *testing.T, file string) {
	all := recorded()
	w := realWorld(t, 3)
	for i := range all {
		r := &all[i]
		w.rdb.FlushAll(t.Context())
		w.advance(time.Duration(epoch.UnixMicro()-w.now) * time.Microsecond)
		b := &blobs{states: map[string][]byte{}, now: w.now}
		inRedis, inBlobs := play(t, r, r.open(w), w.advance), play(t, r, b, func(d time.Duration) { b.now += d.Microseconds() })
		both := func(what string) string {
			said, same := inRedis.do(t, what), inBlobs.do(t, what)
			if said != same {
				t.Errorf("%s: %s, but by the binary states %s", r.Name, said, same)
			}
			return said
		}
		for _, what := range r.Before {
			both(what)
		}
		r.State, r.Binary, r.Receipts = w.states(t), maps.Clone(b.states), slices.Clone(inRedis.receipts)
		for i := range r.Receipts {
			r.Receipts[i].Limits = nil // the limiter's
		}
		for _, what := range slices.Clone(r.After) {
			r.Decisions = append(r.Decisions, both(what))
		}
		r.LeftState, r.LeftBytes = w.states(t), b.states
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	if err != nil || t.Failed() {
		t.Fatalf("nothing good was recorded: %v", err)
	}
}
