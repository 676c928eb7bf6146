package plans_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core/plans"
)

// A source counts its calls.
type source struct {
	mu       sync.Mutex // of those who change it while a look may be under way
	document string
	err      error
	takes    time.Duration
	calls    int
	ended    error // of the last call's context
}

func (s *source) load(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	s.calls++
	takes := s.takes
	s.mu.Unlock()
	var ended error
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			ended = ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = ended
	return []byte(s.document), errors.Join(s.err, ended)
}

func (s *source) set(document string, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.document, s.takes = document, takes
}

// following are plans that follow a source.
func following(t *testing.T, load func(context.Context) ([]byte, error)) *plans.Plans {
	t.Helper()
	p := newPlans(t, sliding(1))
	if err := p.Follow(load); err != nil {
		t.Fatal(err)
	}
	return p
}

// "Once a second, one request calls load."
func TestRequestsLookOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{document: sliding(2)}
		p := following(t, s.load)
		if got := quota(t, p); got != 2 || s.calls != 1 {
			t.Errorf("%d after %d calls", got, s.calls)
		}
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			quota(t, p)
		}
		if s.calls != 6 {
			t.Errorf("%d calls in 5 seconds", s.calls)
		}
		// Whoever comes after an hour has the new numbers at once.
		time.Sleep(time.Hour)
		s.document = sliding(3)
		if got := quota(t, p); got != 3 || s.calls != 7 {
			t.Errorf("%d after %d calls", got, s.calls)
		}
		s.document = sliding(4)
		if got := quota(t, p); got != 3 {
			t.Errorf("%d within a second", got)
		}
		if err := p.Refresh(context.Background()); err != nil || quota(t, p) != 4 {
			t.Errorf("%d, %v after Refresh", quota(t, p), err)
		}
		if err := p.Follow(nil); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		quota(t, p)
		if err := p.Refresh(context.Background()); err != nil || s.calls != 8 {
			t.Errorf("%d calls after Follow(nil), %v", s.calls, err)
		}
	})
}

// "This request waits for load for at most 50 ms."
// A request waits for a slow source for 50 ms, and then requests do not wait until it is fast again.
func TestASlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{document: sliding(2)}
		p := following(t, s.load)
		waits := func(want time.Duration, quotaThen int) {
			t.Helper()
			begun := time.Now()
			got := quota(t, p)
			if took := time.Since(begun); took != want || got != quotaThen {
				t.Errorf("a request waits %s and has %d, want %s and %d", took, got, want, quotaThen)
			}
		}
		time.Sleep(time.Second)
		s.set(sliding(3), 20*time.Millisecond)
		waits(20*time.Millisecond, 3)
		time.Sleep(time.Second)
		s.set(sliding(4), 3*time.Second)
		waits(50*time.Millisecond, 3)
		for range 25 {
			time.Sleep(100 * time.Millisecond)
			waits(0, 3) // the look is under way
		}
		time.Sleep(time.Second)
		waits(0, 4)
		synctest.Wait()
		time.Sleep(4 * time.Second)
		waits(0, 4)
		time.Sleep(4 * time.Second)
		s.set(sliding(4), 10*time.Millisecond)
		waits(0, 4)
		time.Sleep(time.Second)
		waits(10*time.Millisecond, 4)
		time.Sleep(time.Second)
		s.set(sliding(4), time.Hour)
		synctest.Wait()
		calls := s.calls
		waits(50*time.Millisecond, 4)
		time.Sleep(9 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		synctest.Wait()
		if err := p.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) || s.calls != calls+2 || p.Rejected() != 0 {
			t.Errorf("Refresh during a look: %v, %d calls, %d rejected", err, s.calls-calls, p.Rejected())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s.ended != context.DeadlineExceeded {
			t.Errorf("the context of a source: %v", s.ended)
		}
	})
}

func TestASourceFails(t *testing.T) {
	log := logged(t)
	synctest.Test(t, func(t *testing.T) {
		s := &source{document: sliding(2)}
		p := following(t, s.load)
		requests := func() {
			for range 30 {
				time.Sleep(100 * time.Millisecond)
				quota(t, p)
			}
		}
		for i, c := range []struct {
			name, document string
			err            error
			quota          int
			rejected       uint64
			lines          string
		}{
			{"it answers", sliding(3), nil, 3, 0, ""},
			{"it fails, which counts once", "", errors.New("down"), 3, 1, "code=plans-not-loaded"},
			{"it answers again", sliding(3), nil, 3, 1, ""},
			{"it fails again", "", errors.New("down"), 3, 2, "code=plans-not-loaded"},
			{"it has another document", sliding(4), nil, 4, 2, ""},
			{"it has a broken one, which counts once", sliding(0), nil, 4, 3, "code=plans-rejected"},
			{"it has another broken one", sliding(0) + "!", nil, 4, 4, "code=plans-rejected"},
			{"it has an empty one", "", nil, 4, 5, "code=plans-rejected"},
			{"it has the last good one", sliding(4), nil, 4, 5, ""},
			{"it has the first one", sliding(3), nil, 3, 5, ""},
		} {
			before := len(log())
			s.document, s.err = c.document, c.err
			requests()
			if got := quota(t, p); got != c.quota || p.Rejected() != c.rejected {
				t.Errorf("%d, %s: %d, and %d rejected", i, c.name, got, p.Rejected())
			}
			lines := log()[before:]
			if n := strings.Count(lines, "level=ERROR"); c.lines == "" && n != 0 || c.lines != "" && (n != 1 || !strings.Contains(lines, c.lines)) {
				t.Errorf("%d, %s: %s", i, c.name, lines)
			}
			err := p.Refresh(context.Background())
			if (err != nil) != (c.lines != "") || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%d, %s: %v", i, c.name, err)
			}
		}
	})
}

