package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const second = int64(1e6)

var rules = map[string]Rule{
	"sliding":  NewWindow(KindSlidingWindow, 3, 10*second),
	"refused":  NewWindow(KindSlidingRefused, 3, 10*second),
	"moving":   NewWindow(KindMovingWindow, 3, 10*second),
	"fixed":    NewWindow(KindFixedWindow, 3, 10*second),
	"elastic":  NewWindow(KindElasticWindow, 3, 10*second),
	"bucket":   NewMeter(KindTokenBucket, 3, 7, second),
	"initial":  NewMeter(KindTokenBucket, 3, 7, second).WithInitial(2, 30*second),
	"calendar": NewCalendarWindow(3, NewCalendar("minute", 1, time.UTC)),
	"funnel":   NewMeter(KindFunnel, 3, 1, second),
	"inflight": NewWindow(KindInFlight, 3, 10*second),
	"ban":      NewBan(&BanRule{Refusals: 2, Within: second, ForgetAfter: 5 * second, Bans: []int64{second, 2 * second}}),
}

// decide asks a rule as a store does, and keeps the state.
func decide(r *Rule, s *State, now, cost int64, a Ask) Reading {
	return decideAt(r, s, now, 0, cost, a)
}

// decideAt is decide on a store whose instants count from an epoch.
func decideAt(r *Rule, s *State, now, epoch, cost int64, a Ask) Reading {
	e := Entry{State: *s, Epoch: epoch}
	r.Check(&e, now, cost, &a)
	if e.Fits {
		r.Charge(&e, now, cost, &a)
	} else {
		r.Refuse(&e, now, cost, true, false)
	}
	if e.Dirty {
		*s = e.State
	}
	return e.Reading
}

// peek asks a rule without a charge.
func peek(r *Rule, s State, now, cost int64) Reading {
	e, a := Entry{State: s}, Ask{Mode: ModePeek}
	r.Check(&e, now, cost, &a)
	r.Read(&e, now, cost)
	return e.Reading
}

// After three actions a fourth one is refused, and Wait says exactly when it would pass.
func TestAWindowAdmitsMaxInAPeriod(t *testing.T) {
	for name, wait := range map[string]int64{
		"sliding":  10*second - 3,
		"refused":  10*second - 2, // the refused action has taken the place of the first one
		"moving":   10*second - 3,
		"fixed":    10*second - 3,
		"elastic":  10 * second, // the refused action has moved the end
		"calendar": 20*second - 3,
		"inflight": 10*second - 3,
	} {
		r, s, now := rules[name], State{}, 100*second
		for i := range 3 {
			if !decide(&r, &s, now, 1, Ask{}).Fits {
				t.Errorf("%s: action %d is refused", name, i+1)
			}
			now++
		}
		if decide(&r, &s, now, 1, Ask{}).Fits {
			t.Errorf("%s: a fourth action is admitted", name)
		}
		if v := peek(&r, s, now, 1); v.Wait != wait {
			t.Errorf("%s: the wait is %d, want %d", name, v.Wait, wait)
		}
		if peek(&r, s, now+wait-1, 1).Fits {
			t.Errorf("%s: it fits a microsecond too early", name)
		}
		if !peek(&r, s, now+wait, 1).Fits {
			t.Errorf("%s: it does not fit at the end of the wait", name)
		}
	}
}

