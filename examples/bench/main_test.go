package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Every row runs, and its tables are whole.
func TestRows(t *testing.T) {
	s := settings{rounds: 2, fixed: 500, million: 5000, abuse: 100 * time.Millisecond}
	if _, err := exec.LookPath("redis-server"); err == nil {
		if s.redis, err = connect(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		defer s.redis.close()
	}
	for i, r := range rows {
		t.Run(r.title, func(t *testing.T) {
			if r.redis && s.redis == nil {
				t.Skip("redis-server is not installed; get it with: apt-get install redis-server (Debian, Ubuntu)")
			}
			if r.number != i+1 {
				t.Errorf("the row at %d has the number %d", i+1, r.number)
			}
			tables, err := r.run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range tables {
				var out bytes.Buffer
				table.print(&out)
				if len(table.lines) == 0 {
					t.Errorf("no lines: %s", &out)
				}
				for _, line := range table.lines {
					if len(line) != len(table.head) {
						t.Errorf("%d cells under %d heads: %q", len(line), len(table.head), line)
					}
				}
				for _, bad := range []string{"NaN", "Inf", "% of the decisions"} {
					if strings.Contains(out.String(), bad) {
						t.Errorf("%q in\n%s", bad, &out)
					}
				}
			}
		})
	}
}

// The keys of row 2 must still be held when they are counted.
func TestAFunnelKeepsItsKeys(t *testing.T) {
	tables, err := memory(t.Context(), settings{million: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	if bytes, err := strconv.Atoi(tables[0].lines[0][1]); err != nil || bytes < 16 {
		t.Errorf("%d bytes a key, %v", bytes, err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-only", "0"}, {"-only", "16"}, {"-only", "1,,2"}, {"-only", "x"}, {"-rounds", "0"}, {"-seconds", "0"}, {"more"},
	} {
		if err := bench(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if err := bench(t.Context(), []string{"-h"}, new(bytes.Buffer)); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	chosen, err := choose("10, 2")
	if err != nil || len(chosen) != 2 || chosen[0].number != 10 || chosen[1].number != 2 {
		t.Errorf("%v, %v", chosen, err)
	}
}

// Without a Redis the other rows are measured, and it is said how to get one.
func TestWithoutRedis(t *testing.T) {
	t.Setenv("PATH", "")
	var out bytes.Buffer
	if err := bench(t.Context(), []string{"-only", "4,10", "-rounds", "1", "-seconds", "0.001"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"apt-get install redis-server", "-redis host:port", "2 procs"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// A run that is interrupted ends, with what it has.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bench(ctx, []string{"-only", "10"}, new(bytes.Buffer)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestNumbers(t *testing.T) {
	if got := quotient([]float64{2, 9, 4}, []float64{1, 3, 4}); got != 2 {
		t.Errorf("quotient %v", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median %v", got)
	}
	for n, want := range map[int]string{1: "1 key", 10_000: "10,000 keys", 1_000_000: "1,000,000 keys"} {
		if got := count(n, "key"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for f, want := range map[float64]string{0: "0", -0.01: "0", 2.04: "2", 2.25: "2.3", -1: "-1"} {
		if got := few(f); got != want {
			t.Errorf("few(%v): %s, want %s", f, got, want)
		}
	}
}
