package core_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func TestParseLimitReads(t *testing.T) {
	minute := core.Per(30, time.Minute)
	tests := []struct {
		text  string
		want  core.Limit
		print string // if not text
	}{
		{"SlidingWindow(5, 1m)", core.SlidingWindow(5, time.Minute), ""},
		{"SlidingWindow(5, 1m).CountRefused()", core.SlidingWindow(5, time.Minute).CountRefused(), ""},
		{`SlidingWindow(5, 1h30m).Named("burst")`, core.SlidingWindow(5, 90*time.Minute).Named("burst"), ""},
		{"MovingWindow(1, 3s)", core.MovingWindow(1, 3*time.Second), ""},
		{"FixedWindow(200, 24h)", core.FixedWindow(200, 24*time.Hour), ""},
		{`FixedWindow(100, 24h).Named("half").Shadow()`, core.FixedWindow(100, 24*time.Hour).Named("half").Shadow(), ""},
		{"ElasticWindow(3, 1h10s)", core.ElasticWindow(3, time.Hour+10*time.Second), ""},
		{"ElasticWindow(3, 1h0.5s)", core.ElasticWindow(3, time.Hour+500*time.Millisecond), ""},
		{"ElasticWindow(3, 1.5ms)", core.ElasticWindow(3, 1500*time.Microsecond), ""},
		{`FixedWindow(100, 24h).Named("all").PerUser()`, core.FixedWindow(100, 24*time.Hour).PerUser().Named("all"), ""},
		{"TokenBucket(100, Per(30, 1m))", core.TokenBucket(100, minute), ""},
		{"TokenBucket(100, Per(30, 1m)).Initial(10)", core.TokenBucket(100, minute).Initial(10), ""},
		{"TokenBucket(100, Per(30, 1m)).Initial(10).ForgetAfter(8760h)", core.TokenBucket(100, minute).Initial(10).ForgetAfter(8760 * time.Hour), ""},
		{"Funnel(15, Per(30, 1m))", core.Funnel(15, minute), ""},
		{"Funnel(15, Every(2s))", core.Funnel(15, core.Every(2*time.Second)), "Funnel(15, Per(1, 2s))"},
		{"Throttle(15, Per(30, 1m))", core.Throttle(15, minute), ""},
		{"InFlight(3)", core.InFlight(3), ""},
		{"InFlight(3).Lease(30s)", core.InFlight(3).Lease(30 * time.Second), ""},
		{"InFlight(3).Lease(60s)", core.InFlight(3).Lease(time.Minute), "InFlight(3).Lease(1m)"},
		{`InFlight(3).Named("x").Lease(1h).Shadow()`, core.InFlight(3).Lease(time.Hour).Named("x").Shadow(), `InFlight(3).Lease(1h).Named("x").Shadow()`},
		{"Throttle(0, Per(30, 1m))", core.Throttle(0, minute), ""},
		{`MovingWindow(5, 1m).Leased(50ms).Named("x").PerUser()`, core.MovingWindow(5, time.Minute).PerUser().Named("x").Leased(50 * time.Millisecond), ""},
		{"Funnel(100, Per(100, 1s)).Leased(1.5ms)", core.Funnel(100, core.Per(100, time.Second)).Leased(1500 * time.Microsecond), ""},
		{"Throttle(99, Per(100, 1s)).Leased(100ms)", core.Throttle(99, core.Per(100, time.Second)).Leased(100 * time.Millisecond), ""},
		{"MovingWindow(50000000, 1m)", core.MovingWindow(50_000_000, time.Minute), ""},
		{"SlidingWindow(5,1m0s)", core.SlidingWindow(5, time.Minute), "SlidingWindow(5, 1m)"},
		{"SlidingWindow(5, 60000ms)", core.SlidingWindow(5, time.Minute), "SlidingWindow(5, 1m)"},
		{"Funnel(1, Per(1, 1000µs))", core.Funnel(1, core.Every(time.Millisecond)), "Funnel(1, Per(1, 1ms))"},
		{" \tSlidingWindow ( 5 , 1m )\n\t. Named ( \"a.b-c_9\" ) \r\n", core.SlidingWindow(5, time.Minute).Named("a.b-c_9"), `SlidingWindow(5, 1m).Named("a.b-c_9")`},
		{`SlidingWindow(5, 1m).Named("x").CountRefused()`, core.SlidingWindow(5, time.Minute).CountRefused().Named("x"), `SlidingWindow(5, 1m).CountRefused().Named("x")`},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			got, err := core.ParseLimit(test.text)
			if err != nil || got != test.want {
				t.Fatalf("ParseLimit = %v, %v, want %v", got, err, test.want)
			}
			want := test.print
			if want == "" {
				want = test.text
			}
			if got.String() != want {
				t.Errorf("String = %s, want %s", got, want)
			}
		})
	}
}