// A state that has expired is as good as none, whatever it has besides.
func TestAStateThatHasExpiredIsEmpty(t *testing.T) {
	for name, r := range rules {
		var old, fresh State
		for i := range int64(3) {
			decide(&r, &old, 100*second+i, 1, Ask{})
		}
		now := old.Expires
		if got, want := decide(&r, &old, now, 1, Ask{}), decide(&r, &fresh, now, 1, Ask{}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// A ban's level is how many bans in a row there were, however many lengths a policy has.
func TestTheLevelOfABanIsNotCapped(t *testing.T) {
	long, short := rules["ban"], NewBan(&BanRule{Refusals: 1, Within: second, ForgetAfter: 5 * second, Bans: []int64{second}})
	var s State
	now := 100 * second
	for want := 1; want < 6; want++ {
		for i := range 2 {
			decideBan(&long, &s, now+int64(i))
		}
		b := s.Data.(*banRecord)
		if b.Level != want {
			t.Fatalf("level %d after %d bans", b.Level, want)
		}
		now = b.Until
	}
	decideBan(&short, &s, now)
	if b := s.Data.(*banRecord); b.Level != 6 {
		t.Errorf("a shorter policy made the level %d", b.Level)
	}
}

// decideBan has another limit refuse.
func decideBan(r *Rule, s *State, now int64) {
	e, a := Entry{State: *s}, Ask{}
	r.Check(&e, now, 1, &a)
	r.Refuse(&e, now, 1, e.Fits, false)
	*s = e.State
}

// verb gives back what a rule has charged.
func verb(r *Rule) Verb {
	if r.TakesSlots() {
		return VerbRelease
	}
	return VerbRefund
}

func randomState(t *rapid.T) (r Rule, s State, now int64) {
	r = rules[rapid.SampledFrom(slices.Sorted(maps.Keys(rules))).Draw(t, "kind")]
	now = rapid.SampledFrom([]int64{1, 1000 * second}).Draw(t, "start")
	for range rapid.IntRange(0, 40).Draw(t, "steps") {
		now = max(1, now+rapid.Int64Range(-second/2, 2*second).Draw(t, "move"))
		a, cost := Ask{}, rapid.Int64Range(1, 3).Draw(t, "cost")
		switch {
		case r.Kind == KindBan && rapid.Bool().Draw(t, "by hand"):
			a.Ban = second
			decide(&r, &s, now, cost, a)
		case r.Kind == KindBan:
			decideBan(&r, &s, now)
		default:
			if r.Kind.Form() == FormMeter && rapid.Bool().Draw(t, "turn") {
				a.Ahead = 5 * second
			}
			if rapid.IntRange(0, 3).Draw(t, "owe") == 3 {
				a.Mode, a.Ahead = ModeOwe, 0
			}
			if v := decide(&r, &s, now, cost, a); v.Fits && rapid.Bool().Draw(t, "refund") {
				e := Entry{State: s}
				if r.Amend(&e, Taken{At: now, Cost: cost, Reading: v}, now, Amendment{Verb: verb(&r), Units: cost}); e.Dirty {
					s = e.State
				}
			}
		}
	}
	return r, s, now
}

// A state never holds more than two quotas, however often more is owed.
func TestAStateHoldsAtMostTwoQuotas(t *testing.T) {
	for name, r := range rules {
		if r.Kind == KindBan || r.TakesSlots() {
			continue
		}
		var s State
		var v Reading
		for range 3 {
			v = decide(&r, &s, 100*second, 4, Ask{Mode: ModeOwe})
			if !v.Fits {
				t.Errorf("%s: refused", name)
			}
			if v.Count > 6 || v.Rest.exceeds(r.Time(6)) || r.Remaining(&v) != 0 {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if r.Kind.Form() == FormMeter && v.Rest != r.Time(6) || r.Kind.Form() != FormMeter && v.Count != 6 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A state that was serialised decides as the state itself does.
func TestBinaryStatesDecideAsTheStatesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, s, now := randomState(t)
		b := r.Marshal(s)
		back, err := r.Unmarshal(b)
		if err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if again := r.Marshal(back); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		if s.Expires != back.Expires || s.N != back.N {
			t.Fatalf("%+v, and read %+v", s, back)
		}
		for range 20 {
			now += rapid.Int64Range(0, second).Draw(t, "step")
			if was, is := decide(&r, &s, now, 1, Ask{}), decide(&r, &back, now, 1, Ask{}); was != is {
				t.Fatalf("%+v, and the copy %+v", was, is)
			}
		}
	})
}

// A clock that steps back moves the older instants of a state back too, here below 0.
func TestABinaryStateMayBeginBelowZero(t *testing.T) {
	for _, name := range []string{"sliding", "moving", "ban"} {
		r, s := rules[name], State{}
		if name == "ban" {
			r = NewBan(&BanRule{Refusals: 9, Within: second, ForgetAfter: second, Bans: []int64{second}})
		}
		for _, now := range []int64{1000, 5000, 2000} {
			if name == "ban" {
				decideBan(&r, &s, now)
			} else {
				decide(&r, &s, now, 1, Ask{})
			}
		}
		b := r.Marshal(s)
		if back, err := r.Unmarshal(b); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if again := r.Marshal(back); !bytes.Equal(again, b) {
			t.Errorf("%s: %x became %x", name, b, again)
		}
	}
}

func TestBytesThatAreNotAState(t *testing.T) {
	fixed, funnel, moving := rules["fixed"], rules["funnel"], rules["moving"]
	good := fixed.Marshal(State{Expires: 1e15, N: 5})
	for _, tt := range []struct {
		name string
		rule *Rule
		b    []byte
	}{
		{"another version", &fixed, append([]byte{9}, good[1:]...)},
		{"another machine", &fixed, append([]byte{1, 9}, good[2:]...)},
		{"another rule's", &funnel, good},
		{"cut short", &fixed, good[:len(good)-1]},
		{"something behind", &fixed, append(bytes.Clone(good), 0)},
		{"one byte", &fixed, []byte{1}},
		{"a negative count", &fixed, []byte{1, byte(FormCounter), 1, 2}},
		{"an empty counter", &fixed, []byte{1, byte(FormCounter), 0, 0}},
		{"an empty trail", &moving, []byte{1, byte(FormTrail)}},
		{"an instant too long ago", &moving, binary.AppendVarint([]byte{1, byte(FormTrail)}, math.MinInt64)},
		{"an instant too far off", &moving, binary.AppendVarint([]byte{1, byte(FormTrail)}, math.MaxInt64)},
		{"a huge part", &funnel, []byte{1, byte(FormMeter), 2, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0}},
		{"a part that is a whole", &funnel, []byte{1, byte(FormMeter), 2, 1, 0, 0}},
		{"a refund's part that is a whole", &funnel, []byte{1, byte(FormMeter), 2, 0, 0, 0, 2, 2, 2, 1}},
		{"an empty refund", &funnel, []byte{1, byte(FormMeter), 2, 0, 0, 0, 2}},
	} {
		if s, err := tt.rule.Unmarshal(tt.b); !errors.Is(err, ErrBinary) || s != (State{}) {
			t.Errorf("%s: %+v, %v", tt.name, s, err)
		}
	}
}

// A renewal changes the order of the slots, and a clock that steps back brings their instant again.
func TestNewSlotsHaveUnusedIDs(t *testing.T) {
	taken := slotList{{ID: 3, At: 1}, {ID: 2, At: 2}, {ID: 1, At: 3}}
	for _, test := range []struct{ from, cost, want int64 }{{1, 1, 4}, {1, 2, 4}, {3, 1, 4}, {4, 1, 4}, {0, 1, 0}, {0, 2, 4}} {
		if got := taken.unused(test.from, test.cost); got != test.want {
			t.Errorf("%d IDs from %d begin at %d, want %d", test.cost, test.from, got, test.want)
		}
	}
}

// A foreign state may owe any time.
func TestUsedHasNoOverflow(t *testing.T) {
	for _, r := range []Rule{NewMeter(KindFunnel, 1000, 999_999_937, 1000), NewMeter(KindFunnel, 1000, 1_000_000_000, 1000), NewMeter(KindFunnel, 1, 1, 100*365*24*3600*second)} {
		for _, owed := range []int64{1, 1 << 43, 1 << 52, 1 << 60} {
			n, period := r.Rate()
			most := float64(owed)*float64(n)/float64(period) + 1
			if used := r.Used(&Reading{Rest: Span{Whole: owed}}); used < 1 || float64(used) > most || float64(used) < min(most-2, 1<<40) {
				t.Errorf("%d per %d us, %d us: %d, want %g", n, period, owed, used, most)
			}
		}
	}
}

// Whatever the bytes are, they are an error or a state that has the same bytes or fewer.
func FuzzUnmarshal(f *testing.F) {
	for _, r := range rules {
		var s State
		for i := range int64(5) {
			decide(&r, &s, 1e15+i, 1, Ask{Ban: 1e6})
		}
		f.Add(r.Marshal(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, r := range rules {
			s, err := r.Unmarshal(b)
			if err != nil {
				continue
			}
			out := r.Marshal(s)
			if len(out) > len(b) {
				t.Fatalf("%x became %x", b, out)
			}
			again, err := r.Unmarshal(out)
			if err != nil {
				t.Fatal(err)
			}
			if twice := r.Marshal(again); !bytes.Equal(twice, out) {
				t.Fatalf("%x became %x", out, twice)
			}
		}
	})
}

// Every entry of the table is whole: a kind that is only half there is not decided as another one.
func TestEveryKindIsComplete(t *testing.T) {
	words := map[string]bool{}
	for k := range Kinds() {
		e := kinds[k]
		if e.word == "" || words[e.word] || e.constructor == "" || e.most < 1 || forms[e.form].machine == nil {
			t.Errorf("kind %d: %+v", k, e)
		}
		words[e.word] = true
		if _, ok := rules[e.word]; !ok {
			t.Errorf("%s: the tests of this package have no rule of it", k)
		}
	}
}

func TestUnknownKindPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("NewWindow does not panic")
		}
	}()
	NewWindow(Kind(len(kinds)), 3, 10*second)
}
