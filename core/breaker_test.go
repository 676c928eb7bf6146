package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// What a scripted store does with a call.
type does int

const (
	answers  does = iota
	fails         // with an error of its own
	nonsense      // an ErrKey
	cached        // answers from a cache
	leased        // answers from a lease
	canceled      // the caller cancels while the store is asked
	panics
	answersLate  // after a second
	answersSoon  // after a millisecond, unless the caller's context ends
	failsLate    // after a second
	hangs        // for a second, or until the caller's context ends
	neverAnswers // until the caller's context ends
)

var errKey = fmt.Errorf("store: nonsense: %w", core.ErrKey)

// A scripted store does as it is told, and counts who asks.
type scripted struct {
	core.Store
	does  atomic.Int64
	asked atomic.Int64
}

func scriptedStore(d does) *scripted {
	s := &scripted{Store: memorystore.New(nil)}
	s.does.Store(int64(d))
	return s
}

func (s *scripted) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	s.asked.Add(1)
	switch does(s.does.Load()) {
	case fails:
		return core.Decision{}, errDown
	case cached:
		d, err := s.Store.Take(ctx, c)
		d.Source = core.SourceCache
		return d, err
	case leased:
		d, err := s.Store.Take(ctx, c)
		d.Source = core.SourceLease
		return d, err
	case nonsense:
		return core.Decision{}, errKey
	case canceled:
		ctx.Value(leave{}).(context.CancelFunc)()
		return core.Decision{}, ctx.Err()
	case panics:
		panic("the store panics")
	case answersLate:
		time.Sleep(time.Second)
	case answersSoon:
		select {
		case <-ctx.Done():
			return core.Decision{}, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	case failsLate:
		time.Sleep(time.Second)
		return core.Decision{}, errDown
	case neverAnswers:
		<-ctx.Done()
		return core.Decision{}, ctx.Err()
	case hangs:
		select {
		case <-ctx.Done():
			return core.Decision{}, ctx.Err()
		case <-time.After(time.Second):
			return core.Decision{}, errDown
		}
	}
	return s.Store.Take(ctx, c)
}

type leave struct{}

// allow asks once, as a caller who can leave, and swallows a panic.
func allow(l *core.Limiter) (d core.Decision, err error) { return allowUser(l, "u") }

func allowUser(l *core.Limiter, user string) (d core.Decision, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer func() { _ = recover() }()
	return l.Allow(context.WithValue(ctx, leave{}, cancel), user, "a")
}

var breakers = map[string]func(core.Store) core.Store{
	"FailOpen": core.FailOpen,
	"Shadow":   core.Shadow,
	"Fallback": func(s core.Store) core.Store { return core.Fallback(s, memorystore.New(nil)) },
}

var plenty = core.FixedWindow(1_000_000, time.Hour)

// A step: after a while, and while the store does that, so many calls come, of which so
// many ask the store.
type step struct {
	after time.Duration
	while does
	calls int
	asked int64

	together bool // the calls come at the same moment, and the next step does not wait for them
}