func TestParseLimitSaysWhatIsWrongAndWhere(t *testing.T) {
	tests := []struct {
		text string
		want []string // in the error
	}{
		{"", []string{"position 1: the end of the text is not a limit", "SlidingWindow(5, 1m), MovingWindow(5, 1m)"}},
		{"   ", []string{"position 4", "not a limit"}},
		{"slidingwindow(5, 1m)", []string{`position 1: "slidingwindow" is not a limit`, "SlidingWindow(5, 1m)"}},
		{"core.SlidingWindow(5, 1m)", []string{`"core.SlidingWindow" is not a limit`}},
		{"Limit{}", []string{`"Limit{}" is not a limit`}},
		{"5-M", []string{`"5-M" is not a limit`}},
		{"5/m", []string{`"5/m" is not a limit; write one such as SlidingWindow(5, 1m), MovingWindow(5, 1m), FixedWindow(5, 1m), ElasticWindow(5, 1m), CalendarWindow(5, month, UTC), TokenBucket(5, Per(30, 1m)), Funnel(5, Per(30, 1m)), Throttle(5, Per(30, 1m)), InFlight(5), Nothing()`}},
		{"SlidingWindow", []string{`position 14: "(" is missing before the end of the text; write it as in SlidingWindow(5, 1m)`}},
		{"SlidingWindow(5 1m)", []string{`position 17: "," is missing before "1m"`}},
		{"SlidingWindow(5, 1m", []string{`position 20: ")" is missing before the end of the text`}},
		{"SlidingWindow(5, 1m))", []string{`position 21: ")" stands after the limit; only a modifier may, such as .PerUser()`}},
		{"SlidingWindow(5, 1m) and more", []string{`position 22: "and" stands after the limit`}},
		{"SlidingWindow(five, 1m)", []string{`position 15: "five" is not a whole number`}},
		{"SlidingWindow(5.0, 1m)", []string{`"5.0" is not a whole number`}},
		{"SlidingWindow(1_000, 1m)", []string{`"1_000" is not a whole number`}},
		{"SlidingWindow(99999999999999999999, 1m)", []string{"99999999999999999999", "not a whole number of at most 1000000000"}},
		{"SlidingWindow(, 1m)", []string{`position 15: "," is not a whole number`}},
		{"SlidingWindow(5, 60)", []string{`position 18: "60" is not a duration; write one such as 500ms, 1m`}},
		{"SlidingWindow(5, 1day)", []string{`"1day" is not a duration; write one such as 500ms, 1m or 24h`}},
		{"SlidingWindow(5, Per(1, 1m))", []string{`"Per" is not a duration`}},
		{"Funnel(5, 1m)", []string{`position 11: "1m" is not a rate; write Per(30, 1m) or Every(2s)`}},
		{"Funnel(5, per(1, 1m))", []string{`"per" is not a rate`}},
		{"Funnel(5, Per(1m))", []string{`"1m" is not a whole number`}},
		{"Funnel(5, Per(1))", []string{`position 16: "," is missing before ")"; write it as in Funnel(5, Per(30, 1m))`}},
		{"SlidingWindow(5, 1m).Burst(3)", []string{`position 22: "Burst" is not a modifier; write one such as CountRefused(), Initial(3)`}},
		{"SlidingWindow(5, 1m).", []string{`position 22: the end of the text is not a modifier`}},
		{"SlidingWindow(5, 1m).Named(burst)", []string{`position 28: "\"" is missing before "burst"; write it as in Named("burst")`}},
		{`SlidingWindow(5, 1m).Named("burst)`, []string{`"\"" is missing before the end of the text`}},
		{`SlidingWindow(5, 1m).Named("a").Named("b")`, []string{"position 33: Named is given twice"}},
		{"SlidingWindow(5, 1m)\x00", []string{`"\x00" stands after the limit`}},
		{"SlidingWindow(5, 1m).\xff", []string{`"\xff" is not a modifier`}},
		{"SlidingWindow(0, 1m)", []string{"max 0 is not within 1 to 10000"}},
		{"SlidingWindow(-1, 1m)", []string{"max -1"}},
		{"SlidingWindow(20000, 1m)", []string{"max 20000", "MovingWindow"}},
		{"FixedWindow(5, 1us)", []string{"period 1µs"}},
		{"Funnel(5, Every(0))", []string{"the rate's period 0s"}},
		{"Funnel(5, Every(1m)).Initial(1)", []string{"Initial applies to TokenBucket only"}},
		{`SlidingWindow(5, 1m).Named("a b")`, []string{"a name is 1 to 64 letters"}},
		{`SlidingWindow(5, 1m).Named("")`, []string{"a name is 1 to 64 letters"}},
		{strings.Repeat("(", 1<<20), []string{`"(" is not a limit`}},
		{strings.Repeat("a", 1<<20), []string{"is not a limit"}},
		{`SlidingWindow(5, 1m).Named("` + strings.Repeat("a", 1<<20) + `")`, []string{"a name is 1 to 64 letters"}},
		{`SlidingWindow(0, 1m).Named("` + strings.Repeat("\xff", 1<<20) + `")`, []string{"max 0 is not within"}},
		{"CalendarWindow(5, month.from(1), UTC)", []string{`position 30: "1" is not a day from 2 to 31`}},
		{"CalendarWindow(5, month.from(07), UTC)", []string{`"07" is not a day from 2 to 31`}},
		{"CalendarWindow(5, month.from(+7), UTC)", []string{`"+7" is not a day from 2 to 31`}},
		{"CalendarWindow(5, month.from(32), UTC)", []string{`"32" is not a day from 2 to 31`}},
		{"CalendarWindow(5, month.from, UTC)", []string{`position 29: "(" is missing before ","`}},
		{"CalendarWindow(5, month.from(17, UTC)", []string{`position 32: ")" is missing before ","`}},
		{"CalendarWindow(5, day.from(17), UTC)", []string{`position 19: "day.from" is not one of minute, hour, day, week, month, year or month.from(17)`}},
		{"CalendarWindow(5, .from(17), UTC)", []string{`".from" is not one of minute`}},
		{"CalendarWindow(5, month, " + strings.Repeat("A", 1<<20) + ")", []string{"no name in the time zone database"}},
		{"CalendarWindow(" + strings.Repeat("9", 1<<20) + ", month, UTC)", []string{"not a whole number"}},
		{"CalendarWindow(5, " + strings.Repeat("m", 1<<20) + ", UTC)", []string{"is not one of minute"}},
		{"Funnel(5, Every(" + strings.Repeat("1", 1<<20) + "s))", []string{"is not a duration"}},
	}
	for _, test := range tests {
		t.Run(test.text[:min(len(test.text), 50)], func(t *testing.T) {
			l, err := core.ParseLimit(test.text)
			if !errors.Is(err, core.ErrConfig) || l != (core.Limit{}) {
				t.Fatalf("ParseLimit = %v, %v, want the zero Limit and an ErrConfig", l, err)
			}
			for _, want := range append(test.want, "core: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not contain %q", err, want)
				}
			}
			if len(err.Error()) > 450 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// anyLimit draws limits of all kinds and modifiers, legal ones and others.
func anyLimit(t *rapid.T) core.Limit {
	max := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(-1, 2_000_000_000), rapid.Just(math.MaxInt)).Draw(t, "max")
	span := func(name string) time.Duration {
		unit := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 1}).Draw(t, name+" unit")
		return unit*time.Duration(rapid.Int64Range(-1, 10_000).Draw(t, name)) + time.Duration(rapid.Int64Range(0, 1).Draw(t, name+" rest"))*time.Millisecond
	}
	rate := func() core.Rate { return core.Per(rapid.IntRange(0, 1000).Draw(t, "n"), span("d")) }
	var l core.Limit
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		l = core.SlidingWindow(max, span("period"))
	case 1:
		l = core.MovingWindow(max, span("period"))
	case 2:
		l = core.FixedWindow(max, span("period"))
	case 3:
		l = core.ElasticWindow(max, span("period"))
	case 4:
		l = core.TokenBucket(max, rate())
	case 5:
		l = core.Funnel(max, rate())
	default:
		l = core.Throttle(max, rate())
	}
	for _, m := range rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 3, rapid.ID[int]).Draw(t, "modifiers") {
		switch m {
		case 0:
			l = l.CountRefused()
		case 1:
			l = l.Initial(rapid.IntRange(0, 20).Draw(t, "initial"))
		case 2:
			l = l.ForgetAfter(span("forget"))
		case 3:
			l = l.Named(rapid.StringMatching(`[A-Za-z0-9._ "\\-]{0,10}`).Draw(t, "name"))
		case 4:
			l = l.Shadow()
		case 5:
			l = l.PerUser()
		}
	}
	return l
}