// A look that has no answer delays no change beyond two seconds, and counts for nothing when it ends after a
// later one.
func TestALookThatHangs(t *testing.T) {
	for _, c := range []struct {
		name  string
		hangs func(ctx context.Context) ([]byte, error)
	}{
		{"a GET is lost, and the client gives up after three seconds", func(context.Context) ([]byte, error) {
			time.Sleep(3 * time.Second)
			return nil, errors.New("i/o timeout")
		}},
		{"an answer comes late", func(context.Context) ([]byte, error) {
			time.Sleep(3 * time.Second)
			return []byte(sliding(2)), nil
		}},
		{"it waits for its context", func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		{"it heeds no context", func(context.Context) ([]byte, error) {
			time.Sleep(time.Hour)
			return nil, nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := logged(t)
			synctest.Test(t, func(t *testing.T) {
				calls, document := atomic.Int64{}, atomic.Value{}
				document.Store(sliding(2))
				p := following(t, func(ctx context.Context) ([]byte, error) {
					if calls.Add(1) == 2 {
						return c.hangs(ctx)
					}
					return []byte(document.Load().(string)), nil
				})
				document.Store(sliding(3))
				begun := time.Now()
				for time.Since(begun) < 15*time.Second {
					if got := quota(t, p); got != 3 && time.Since(begun) > 1800*time.Millisecond {
						t.Fatalf("%d is in force after %s", got, time.Since(begun))
					}
					time.Sleep(10 * time.Millisecond)
				}
				if n := calls.Load(); n < 15 || n > 17 {
					t.Errorf("%d calls in 15 seconds", n)
				}
				if p.Rejected() != 0 || strings.Contains(log(), "not-loaded") {
					t.Errorf("%d rejected: %s", p.Rejected(), log())
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// A source of which no call ever returns is told, keeps nobody for long, and is not called for ever.
func TestASourceThatNeverReturns(t *testing.T) {
	log := logged(t)
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		p, begun := newPlans(t, sliding(1)), time.Now()
		err := p.Follow(func(context.Context) ([]byte, error) {
			calls.Add(1)
			time.Sleep(time.Hour)
			return nil, errors.New("late")
		})
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 11*time.Second {
			t.Errorf("Follow: %v after %s", err, took)
		}
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			quota(t, p)
		}
		if n := calls.Load(); n > 12 || p.Rejected() != 1 || strings.Count(log(), "code=plans-not-loaded") != 1 {
			t.Errorf("%d calls, %d rejected: %s", n, p.Rejected(), log())
		}
		time.Sleep(2 * time.Hour)
	})
}

// A document that was put in force by a call stays until the source changes.
func TestACallAndASource(t *testing.T) {
	logged(t)
	synctest.Test(t, func(t *testing.T) {
		s := &source{document: sliding(2)}
		p := following(t, s.load)
		later := func(want int) {
			t.Helper()
			time.Sleep(2 * time.Second)
			if got := quota(t, p); got != want {
				t.Errorf("%d, want %d", got, want)
			}
		}
		if err := p.Update([]byte(sliding(7))); err != nil {
			t.Fatal(err)
		}
		later(7)
		later(7)
		s.document = sliding(3)
		later(3)
		other := &source{err: errors.New("down")}
		if err := p.Follow(other.load); !errors.Is(err, other.err) {
			t.Errorf("Follow of a source that fails: %v", err)
		}
		s.document = sliding(4)
		later(3)
		other.document, other.err = sliding(5), nil
		later(5)
	})
}

// A source that panics has failed. It ends no process.
func TestASourcePanics(t *testing.T) {
	logged(t)
	synctest.Test(t, func(t *testing.T) {
		panics := false
		p := following(t, func(context.Context) ([]byte, error) {
			if panics {
				panic("theirs")
			}
			return []byte(sliding(2)), nil
		})
		panics = true
		time.Sleep(2 * time.Second)
		if got := quota(t, p); got != 2 || p.Rejected() != 1 {
			t.Errorf("%d, and %d rejected", got, p.Rejected())
		}
		if err := p.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "theirs") {
			t.Error(err)
		}
	})
}
