package core_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// shown is a store that shows what it is asked.
type shown struct {
	core.Store
	charge   core.Charge
	accepted []core.Limit
}

func (s *shown) Accept(limits []core.Limit) error {
	s.accepted = limits
	return nil
}

func (s *shown) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.charge = c
	return s.Store.Take(ctx, c)
}

// random is any limit that New takes and that has a share of an n-th.
func random(r *rand.Rand, n int) core.Limit {
	log := func(most float64) int { return int(math.Exp(r.Float64() * math.Log(most))) }
	for {
		count, period := log(1e4), time.Duration(1000+log(3e13))*time.Microsecond
		rate := core.Per(log(1e9), period)
		l := []core.Limit{
			core.SlidingWindow(count, period), core.SlidingWindow(count, period).CountRefused(), core.MovingWindow(count, period),
			core.FixedWindow(log(1e9), period), core.ElasticWindow(log(1e9), period),
			core.TokenBucket(log(1e9), rate), core.TokenBucket(count, rate).Initial(1 + r.IntN(count)), core.Funnel(log(1e9), rate), core.Throttle(log(1e9)-1, rate),
		}[r.IntN(9)]
		if l.Rule().ForgetAfter > 0 && r.IntN(2) == 0 {
			l = l.ForgetAfter(l.Period())
		}
		if r.IntN(2) == 0 {
			l = l.Named("name")
		}
		if _, err := core.New(core.Divide(memorystore.New(nil), n), l); err == nil {
			return l
		}
	}
}

// "A max, a capacity and an Initial are divided and rounded up"
// A share is an n-th of the quota and of Initial, rounded up, at an n-th of the rate,
// exactly. Nothing else changes, and what a store relies on holds.
func TestShares(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	up := func(a, n int) int { return (a + n - 1) / n }
	span := func(s machine.Span, parts int64) *big.Rat {
		return new(big.Rat).Add(big.NewRat(s.Whole, 1), big.NewRat(s.Part, parts))
	}
	for range 20_000 {
		n := 1 + r.IntN([]int{1, 4, 100, 100_000}[r.IntN(4)])
		l := random(r, n)
		store := &shown{Store: memorystore.New(&memorystore.Options{MaxKeys: 1})} // it has one shard
		lim := core.Must(core.New(core.Divide(store, n), l))
		if _, err := lim.Allow(t.Context(), "u", "a"); err != nil {
			t.Fatalf("%s among %d: %v", l, n, err)
		}
		s := store.charge.Limits[0]
		if s != store.accepted[0] {
			t.Fatalf("%s among %d: New asks about another share than is used", l, n)
		}
		identity := l.Identity()
		if l.Rule().Kind.Form() == machine.FormMeter && n > 1 {
			identity += fmt.Sprintf("/%d", n)
		}
		if s.Kind() != l.Kind() || s.Identity() != identity || (s.Rule().Hash == l.Rule().Hash) != (identity == l.Identity()) || s.Name() != l.Name() || s.Quota() != up(l.Quota(), n) {
			t.Fatalf("%s among %d: %s", l, n, s)
		}
		if l.Rule().Kind.Form() != machine.FormMeter {
			if s.Period() != l.Period() || s.Identity() != l.Identity() {
				t.Fatalf("%s among %d: %s", l, n, s)
			}
			continue
		}
		count, per := l.Rate()
		if c, p := s.Rate(); c != count || p != per*time.Duration(n) {
			t.Fatalf("%s among %d: a rate of %d per %s", l, n, c, p)
		}
		was, is := l.Rule(), s.Rule()
		unit := new(big.Rat).Mul(span(was.Emission, was.Parts), big.NewRat(int64(n), 1))
		full := new(big.Rat).Mul(unit, big.NewRat(int64(s.Quota()), 1))
		start := new(big.Rat)
		if was.ForgetAfter > 0 {
			left := new(big.Rat).Sub(span(was.Burst, was.Parts), span(was.Start, was.Parts))
			initial, _ := left.Quo(left, span(was.Emission, was.Parts)).Float64()
			start.Mul(unit, big.NewRat(int64(s.Quota()-up(int(initial), n)), 1))
		}
		if unit.Cmp(span(is.Emission, is.Parts)) != 0 || full.Cmp(span(is.Burst, is.Parts)) != 0 || start.Cmp(span(is.Start, is.Parts)) != 0 {
			t.Fatalf("%s among %d: %+v became %+v", l, n, was, is)
		}
		if is.Emission.Part >= is.Parts || is.Burst.Part >= is.Parts || is.Parts > math.MaxUint32 || is.Burst.Whole > 100*365*24*3600*1e6 {
			t.Fatalf("%s among %d: out of bounds: %+v", l, n, is)
		}
		if day := int64(24 * time.Hour / time.Microsecond); was.ForgetAfter == was.Burst.Ceil()+day && is.ForgetAfter != is.Burst.Ceil()+day {
			t.Fatalf("%s among %d: it is forgotten after %d, and full after %s", l, n, is.ForgetAfter, s.Period())
		}
		if was.ForgetAfter > 0 && (is.ForgetAfter <= is.Burst.Ceil() || is.ForgetAfter < was.ForgetAfter) || was.ForgetAfter == 0 && is.ForgetAfter != 0 {
			t.Fatalf("%s among %d: it is forgotten after %d, and full after %s", l, n, is.ForgetAfter, s.Period())
		}
	}
}