// Every limit that New takes is read back from its text as the same value, and no other is.
func TestParseLimitReadsWhatStringPrints(t *testing.T) {
	store := memorystore.New(nil)
	enforced := core.FixedWindow(1, 364*24*time.Hour).Named("other")
	legal := 0
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t)
		_, invalid := core.New(store, l, enforced)
		parsed, err := core.ParseLimit(l.String())
		text, marshal := l.MarshalText()
		if invalid != nil {
			if !errors.Is(err, core.ErrConfig) || !errors.Is(marshal, core.ErrConfig) {
				t.Fatalf("%s: New says %v, ParseLimit %v, MarshalText %v", l, invalid, err, marshal)
			}
			return
		}
		legal++
		if err != nil || parsed != l || marshal != nil || string(text) != l.String() {
			t.Fatalf("%s: ParseLimit = %s, %v; MarshalText = %s, %v", l, parsed, err, text, marshal)
		}
	})
	if legal == 0 && !testing.Short() { // with -short the 20 limits that are drawn may all be illegal
		t.Error("no legal limit was drawn")
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{
		"SlidingWindow(5, 1m)", `MovingWindow(1, 3s).Named("x").Shadow()`, "TokenBucket(9, Per(1, 1h)).Initial(3).ForgetAfter(100h)",
		"Funnel(15, Every(2s))", "Throttle(15, Per(30, 1m))", "SlidingWindow(5, 1m).CountRefused()", "FixedWindow(-5, 1µs)", `x("`, "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := core.ParseLimit(s)
		if err != nil {
			if l != (core.Limit{}) || !errors.Is(err, core.ErrConfig) {
				t.Errorf("%q: %v, %v", s, l, err)
			}
			return
		}
		if again, err := core.ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("%q is %s, which is read as %v, %v", s, l, again, err)
		}
	})
}

