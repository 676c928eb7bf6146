package machine

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
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
	"calendar": NewCalendarWindow(3, NewCalendar("minute", time.UTC)),
	"funnel":   NewMeter(KindFunnel, 3, 1, second),
	"inflight": NewWindow(KindInFlight, 3, 10*second),
	"ban":      NewBan(&BanRule{Refusals: 2, Within: second, ForgetAfter: 5 * second, Bans: []int64{second, 2 * second}}),
}

// decide asks a rule as a store does.
func decide(r *Rule, s *State, now int64, a Ask) bool {
	r.Check(s, now, &a)
	if s.Fits {
		r.Charge(s, now, &a)
	} else {
		r.Refuse(s, now, &a, true)
	}
	return s.Fits
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
			if !decide(&r, &s, now, Ask{Cost: 1}) {
				t.Errorf("%s: action %d is refused", name, i+1)
			}
			now++
		}
		if decide(&r, &s, now, Ask{Cost: 1}) {
			t.Errorf("%s: a fourth action is admitted", name)
		}
		a := Ask{Cost: 1}
		r.Check(&s, now, &a)
		if v := r.Read(&s, now, &a); v.Wait != wait {
			t.Errorf("%s: the wait is %d, want %d", name, v.Wait, wait)
		}
		if r.Check(&s, now+wait-1, &a); s.Fits {
			t.Errorf("%s: it fits a microsecond too early", name)
		}
		if r.Check(&s, now+wait, &a); !s.Fits {
			t.Errorf("%s: it does not fit at the end of the wait", name)
		}
	}
}