func TestBreaker(t *testing.T) {
	const ms = time.Millisecond
	opened := step{while: fails, calls: 3, asked: 3}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a store that answers is always asked", []step{{while: answers, calls: 10, asked: 10}}},
		{"two failures in a row do not open it", []step{{while: fails, calls: 2, asked: 2}, {while: answers, calls: 8, asked: 8}}},
		{"nor do two of three", []step{
			{while: fails, calls: 2, asked: 2}, {while: answers, calls: 1, asked: 1},
			{while: fails, calls: 2, asked: 2}, {while: answers, calls: 1, asked: 1},
			{while: fails, calls: 2, asked: 2}, {while: answers, calls: 1, asked: 1},
		}},
		{"three in a row do", []step{{while: fails, calls: 10, asked: 3}}},
		{"open, it asks nothing for a quarter of a second", []step{opened, {after: 249 * ms, while: fails, calls: 4}}},
		{"then one call asks, and one each quarter", []step{
			opened,
			{after: 250 * ms, while: fails, calls: 4, asked: 1},
			{after: 249 * ms, while: fails, calls: 4},
			{after: ms, while: fails, calls: 4, asked: 1},
			{after: time.Hour, while: fails, calls: 4, asked: 1},
		}},
		{"an answer to the probe closes", []step{opened, {after: 250 * ms, while: answers, calls: 5, asked: 5}}},
		{"and three failures open again", []step{
			opened, {after: 250 * ms, while: answers, calls: 1, asked: 1}, {while: fails, calls: 10, asked: 3},
		}},
		{"calls that fail together are one failure", []step{
			{while: failsLate, calls: 100, asked: 100, together: true},
			{after: 1001 * ms, while: failsLate, calls: 100, asked: 100, together: true},
			{after: 1001 * ms, while: answers, calls: 100, asked: 100},
		}},
		{"so are calls that began before the first of them failed", []step{
			{while: failsLate, calls: 1, asked: 1, together: true},
			{after: 300 * ms, while: failsLate, calls: 1, asked: 1, together: true},
			{after: 300 * ms, while: failsLate, calls: 1, asked: 1, together: true},
			{after: 300 * ms, while: failsLate, calls: 1, asked: 1, together: true},
			{after: 1001 * ms, while: answers, calls: 10, asked: 10},
		}},
		{"a store that hangs opens it after three of its timeouts", []step{
			{while: failsLate, calls: 10, asked: 10, together: true},
			{after: 1001 * ms, while: failsLate, calls: 10, asked: 10, together: true},
			{after: 1001 * ms, while: failsLate, calls: 10, asked: 10, together: true},
			{after: 1001 * ms, while: failsLate, calls: 10, together: true},
		}},
		{"an error of a key does not open it", []step{{while: nonsense, calls: 10, asked: 10}}},
		{"and does not end a run of failures", []step{
			{while: fails, calls: 2, asked: 2}, {while: nonsense, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"and does not close, nor hold up the next probe", []step{
			opened, {after: 250 * ms, while: nonsense, calls: 1, asked: 1}, {while: answers, calls: 5, asked: 5},
		}},
		{"an answer from a cache does not end a run of failures", []step{
			{while: fails, calls: 2, asked: 2}, {while: cached, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"and does not close, nor hold up the probe", []step{
			opened, {after: 250 * ms, while: cached, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"an answer from a lease does not end a run of failures", []step{
			{while: fails, calls: 2, asked: 2}, {while: leased, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"and does not close it", []step{
			opened, {after: 250 * ms, while: leased, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"a caller who cancels does not open it", []step{{while: canceled, calls: 10, asked: 10}}},
		{"and does not end a run of failures either", []step{
			{while: fails, calls: 2, asked: 2}, {while: canceled, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"a probe that panics has failed", []step{
			opened, {after: 250 * ms, while: panics, calls: 1, asked: 1}, {while: answers, calls: 4}, {after: 250 * ms, while: answers, calls: 4, asked: 4},
		}},
		{"a call that panics does not open it", []step{{while: panics, calls: 10, asked: 10}}},
		{"once open, an answer to an earlier call does not close it", []step{
			{while: answersLate, calls: 1, asked: 1, together: true}, opened,
			{after: 1001 * ms, while: fails, calls: 5, asked: 1},
		}},
		{"failures of calls from before do not open what has closed", []step{
			{while: failsLate, calls: 3, asked: 3, together: true}, opened,
			{after: 250 * ms, while: answers, calls: 1, asked: 1},
			{after: 751 * ms, while: answers, calls: 5, asked: 5},
		}},
	} {
		for name, decorate := range breakers {
			t.Run(name+": "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					logs(t)
					store := scriptedStore(answers)
					l := core.Must(core.New(decorate(store), plenty))
					call := func(d does) {
						if _, err := allow(l); errors.Is(err, context.Canceled) != (d == canceled) || err != nil && d != canceled {
							t.Errorf("a call while the store does %d: %v", d, err)
						}
					}
					for i, s := range tt.steps {
						time.Sleep(s.after)
						store.does.Store(int64(s.while))
						before := store.asked.Load()
						for range s.calls {
							if s.together {
								go call(s.while)
							} else {
								call(s.while)
							}
						}
						synctest.Wait()
						if n := store.asked.Load() - before; n != s.asked {
							t.Errorf("step %d, %+v: the store was asked %d times, not %d", i, s, n, s.asked)
						}
					}
					time.Sleep(time.Minute) // for those who are under way
				})
			})
		}
	}
}

// within asks once with a deadline.
func within(l *core.Limiter, d time.Duration) (core.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return l.Allow(ctx, "u", "a")
}

// A deadline that ends when the store has had a second is the store's failure: the breaker
// opens. The fallback decides, with a context that is not done. The others pass nothing
// whose deadline is over.
func TestBreakerCountsDeadlines(t *testing.T) {
	for name, decorate := range breakers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := logs(t)
				store := scriptedStore(neverAnswers)
				var down bool
				l := core.Must(core.New(core.Observe(decorate(store), func(_ context.Context, o core.Observation) { down = o.Down }), plenty))
				for i := range 10 {
					d, err := within(l, time.Second)
					if over := name != "Fallback" && i < 3; errors.Is(err, context.DeadlineExceeded) != over || d.Allowed == over {
						t.Errorf("call %d: %+v, %v", i, d, err)
					}
				}
				if n := store.asked.Load(); n != 3 || !down || log.Len() == 0 {
					t.Errorf("asked %d times, not 3; Down %t, not true; log %q", n, down, log)
				}
			})
		})
	}
}

// A client may choose a deadline that is too short for any store. It then neither opens the breaker,
// nor keeps it from opening when the store fails, nor keeps it open.
func TestBreakerWithShortDeadlines(t *testing.T) {
	for name, decorate := range breakers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				store := scriptedStore(hangs)
				l := core.Must(core.New(decorate(store), plenty))
				short := func() {
					start := time.Now()
					for range 10 {
						d, err := within(l, 700*time.Microsecond)
						if over := name != "Fallback"; errors.Is(err, context.DeadlineExceeded) != over || d.Allowed == over {
							t.Errorf("a short deadline: %+v, %v", d, err)
						}
					}
					if took := time.Since(start); took != 7*time.Millisecond {
						t.Errorf("ten calls that each have 700 us took %s", took)
					}
				}
				ask := func(what string, want core.Source) {
					source := core.SourceFallback
					if name != "Fallback" {
						source = core.SourceNone
					}
					if want == core.SourceStore {
						source = want
					}
					if d, err := allow(l); err != nil || d.Source != source {
						t.Errorf("%s: %+v, %v", what, d, err)
					}
				}
				short()
				store.does.Store(int64(answers))
				ask("after short deadlines", core.SourceStore)

				for range 3 {
					store.does.Store(int64(hangs))
					short()
					store.does.Store(int64(fails))
					ask("the store fails", core.SourceNone)
				}
				before := store.asked.Load()
				if ask("it is open", core.SourceNone); store.asked.Load() != before {
					t.Error("among short deadlines three failures do not open it")
				}

				// The store answers again, each time after a millisecond.
				time.Sleep(time.Second)
				store.does.Store(int64(answersSoon))
				if d, err := within(l, 700*time.Microsecond); err != nil || !d.Allowed || d.Source != core.SourceStore {
					t.Errorf("the probe is a call with a short deadline: %+v, %v", d, err)
				}
				ask("after the probe", core.SourceStore)
			})
		})
	}
}

