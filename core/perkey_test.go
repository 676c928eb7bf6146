package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func TestPerKeyKeepsLimitersAndErrors(t *testing.T) {
	store, bad := memorystore.New(nil), errors.New("no such key")
	made := map[int]int{}
	limiters := core.PerKey(func(key int) (*core.Limiter, error) {
		if made[key]++; key < 0 {
			return nil, bad
		}
		return core.New(store, core.FixedWindow(key+1, time.Minute))
	})
	for _, key := range []int{3, -1, 4, 3, -1} {
		l, err := limiters(key)
		if key < 0 && err != bad || key >= 0 && (err != nil || l.Limits()[0].Quota() != key+1) {
			t.Errorf("%d: %v, %v", key, l, err)
		}
	}
	if made[3] != 1 || made[-1] != 1 {
		t.Errorf("made %v", made)
	}
	for key := range 30_000 {
		if _, err := limiters(key); err != nil {
			t.Fatal(err)
		}
	}
	kept := 0
	clear(made)
	for key := range 30_000 {
		if _, err := limiters(key); err == nil && made[key] == 0 {
			kept++
		}
	}
	if kept == 0 || kept > 10_000 {
		t.Errorf("%d of 30,000 are kept", kept)
	}
}

func TestPerKeyHasOneLimiterForAllGoroutines(t *testing.T) {
	store := memorystore.New(nil)
	limiters := core.PerKey(func(string) (*core.Limiter, error) { return core.New(store, core.FixedWindow(1, time.Minute)) })
	var got sync.Map
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if l, err := limiters("UTC"); err == nil {
				got.Store(l, true)
			}
		})
	}
	wg.Wait()
	n := 0
	got.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d limiters of one key", n)
	}
}

// Each customer has 100 reports in a month that begins on the day on which the customer has paid.
func ExamplePerKey() {
	now := time.Date(2026, 2, 20, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	quotas := core.PerKey(func(day int) (*core.Limiter, error) {
		return core.New(store, core.CalendarWindow(100, core.Month.From(day), time.UTC))
	})
	for _, customer := range []struct {
		name string
		paid int // day of the month
	}{{"alice", 17}, {"bob", 31}} {
		quota, err := quotas(customer.paid)
		if err != nil {
			fmt.Println(err)
			return
		}
		d, _ := quota.Allow(context.Background(), customer.name, "report")
		fmt.Println(customer.name, d.Remaining, "left until", now.Add(d.ResetAfter).Format("January 2"))
	}
	// Output:
	// alice 99 left until March 17
	// bob 99 left until February 28
}
