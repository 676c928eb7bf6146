package blobstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/storetest"
)

func TestConforms(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Fixture {
		now := time.Now()
		return storetest.Fixture{
			Store:   New(func() time.Time { return now }),
			Advance: func(d time.Duration) { now = now.Add(d) },
			Now:     func() time.Time { return now },
		}
	})
}

func TestACorruptStateIsAnError(t *testing.T) {
	s := New(time.Now)
	l := core.Must(core.New(s, core.SlidingWindow(5, time.Hour)))
	if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
		t.Fatal(err)
	}
	for k, b := range s.blobs {
		b.state = []byte("corrupt")
		s.blobs[k] = b
	}
	if _, err := l.Allow(t.Context(), "u", "a"); !errors.Is(err, machine.ErrBinary) {
		t.Errorf("%v", err)
	}
}

// After one new user a second for hours, little more is kept than the users of the last minute.
func TestExpiredStatesAreDeleted(t *testing.T) {
	now := time.Now()
	s := New(func() time.Time { return now })
	l := core.Must(core.New(s, core.SlidingWindow(5, time.Minute)))
	for i := range 10_000 {
		if _, err := l.Allow(t.Context(), fmt.Sprint("user", i), "a"); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if n := len(s.blobs); n > 1000 {
		t.Errorf("%d states, of which 60 count", n)
	}
}

func Example() {
	store := New(time.Now)
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
	for range 6 {
		d, err := replies.Allow(context.Background(), "alice", "reply")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 4 <nil>
	// true 3 <nil>
	// true 2 <nil>
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