// Whoever leaves while its call probes does not keep the breaker open either. If the store hangs, the
// probe ends after a second.
func TestAProbeOutlastsItsCaller(t *testing.T) {
	for name, decorate := range breakers {
		for does, want := range map[does]time.Duration{answersSoon: time.Millisecond, neverAnswers: time.Second} {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				store := scriptedStore(fails)
				l := core.Must(core.New(decorate(store), plenty))
				for range 3 {
					_, _ = allow(l)
				}
				time.Sleep(time.Second)
				store.does.Store(int64(does))
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(time.Microsecond, leave)
				start := time.Now()
				if _, err := l.Allow(ctx, "u", "a"); (err == nil) != (does == answersSoon) || time.Since(start) != want {
					t.Errorf("%s: the probe: %v after %s", name, err, time.Since(start))
				}
				store.does.Store(int64(answers))
				if d, err := allow(l); err != nil || (d.Source == core.SourceStore) != (does == answersSoon) {
					t.Errorf("%s: after the probe: %+v, %v", name, d, err)
				}
			})
		}
	}
}

// Who is done before he asks is told so, and nothing is asked.
func TestBreakerWithAContextThatIsDone(t *testing.T) {
	for name, decorate := range breakers {
		for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if want == context.Canceled {
					cancel()
				}
				time.Sleep(2 * time.Second)
				store := scriptedStore(answers)
				c := core.Charge{User: "u", Action: "a", Limits: []core.Limit{plenty}, Ask: machine.Ask{Cost: 1}}
				if _, err := decorate(store).Take(ctx, c); err != want || store.asked.Load() != 0 {
					t.Errorf("%s: %v, and the store was asked %d times", name, err, store.asked.Load())
				}
			})
		}
	}
}