// A Limit is read and written by whatever knows encoding.TextUnmarshaler.
func TestLimitIsText(t *testing.T) {
	type config struct {
		Replies core.Limit            `json:"replies"`
		Plans   map[string]core.Limit `json:"plans"`
		Likes   core.Limit            `json:"likes,omitzero"`
	}
	const text = `{"replies":"SlidingWindow(5, 1m).Named(\"burst\")","plans":{"free":"FixedWindow(200, 24h)"}}`
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if want := core.SlidingWindow(5, time.Minute).Named("burst"); c.Replies != want {
		t.Errorf("replies are %s, want %s", c.Replies, want)
	}
	if got, err := json.Marshal(c); err != nil || string(got) != text {
		t.Errorf("Marshal = %s, %v, want %s", got, err, text)
	}
	if err := json.Unmarshal([]byte(`{"replies":"SlidingWindow(5)"}`), &c); !errors.Is(err, core.ErrConfig) || c.Replies.Name() != "burst" {
		t.Errorf("a bad limit gives %v and leaves %s, want an ErrConfig and no change", err, c.Replies)
	}
	if _, err := json.Marshal(config{}); !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), "core: a zero Limit") {
		t.Errorf("a zero Limit is marshalled with the error %v, want an ErrConfig that says so", err)
	}

	var l core.Limit
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.TextVar(&l, "replies", core.SlidingWindow(5, time.Minute), "")
	if got := flags.Lookup("replies").DefValue; got != "SlidingWindow(5, 1m)" {
		t.Errorf("the flag's default is %q", got)
	}
	if err := flags.Parse([]string{"-replies", "Funnel(15, Per(30, 1m))"}); err != nil || l != core.Funnel(15, core.Per(30, time.Minute)) {
		t.Errorf("the flag is %s, %v", l, err)
	}
	if err := flags.Parse([]string{"-replies", "Funnel(15)"}); err == nil || !strings.Contains(err.Error(), "position 10") {
		t.Errorf("a bad flag gives the error %v", err)
	}
}
