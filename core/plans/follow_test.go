package plans_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	return []byte(s.document), s.err
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
		if err := p.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) || s.calls != calls+1 {
			t.Errorf("Refresh during a look: %v, %d calls", err, s.calls-calls)
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

// write writes a file whose time of modification is by the bubble's clock.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Whenever a file changes, requests have the new numbers within two seconds.
func TestAFileIsInForceWithinTwoSeconds(t *testing.T) {
	for _, change := range []struct {
		name  string
		write func(t *testing.T, path, text string)
	}{{"written", write}, {"renamed", rename}} {
		for offset := time.Duration(0); offset <= time.Second; offset += 50 * time.Millisecond {
			t.Run(fmt.Sprintf("%s/%s", change.name, offset), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "plans.json")
					write(t, path, sliding(2))
					p := following(t, plans.File(path))
					time.Sleep(offset)
					quota(t, p)
					change.write(t, path, sliding(3))
					begun := time.Now()
					for quota(t, p) != 3 {
						time.Sleep(5 * time.Millisecond)
						if time.Since(begun) > 2*time.Second {
							t.Fatal("it is not in force after two seconds")
						}
					}
				})
			})
		}
	}
}

// What is being written is not taken, even if it is a valid document.
func TestAFileThatIsBeingWritten(t *testing.T) {
	log := logged(t)
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "plans.json")
		write(t, path, sliding(2))
		begun := time.Now()
		p := following(t, plans.File(path))
		if took := time.Since(begun); took != 500*time.Millisecond {
			t.Errorf("the first look takes %s", took)
		}
		for n := range 30 { // each of these is valid
			write(t, path, sliding(100+n))
			time.Sleep(100 * time.Millisecond)
			if got := quota(t, p); got != 2 {
				t.Fatalf("%d is in force after %s", got, time.Since(begun))
			}
		}
		text := sliding(3)
		for n := range len(text) - 1 { // these are not
			write(t, path, text[:n])
			time.Sleep(50 * time.Millisecond)
			quota(t, p)
		}
		write(t, path, text[:len(text)-1]) // and here the writer pauses
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if got := quota(t, p); got != 2 {
				t.Fatalf("%d is in force", got)
			}
		}
		if log := log(); p.Rejected() != 1 || strings.Count(log, "unexpected end of JSON input") != 1 {
			t.Errorf("%d rejected: %s", p.Rejected(), log)
		}
		write(t, path, text)
		time.Sleep(2 * time.Second)
		if got := quota(t, p); got != 3 {
			t.Errorf("%d is in force", got)
		}
	})
}

// Another file of the same size and time is noticed, and so are the same size, and a time that goes back.
func TestAFileIsReplaced(t *testing.T) {
	logged(t)
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "plans.json")
		write(t, path, sliding(2))
		time.Sleep(time.Second)
		p := following(t, plans.File(path))
		at := time.Now().Add(-time.Second)
		later := func(want int) {
			t.Helper()
			time.Sleep(2 * time.Second)
			if got := quota(t, p); got != want {
				t.Errorf("%d, want %d", got, want)
			}
		}
		rename(t, path, sliding(3))
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		later(3)
		write(t, path, sliding(4))
		if err := os.Chtimes(path, at.Add(-time.Hour), at.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		later(4)
		write(t, path, sliding(5))
		if err := os.Chtimes(path, at.Add(time.Hour), at.Add(time.Hour)); err != nil { // the clock of its machine is fast
			t.Fatal(err)
		}
		later(4) // it was seen once
		later(5)

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		later(5)
		if err := p.Refresh(context.Background()); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := p.Refresh(context.Background()); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Error(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, sliding(6))
		if err := os.Truncate(path, 65<<20); err != nil {
			t.Fatal(err)
		}
		if err := p.Refresh(context.Background()); err == nil || !strings.Contains(err.Error(), "has 68157440 bytes, and 67108864 are the most") {
			t.Error(err)
		}
		rename(t, path, sliding(6))
		later(6)
		if p.Rejected() != 1 {
			t.Errorf("%d rejected", p.Rejected())
		}
	})
}

// A file that never stops changing does not hold a program that starts for ever.
func TestAFileThatChangesAllTheTime(t *testing.T) {
	logged(t)
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "plans.json")
		write(t, path, sliding(2))
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					write(t, path, sliding(2))
				}
			}
		}()
		begun := time.Now()
		err := newPlans(t, sliding(1)).Follow(plans.File(path))
		if err == nil || !strings.Contains(err.Error(), "changes all the time") || time.Since(begun) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		close(stop)
		<-stopped
	})
}

func TestSeveralPlansFollowOneFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "plans.json")
		write(t, path, sliding(2))
		file := plans.File(path)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				p := newPlans(t, sliding(1))
				if err := p.Follow(file); err != nil || quota(t, p) != 2 {
					t.Error(err)
				}
			})
		}
		all.Wait()
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