// n stores together admit at once n times the n-th rounded up, and from then on a
// meter's rate, exactly.
func TestDividedStoresKeepTheLimitTogether(t *testing.T) {
	for _, tt := range []struct {
		limit       core.Limit
		n           int
		once, after int // admitted by all at once, and in the hour after
	}{
		{core.SlidingWindow(10, time.Hour), 4, 12, 0},
		{core.SlidingWindow(10, time.Hour).CountRefused(), 4, 12, 0},
		{core.MovingWindow(8, time.Hour), 4, 8, 0},
		{core.FixedWindow(3, time.Hour), 7, 7, 0},
		{core.ElasticWindow(9, time.Hour), 2, 10, 0},
		{core.TokenBucket(10, core.Per(60, time.Hour)), 4, 12, 60},
		{core.TokenBucket(10, core.Per(60, time.Hour)).Initial(5), 4, 8, 60},
		{core.Funnel(10, core.Per(70, time.Hour)), 7, 14, 70},
		{core.Throttle(9, core.Per(21, time.Hour)), 3, 12, 21},
		{core.Funnel(10, core.Per(60, time.Hour)), 1, 10, 60},
	} {
		t.Run(fmt.Sprint(tt.limit, " among ", tt.n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limiters []*core.Limiter
				for range tt.n {
					limiters = append(limiters, core.Must(core.New(core.Divide(memorystore.New(nil), tt.n), tt.limit)))
				}
				admit := func() (n int) {
					for _, l := range limiters {
						for {
							d, err := l.Allow(t.Context(), "u", "a")
							if err != nil {
								t.Fatal(err)
							}
							if !d.Allowed {
								if d.Remaining != 0 || d.Limit != (tt.limit.Quota()-1)/tt.n+1 || d.RetryAfter <= 0 || d.RetryAfter > time.Hour {
									t.Errorf("%+v", d)
								}
								break
							}
							n++
						}
					}
					return n
				}
				if n := admit(); n != tt.once {
					t.Errorf("%d at once, not %d", n, tt.once)
				}
				after := 0
				for range 3600 {
					time.Sleep(time.Second)
					if tt.after > 0 {
						after += admit()
					}
				}
				if after != tt.after {
					t.Errorf("%d in an hour, not %d", after, tt.after)
				}
			})
		})
	}
}