// The fallback of a caller whose deadline has ended is asked with a context that ends soon.
func TestFallbackAfterADeadlineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		l := core.Must(core.New(core.Fallback(scriptedStore(hangs), scriptedStore(hangs)), plenty))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := l.Allow(ctx, "u", "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(start); took != 80*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

// A spread store has its users on two servers, by their names' first letters, of which
// those that are named fail.
type spread struct {
	core.Store
	mu      sync.Mutex
	failing string
	asked   map[string]int
}

func (s *spread) Part(user string) string { return user[:1] }

func (s *spread) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	s.mu.Lock()
	part := s.Part(c.User)
	s.asked[part]++
	failing := strings.Contains(s.failing, part)
	s.mu.Unlock()
	if failing {
		return core.Decision{}, errDown
	}
	return s.Store.Take(ctx, c)
}

type wrapped struct{ core.Store }

func (w wrapped) Unwrap() core.Store { return w.Store }

// What one server of a store does concerns its users only: the others' decisions stay the
// store's, and its own pay no timeout for every call.
func TestBreakerPerPartOfAStore(t *testing.T) {
	wraps := map[string]func(core.Store) core.Store{
		"bare":    func(s core.Store) core.Store { return s },
		"Divide":  func(s core.Store) core.Store { return core.Divide(s, 2) },
		"Observe": func(s core.Store) core.Store { return core.Observe(s, func(context.Context, core.Observation) {}) },
		"another": func(s core.Store) core.Store { return wrapped{s} },
	}
	for name, decorate := range breakers {
		for inner, wrap := range wraps {
			t.Run(name+" of "+inner, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log := logs(t)
					store := &spread{Store: memorystore.New(nil), failing: "b", asked: map[string]int{}}
					down := map[string]bool{}
					observed := core.Observe(decorate(wrap(store)), note(down))
					users := core.Must(core.New(observed, plenty.Named("users")))
					ask := func(n int) {
						for i := range n {
							for _, part := range []string{"a", "b"} {
								d, err := users.Allow(t.Context(), fmt.Sprint(part, i%7), part)
								if err != nil || !d.Allowed || part == "a" && d.Source != core.SourceStore {
									t.Fatalf("a user of %s: %+v, %v", part, d, err)
								}
							}
						}
					}
					ask(100)
					if store.asked["a"] != 100 || store.asked["b"] != 3 || down["a"] || !down["b"] {
						t.Errorf("asked %v, down %v", store.asked, down)
					}
					if n := strings.Count(log.String(), "part=b"); n != 1 || strings.Count(log.String(), "\n") != 1 {
						t.Errorf("the log says:\n%s", log)
					}
					time.Sleep(time.Second)
					if ask(100); store.asked["a"] != 200 || store.asked["b"] != 4 {
						t.Errorf("after a probe: asked %v", store.asked)
					}
					store.failing = ""
					time.Sleep(time.Second)
					if ask(100); store.asked["a"] != 300 || store.asked["b"] != 104 || down["b"] {
						t.Errorf("when it is back: asked %v, down %v", store.asked, down)
					}
					time.Sleep(6 * time.Second)
					if ask(1); !strings.Contains(log.String(), "answers again") {
						t.Errorf("the log says:\n%s", log)
					}
				})
			})
		}
	}
}