// A store may clear Exists alone: what else the state has does not count.
func TestAStateThatDoesNotExistIsEmpty(t *testing.T) {
	for name, r := range rules {
		var old, fresh State
		for i := range int64(3) {
			decide(&r, &old, 100*second+i, Ask{Cost: 1})
		}
		old.Exists = false
		a, now := Ask{Cost: 1}, 101*second
		decide(&r, &old, now, a)
		decide(&r, &fresh, now, a)
		if got, want := *r.Read(&old, now, &a), *r.Read(&fresh, now, &a); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// A debt keeps its fraction of a microsecond, so the rate does not drift.
func TestAMeterDrainsAtItsRateForever(t *testing.T) {
	r, s := NewMeter(KindFunnel, 2, 7, second), State{}
	now := 100 * second
	for range 7_000 { // two at once, and then each at the first microsecond at which it fits
		for !decide(&r, &s, now, Ask{Cost: 1}) {
			now += r.Delay(Span{s.Meter.TAT - now, int64(s.Meter.Part)}, 1)
		}
	}
	if took, want := now-100*second, int64(999_714_286); took != want { // 6,998 sevenths of a second
		t.Errorf("the last unit passed after %d us, want %d", took, want)
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
		if s.bans().Level != want {
			t.Fatalf("level %d after %d bans", s.bans().Level, want)
		}
		now = s.bans().Until
	}
	decideBan(&short, &s, now)
	if s.bans().Level != 6 {
		t.Errorf("a shorter policy made the level %d", s.bans().Level)
	}
}

// decideBan has another limit refuse.
func decideBan(r *Rule, s *State, now int64) {
	a := Ask{Cost: 1}
	r.Check(s, now, &a)
	r.Refuse(s, now, &a, s.Fits)
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
		a := Ask{Cost: rapid.Int64Range(1, 3).Draw(t, "cost")}
		switch {
		case r.Kind == KindBan && rapid.Bool().Draw(t, "by hand"):
			a.Ban = second
			decide(&r, &s, now, a)
		case r.Kind == KindBan:
			decideBan(&r, &s, now)
		default:
			if r.Kind.Form() == FormMeter && rapid.Bool().Draw(t, "turn") {
				a.Ahead = 5 * second
			}
			if rapid.IntRange(0, 3).Draw(t, "owe") == 3 {
				a.Mode, a.Ahead = ModeOwe, 0
			}
			if decide(&r, &s, now, a) {
				if rapid.Bool().Draw(t, "refund") {
					r.Amend(&s, Taken{At: now, Cost: a.Cost, Reading: *r.Read(&s, now, &a)}, now, Amendment{Verb: verb(&r), Units: a.Cost})
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
		for range 3 {
			a := Ask{Cost: 4, Mode: ModeOwe}
			if !decide(&r, &s, 100*second, a) {
				t.Errorf("%s: refused", name)
			}
			if v := r.Read(&s, 100*second, &a); v.Count > 6 || v.Rest.exceeds(r.Time(6)) || r.Remaining(v) != 0 {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if v := s.Reading; r.Kind.Form() == FormMeter && v.Rest != r.Time(6) || r.Kind.Form() != FormMeter && v.Count != 6 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A state that was serialised decides as the state itself does.
func TestBinaryStatesDecideAsTheStatesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, s, now := randomState(t)
		b, err := s.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back State
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if again, _ := back.MarshalBinary(); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		if s.Exists != back.Exists {
			t.Fatalf("exists: %v, and read %v", s.Exists, back.Exists)
		}
		decideAlike(t, &r, &s, &back, now)
	})
}

// A state that was packed decides as the state itself does.
func TestPackedStatesDecideAsTheStatesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, s, now := randomState(t)
		var back State
		if value, ok := r.Pack(&s); !ok {
			return
		} else if s.Exists {
			expires := r.Expires(&s)
			back.Exists = expires > now
			r.Unpack(&back, expires, value)
		}
		decideAlike(t, &r, &s, &back, now)
	})
}

// decideAlike has two copies of a state decide from now on.
func decideAlike(t *rapid.T, r *Rule, s, back *State, now int64) {
	for range 20 {
		now += rapid.Int64Range(0, second).Draw(t, "step")
		a := Ask{Cost: 1}
		if decide(r, s, now, a) != decide(r, back, now, a) {
			t.Fatal("they decide apart")
		}
		if was, is := *r.Read(s, now, &a), *r.Read(back, now, &a); was != is {
			t.Fatalf("%+v, and the copy %+v", was, is)
		}
	}
}

// A clock that steps back moves the older instants of a state back too, here below 0.
func TestABinaryStateMayBeginBelowZero(t *testing.T) {
	for _, name := range []string{"sliding", "moving", "ban"} {
		r, s := rules[name], State{}
		if name == "ban" {
			r = NewBan(&BanRule{Refusals: 9, Within: second, ForgetAfter: second, Bans: []int64{second}})
		}
		for _, now := range []int64{1000, 5000, 2000} {
			a := Ask{Cost: 1}
			r.Check(&s, now, &a)
			if name == "ban" {
				r.Refuse(&s, now, &a, true)
			} else {
				r.Charge(&s, now, &a)
			}
		}
		b, _ := s.MarshalBinary()
		var back State
		if err := back.UnmarshalBinary(b); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if again, _ := back.MarshalBinary(); !bytes.Equal(again, b) {
			t.Errorf("%s: %x became %x", name, b, again)
		}
	}
}

func TestBytesThatAreNotAState(t *testing.T) {
	good, _ := (&State{Exists: true, Counter: Counter{Count: 5, End: 1e15}}).MarshalBinary()
	for name, b := range map[string][]byte{
		"another version":  append([]byte{9}, good[1:]...),
		"another machine":  append([]byte{1, 9}, good[2:]...),
		"cut short":        good[:len(good)-1],
		"something behind": append(bytes.Clone(good), 0),
		"one byte":         {1},
		"a negative count": {1, byte(FormCounter), 1, 2},
		"an empty counter": {1, byte(FormCounter), 0, 0},
		"an empty trail":   {1, byte(FormTrail)},
		"a huge part":      {1, byte(FormMeter), 2, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0},
		"an empty refund":  {1, byte(FormMeter), 2, 0, 0, 0, 2},
	} {
		s := State{Exists: true}
		if err := s.UnmarshalBinary(b); !errors.Is(err, ErrBinary) {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(s, State{}) {
			t.Errorf("%s: left %+v", name, s)
		}
	}
}

// Whatever the bytes are, they are an error or a state that has the same bytes or fewer.
func FuzzUnmarshalBinary(f *testing.F) {
	for _, r := range rules {
		var s State
		for i := range int64(5) {
			decide(&r, &s, 1e15+i, Ask{Cost: 1, Ban: 1e6})
		}
		b, _ := s.MarshalBinary()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		if err := s.UnmarshalBinary(b); err != nil {
			return
		}
		out, err := s.MarshalBinary()
		if err != nil || len(out) > len(b) {
			t.Fatalf("%x became %x, %v", b, out, err)
		}
		var again State
		if err := again.UnmarshalBinary(out); err != nil {
			t.Fatal(err)
		}
		if twice, _ := again.MarshalBinary(); !bytes.Equal(twice, out) {
			t.Fatalf("%x became %x", out, twice)
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