// What costs more than the share is refused with Never and writes nothing.
func TestDivideRefusesWhatCostsMoreThanTheShare(t *testing.T) {
	for _, l := range []core.Limit{
		core.SlidingWindow(10, time.Hour), core.SlidingWindow(10, time.Hour).CountRefused(), core.MovingWindow(10, time.Hour),
		core.FixedWindow(10, time.Hour), core.ElasticWindow(10, time.Hour),
		core.TokenBucket(10, core.Every(time.Hour)), core.TokenBucket(10, core.Every(time.Hour)).Initial(10), core.Funnel(10, core.Every(time.Hour)),
	} {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &shown{Store: memorystore.New(nil)}
				lim := core.Must(core.New(core.Divide(store, 4), l))
				d, err := lim.AllowN(t.Context(), "u", "a", 4)
				if want := (core.Decision{Limit: 3, Remaining: 3, RetryAfter: core.Never, Reason: core.ReasonLimited, Source: core.SourceStore}); err != nil || d != want {
					t.Errorf("%+v, %v; want %+v", d, err, want)
				}
				if store.charge.Writes() || store.charge.Cost != 4 {
					t.Errorf("the store was asked %+v", store.charge)
				}
				if d, err := lim.AllowN(t.Context(), "u", "a", 3); err != nil || !d.Allowed || !store.charge.Writes() {
					t.Errorf("as much as the share: %+v, %v", d, err)
				}
				if d, err := lim.Peek(t.Context(), "u", "a"); err != nil || d.Allowed || store.charge.Writes() {
					t.Errorf("Peek: %+v, %v", d, err)
				}
				if err := lim.Reset(t.Context(), "u", "a"); err != nil {
					t.Error(err)
				}
				if d, err := lim.Peek(t.Context(), "u", "a"); err != nil || d.Remaining != 3 {
					t.Errorf("after Reset: %+v, %v", d, err)
				}
			})
		})
	}
}

// If the number of replicas changes, windows keep their counts, and the share of a funnel or bucket starts whole.
func TestDivideByAnotherNumber(t *testing.T) {
	rate := core.Per(6, time.Hour)
	for limit, want := range map[core.Limit]int{
		core.SlidingWindow(12, time.Hour): 1, core.MovingWindow(12, time.Hour): 1, core.FixedWindow(12, time.Hour): 1,
		core.ElasticWindow(12, time.Hour): 1, core.CalendarWindow(12, core.Year, nil): 1, core.InFlight(12): 1,
		core.Funnel(12, rate): 4, core.TokenBucket(12, rate): 4,
	} {
		store := memorystore.New(nil)
		by := func(n int) *core.Limiter { return core.Must(core.New(core.Divide(store, n), limit)) }
		for range 3 {
			if _, err := by(2).Allow(t.Context(), "alice", "post"); err != nil {
				t.Fatal(err)
			}
		}
		if d, err := by(3).Peek(t.Context(), "alice", "post"); err != nil || d.Limit != 4 || d.Remaining != want {
			t.Errorf("%s: %+v, %v; want %d of 4 left", limit, d, err, want)
		}
	}
}

// A Status has the numbers of this replica's share, as a decision has.
func TestDivideTellsTheStatusOfTheShare(t *testing.T) {
	lim := core.Must(core.New(core.Divide(memorystore.New(nil), 2), core.FixedWindow(10, time.Hour), core.Funnel(10, core.Every(time.Minute))))
	if d, err := lim.AllowN(t.Context(), "u", "a", 5); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	s, err := lim.Status(t.Context(), "u", "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range s.Limits {
		if x.Remaining != 0 || x.Used != 5 || x.RetryAfter == 0 || x.Limit.Quota() != 5 {
			t.Errorf("%+v", x)
		}
	}
}

// A policy is as it was, a ban by hand and a surcharge are no cost above the share, a
// shadow limit refuses nothing, and what was charged can be given back.
func TestDivideLeavesOtherCallsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := core.Must(core.New(core.Divide(memorystore.New(nil), 4), core.FixedWindow(10, time.Hour), core.Funnel(4, core.Every(time.Hour)).Shadow()))
		lim = core.Must(lim.With(core.Refundable{}, core.BanPolicy{Refusals: 3, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
		d, err := lim.AllowN(t.Context(), "u", "a", 2)
		if err != nil || !d.Allowed || d.Reason != core.ReasonShadowed || d.Remaining != 1 {
			t.Errorf("above the share of the shadow limit: %+v, %v", d, err)
		}
		if err := lim.Refund(t.Context(), d); err != nil {
			t.Error(err)
		}
		if d, err := lim.Peek(t.Context(), "u", "a"); err != nil || d.Remaining != 3 {
			t.Errorf("given back: %+v, %v", d, err)
		}
		if d, err := lim.AllowN(t.Context(), "u", "a", 4); err != nil || d.Allowed || d.RetryAfter != core.Never {
			t.Errorf("above the share: %+v, %v", d, err)
		}
		if d, err := lim.Status(t.Context(), "u", "a"); err != nil || d.Ban != (core.BanStatus{}) {
			t.Errorf("what can never pass counts: %+v, %v", d, err)
		}
		if d, err := lim.Surcharge(t.Context(), "u", "a", 9); err != nil || !d.Allowed || d.Remaining != 0 {
			t.Errorf("a surcharge: %+v, %v", d, err)
		}
		for i, want := range []core.Reason{core.ReasonLimited, core.ReasonLimited, core.ReasonLimited, core.ReasonBanned} {
			if d, err := lim.Allow(t.Context(), "u", "a"); err != nil || d.Allowed || i != 2 && d.Reason != want {
				t.Errorf("refusal %d: %+v, %v", i+1, d, err)
			}
		}
		if err := lim.Ban(t.Context(), "v", "a", time.Hour); err != nil {
			t.Error(err)
		}
		if d, err := lim.Allow(t.Context(), "v", "a"); err != nil || d.Reason != core.ReasonBanned || d.RetryAfter != time.Hour {
			t.Errorf("banned by hand: %+v, %v", d, err)
		}
	})
}