// note notes for each action whether the store is down.
func note(down map[string]bool) func(context.Context, core.Observation) {
	return func(_ context.Context, o core.Observation) { down[o.Action] = o.Down }
}

// A part that nobody asks for any more, since another has taken over, is no outage for ever.
func TestBreakerForgetsARemovedPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logs(t)
		store := &spread{Store: memorystore.New(nil), failing: "b", asked: map[string]int{}}
		l := core.Must(core.New(core.FailOpen(store), plenty))
		for range 5 {
			_, _ = allowUser(l, "b")
		}
		for range 60 {
			time.Sleep(100 * time.Millisecond)
			_, _ = allowUser(l, "a")
		}
		if !strings.Contains(log.String(), "answers again") {
			t.Errorf("the log says:\n%s", log)
		}
		if _, _ = allowUser(l, "b"); store.asked["b"] != 4 {
			t.Errorf("the part that has gone is asked %d times", store.asked["b"])
		}
	})
}

// However many parts fail, the breaker stays small, and all of them are spared.
func TestBreakerBoundsItsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		store := &everyUser{}
		l := core.Must(core.New(core.FailOpen(store), plenty))
		for i := range 1000 {
			_, _ = allowUser(l, fmt.Sprint(i))
		}
		// 63 parts or so have a circuit each, which one failure does not open.
		if store.asked > 100 {
			t.Errorf("asked %d times, more than 100", store.asked)
		}
	})
}

type everyUser struct {
	core.Store
	asked int
}

func (*everyUser) Part(user string) string { return user }

func (s *everyUser) Take(context.Context, core.Charge) (core.Decision, error) {
	s.asked++
	return core.Decision{}, errDown
}

// A brittle store is down, and panics for a long name.
type brittle struct{ everyUser }

func (*brittle) Part(user string) string { return "part"[:len(user)] }

func TestBreakerOutlivesAPartThatPanics(t *testing.T) {
	l := core.Must(core.New(core.FailOpen(&brittle{}), plenty))
	_, _ = allowUser(l, "longer")
	answered := make(chan error, 1)
	go func() {
		_, err := allowUser(l, "u")
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("another user's call hangs")
	}
}

// While a probe is under way nobody else asks, however long it takes.
func TestBreakerProbesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		var here, most, asked atomic.Int64
		var opened atomic.Bool
		store := sound()
		store.err = errDown
		slow := &meanwhile{store, func() {
			if opened.Load() {
				asked.Add(1)
				most.Store(max(most.Load(), here.Add(1)))
				time.Sleep(3 * time.Second)
				here.Add(-1)
			}
		}}
		l := core.Must(core.New(core.FailOpen(slow), plenty))
		for range 3 {
			_, _ = allow(l)
		}
		opened.Store(true)
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for time.Since(start) < 10*time.Second {
					_, _ = allow(l)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 || asked.Load() != 3 {
			t.Errorf("%d probes, %d at a time; want one at a time, at 0.25, 3.5 and 6.75 s", asked.Load(), most.Load())
		}
	})
}

type meanwhile struct {
	core.Store
	first func()
}

func (s *meanwhile) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	s.first()
	return s.Store.Take(ctx, c)
}

