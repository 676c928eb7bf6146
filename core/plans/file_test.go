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

// "So it also notices a change that keeps the size and the modification time."
// Whenever and however a file changes, requests have the new numbers within two seconds.
func TestAFileIsInForceWithinTwoSeconds(t *testing.T) {
	keep := func(add time.Duration) func(t *testing.T, path, text string) {
		return func(t *testing.T, path, text string) {
			was, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, text)
			at := was.ModTime().Add(add)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, change := range []struct {
		name  string
		write func(t *testing.T, path, text string)
	}{
		{"written", write},
		{"renamed", rename},
		{"of the same size and time, as rsync --inplace -t and coarse clocks leave it", keep(0)},
		{"of a time in the future", keep(time.Hour)},
		{"of a time long ago", keep(-time.Hour)},
	} {
		for offset := time.Duration(0); offset <= time.Second; offset += 50 * time.Millisecond {
			t.Run(fmt.Sprintf("%s/%s", change.name, offset), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "plans.json")
					write(t, path, sliding(2))
					p := following(t, plans.File(path))
					defer time.Sleep(time.Second) // looks end
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

// "So it usually does not return a half-written file"
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
		defer time.Sleep(time.Second) // looks end
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			quota(t, p)
		}
		if got := quota(t, p); got != 3 {
			t.Errorf("%d is in force", got)
		}
	})
}

// A file that cannot be taken changes nothing.
func TestAFileThatCannotBeTaken(t *testing.T) {
	logged(t)
	for _, c := range []struct {
		name  string
		spoil func(path string) error
		want  string
	}{
		{"none", os.Remove, "no such file"},
		{"a directory", func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, "is not a regular file"},
		{"too large", func(path string) error { return os.Truncate(path, 65<<20) }, "has 68157440 bytes, and 67108864 are the most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "plans.json")
				write(t, path, sliding(2))
				p := following(t, plans.File(path))
				if err := c.spoil(path); err != nil {
					t.Fatal(err)
				}
				if err := p.Refresh(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) || p.Rejected() != 1 || quota(t, p) != 2 {
					t.Errorf("%v, want %s; %d rejected, %d in force", err, c.want, p.Rejected(), quota(t, p))
				}
			})
		})
	}
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