func TestDivideRefusesWhatCannotWork(t *testing.T) {
	for _, n := range []int{0, -1, math.MinInt} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "core: Divide: ") || !strings.Contains(s, fmt.Sprint(n)) {
					t.Errorf("%d: panic %q does not say what to change", n, s)
				}
			}()
			core.Divide(memorystore.New(nil), n)
		}()
	}
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name  string
		limit core.Limit
		n     int
		ok    bool
	}{
		{"a share that fills in 100 years", core.Funnel(100, core.Every(year)), 100, true},
		{"a share that fills in 101 years, by rounding up", core.Funnel(100, core.Every(year)), 101, false},
		{"the same of a bucket with Initial", core.TokenBucket(100, core.Every(year)).Initial(1), 99, false},
		{"a rate per 100 years", core.Funnel(1, core.Per(1000, year)), 100, true},
		{"a rate per 101 years", core.Funnel(1, core.Per(1000, year)), 101, false},
		{"a rate per more than a Duration can hold", core.Funnel(1, core.Per(1000, year)), math.MaxInt32, false},
		{"more replicas than fit in any arithmetic", core.Funnel(1, core.Per(1, time.Millisecond)), math.MaxInt, math.MaxInt == math.MaxInt32},
		{"as many for a window", core.FixedWindow(5, time.Minute), math.MaxInt, true},
		{"the largest count", core.FixedWindow(1_000_000_000, time.Minute), 2, true},
		{"the fastest rate", core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Millisecond)), 1_000_000, true},
	} {
		for name, store := range map[string]core.Store{
			"": core.Divide(memorystore.New(nil), tt.n), " as a fallback": core.Fallback(memorystore.New(nil), core.Divide(memorystore.New(nil), tt.n)),
		} {
			lim, err := core.New(store, tt.limit)
			if tt.ok != (err == nil) {
				t.Errorf("%s%s: %v", tt.name, name, err)
			}
			switch {
			case err == nil:
				if d, err := lim.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed {
					t.Errorf("%s%s: %+v, %v", tt.name, name, d, err)
				}
			case !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), tt.limit.String()) || !strings.Contains(err.Error(), fmt.Sprint(tt.n)):
				t.Errorf("%s%s: %q does not name the limit and the replicas", tt.name, name, err)
			}
			// Whoever does not ask is not told a decision by a share that there is not.
			if !tt.ok && name == "" {
				c := core.Charge{User: "u", Action: "a", Cost: 1, Terms: &core.Terms{Limits: []core.Limit{tt.limit}}}
				if d, _, err := store.Take(t.Context(), c); err == nil {
					t.Errorf("%s: decided: %+v", tt.name, d)
				}
			}
		}
	}
	inner := core.Divide(memorystore.New(&memorystore.Options{MaxKeys: 1}), 4)
	if _, err := core.New(inner, core.FixedWindow(5, time.Hour), core.SlidingWindow(5, time.Hour)); err == nil || !strings.Contains(err.Error(), "MaxKeys is 1") {
		t.Errorf("what the store does not accept: %v", err)
	}
}

func TestDivideCostsNoAllocation(t *testing.T) {
	l := core.Must(core.New(core.Divide(memorystore.New(nil), 4), core.Funnel(1_000_000, core.Every(time.Minute))))
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