// However many ask, in an outage the store is asked by those who found it closed,
// and when it is back everybody is served within the quarter of a second.
func TestBreakerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		const callers = 50
		var dead atomic.Bool
		var failures atomic.Int64
		store := &dying{Store: memorystore.New(nil), dead: &dead, failures: &failures}
		l := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), plenty))
		var back atomic.Int64 // calls that the store decided, after its return
		var wg sync.WaitGroup
		start := time.Now()
		for range callers {
			wg.Go(func() {
				for time.Since(start) < 10*time.Second {
					d, err := allow(l)
					if err != nil {
						t.Error(err)
					}
					if s := time.Since(start); s > 8*time.Second+310*time.Millisecond {
						if d.Source != core.SourceStore {
							t.Errorf("the fallback decides at %s", s)
						}
						back.Add(1)
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		dead.Store(true)
		time.Sleep(7 * time.Second)
		dead.Store(false)
		wg.Wait()
		// All of them three times, before it opened; then one in 300 ms.
		if n := failures.Load(); n < 3*callers || n > 3*callers+7000/300+1 {
			t.Errorf("%d calls met the outage", n)
		}
		if back.Load() == 0 {
			t.Error("nothing was asked at the end")
		}
	})
}

type dying struct {
	core.Store
	dead     *atomic.Bool
	failures *atomic.Int64
}

func (s *dying) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	if s.dead.Load() {
		s.failures.Add(1)
		time.Sleep(50 * time.Millisecond)
		return core.Decision{}, errDown
	}
	return s.Store.Take(ctx, c)
}

// The log says once that the store fails, and once that it is over.
func TestBreakerLog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails func(at time.Duration) bool
		lines []string // what is said, as 1.0s: words
	}{
		{"nothing of a store that answers", func(time.Duration) bool { return false }, nil},
		{"an outage once, and that it is over 5 s after", func(at time.Duration) bool { return at >= 10*time.Second && at < 20*time.Second },
			[]string{"10.02s WARN its fallback decides until it answers, store-fails", "25.02s INFO answers again, store-answers"}},
		{"of one that comes and goes, the same", func(at time.Duration) bool {
			return at >= 10*time.Second && at < 70*time.Second && at%(3*time.Second) < time.Second
		},
			[]string{"12.02s WARN its fallback decides until it answers, store-fails", "1m15.02s INFO answers again, store-answers"}},
		{"of one that fails now and then, once a minute", func(at time.Duration) bool { return at%(100*time.Millisecond) == 0 && at < 150*time.Second },
			[]string{"10ms WARN not every call, store-falters", "1m0.01s WARN not every call, store-falters", "2m0.01s WARN not every call, store-falters"}},
		{"two outages", func(at time.Duration) bool {
			return at >= 10*time.Second && at < 20*time.Second || at >= 60*time.Second && at < 70*time.Second
		}, []string{"10.02s WARN its fallback decides until it answers, store-fails", "25.02s INFO answers again, store-answers", "1m0.02s WARN its fallback decides until it answers, store-fails", "1m15.02s INFO answers again, store-answers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var lines []string
				was := slog.Default()
				defer slog.SetDefault(was)
				slog.SetDefault(slog.New(ofCore{handler(func(r slog.Record) {
					_, message, _ := strings.Cut(r.Message, ": ")
					line := fmt.Sprint(time.Since(start), " ", r.Level, " ", message)
					r.Attrs(func(a slog.Attr) bool {
						if a.Key == "code" {
							line += ", " + a.Value.String()
						}
						return true
					})
					lines = append(lines, line)
				})}))
				store := sound()
				l := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), plenty))
				for ; time.Since(start) < 200*time.Second; time.Sleep(10 * time.Millisecond) {
					if store.err = nil; tt.fails(time.Since(start)) {
						store.err = errDown
					}
					if _, err := allow(l); err != nil {
						t.Fatal(err)
					}
				}
				ok := len(lines) == len(tt.lines)
				for i := range min(len(lines), len(tt.lines)) {
					at, words, _ := strings.Cut(tt.lines[i], "s ")
					level, words, _ := strings.Cut(words, " ")
					ok = ok && strings.HasPrefix(lines[i], at) && strings.Contains(lines[i], level) && strings.Contains(lines[i], words)
				}
				if !ok {
					t.Errorf("said:\n%s\nnot:\n%s", strings.Join(lines, "\n"), strings.Join(tt.lines, "\n"))
				}
			})
		})
	}
}

type handler func(slog.Record)

func (handler) Enabled(context.Context, slog.Level) bool        { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }

// A key that holds nonsense is said, though nobody else is troubled.
func TestBreakerLogNamesAnErrorOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logs(t)
		l := core.Must(core.New(core.FailOpen(scriptedStore(nonsense)), plenty))
		for range 10 {
			_, _ = allow(l)
		}
		if n := strings.Count(log.String(), "store: nonsense"); n != 1 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("said %d times:\n%s", n, log)
		}
	})
}

// Observe shows an open breaker wherever within it is.
func TestObserveShowsThatAStoreIsDown(t *testing.T) {
	for name, decorate := range map[string]func(core.Store) core.Store{
		"FailOpen":         core.FailOpen,
		"Shadow":           core.Shadow,
		"Fallback":         breakers["Fallback"],
		"Fallback's other": func(s core.Store) core.Store { return core.Fallback(scriptedStore(nonsense), core.FailOpen(s)) },
		"under Fallback":   func(s core.Store) core.Store { return core.Fallback(core.FailOpen(s), memorystore.New(nil)) },
		"under Shadow":     func(s core.Store) core.Store { return core.Shadow(core.FailOpen(s)) },
		"under FailOpen":   func(s core.Store) core.Store { return core.FailOpen(core.Shadow(s)) },
		"under Divide":     func(s core.Store) core.Store { return core.Divide(core.FailOpen(s), 3) },
		"under Observe": func(s core.Store) core.Store {
			return core.Observe(core.FailOpen(s), func(context.Context, core.Observation) {})
		},
		"deep under them all": func(s core.Store) core.Store { return core.Shadow(core.Divide(core.FailOpen(core.FailOpen(s)), 3)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				var seen core.Observation
				see := func(_ context.Context, o core.Observation) { seen = o }
				store := scriptedStore(answers)
				l := core.Must(core.New(core.Observe(decorate(store), see), plenty))
				ask := func(while does, want bool) {
					store.does.Store(int64(while))
					if _, _ = allow(l); seen.Down != want || seen.Err != nil {
						t.Errorf("%+v", seen)
					}
				}
				ask(answers, false)
				ask(fails, false)
				ask(fails, false)
				ask(fails, true)
				ask(answers, true)
				time.Sleep(time.Second)
				ask(fails, true)
				time.Sleep(time.Second)
				ask(answers, false)
			})
		})
	}
	t.Run("a bare store", func(t *testing.T) {
		var seen core.Observation
		store := scriptedStore(fails)
		l := core.Must(core.New(core.Observe(store, func(_ context.Context, o core.Observation) { seen = o }), plenty))
		for range 9 {
			if _, _ = allow(l); seen.Down || !errors.Is(seen.Err, errDown) {
				t.Errorf("%+v", seen)
			}
		}
	})
}

// Reset asks the store though it is down, says what came of it, and is no probe.
func TestResetWhileOpen(t *testing.T) {
	for name, decorate := range breakers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				store := sound()
				l := core.Must(core.New(decorate(store), plenty))
				_, _ = allow(l)
				store.err = errDown
				for range 3 {
					_, _ = allow(l)
				}
				for range 5 {
					if err := l.Reset(t.Context(), "u", "a"); !errors.Is(err, errDown) {
						t.Errorf("Reset: %v", err)
					}
				}
				store.err = nil
				if err := l.Reset(t.Context(), "u", "a"); err != nil {
					t.Errorf("Reset: %v", err)
				}
				if _, _ = allow(l); store.asked.Load() != 4 {
					t.Errorf("after a Reset the store is asked: %d", store.asked.Load())
				}
				time.Sleep(time.Second)
				if d, err := l.Peek(t.Context(), "u", "a"); err != nil || d.Remaining != plenty.Quota() || d.Source != core.SourceStore {
					t.Errorf("the store was not reset: %+v, %v", d, err)
				}
			})
		})
	}
}

func TestBreakerCostsNothing(t *testing.T) {
	for name, decorate := range breakers {
		l := core.Must(core.New(decorate(memorystore.New(nil)), core.Funnel(1_000_000, core.Every(time.Minute))))
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkBreaker(b *testing.B) {
	down := sound()
	down.err = errDown
	for name, store := range map[string]core.Store{
		"bare":    memorystore.New(nil),
		"healthy": core.Fallback(memorystore.New(nil), memorystore.New(nil)),
		"open":    core.Fallback(down, memorystore.New(nil)),
		"divided": core.Divide(memorystore.New(nil), 4),
	} {
		b.Run(name, func(b *testing.B) {
			l := core.Must(core.New(store, core.Funnel(1_000_000, core.Every(time.Minute))))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(context.Background(), "u", "a")
			}
		})
	}
}
