package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tailcut/tailcut/core/storetest/redistest"
)

func TestTheCommittedFigureIsWhatTheProgramDraws(t *testing.T) {
	want, err := os.ReadFile("figure.svg")
	if err != nil {
		t.Fatal(err)
	}
	if figure() != string(want) {
		t.Error("the program draws another figure: go run ./examples/compare -svg examples/compare/figure.svg, and look at it")
	}
}

func TestTheFigureLoadsNothing(t *testing.T) {
	for d := xml.NewDecoder(strings.NewReader(figure())); ; {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			switch start.Name.Local {
			case "svg", "title", "desc", "style", "rect", "text", "path", "g":
			default:
				t.Errorf("there is a %s in it", start.Name.Local)
			}
			for _, a := range start.Attr {
				if a.Name.Local == "href" || strings.Contains(a.Value, "url(") {
					t.Errorf("%s refers to %s", start.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestTheREADMEHasTheTables(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	quotas := sizes[:len(sizes)-1]
	if os.Getenv("CI") != "" && !testing.Short() {
		quotas = sizes // the largest takes 10 s of processor time
	}
	for _, line := range strings.Split(behaviours(quotas).String()+judgements().String(), "\n") {
		if !strings.Contains(string(readme), line) {
			t.Errorf("the README lacks %s", line)
		}
	}
}

func TestContendersOfAGroupDecideAlike(t *testing.T) {
	for i := range contenders[1:] {
		a, b := &contenders[i], &contenders[i+1]
		for j := range traffics {
			one, other := tell(a, shown, &traffics[j]), tell(b, shown, &traffics[j])
			if alike := reflect.DeepEqual(one.attempts, other.attempts); a.group == b.group && !alike {
				t.Errorf("%s and %s differ under %s", a.name, b.name, traffics[j].name)
			}
		}
	}
}

// What the figure's columns are there to show.
func TestTheTrafficDistinguishesTheLimits(t *testing.T) {
	const edge, steady, hammer, quiet = 0, 1, 2, 3
	for _, tt := range []struct {
		limit        string
		traffic      int
		passed, most int
	}{
		{"FixedWindow", edge, 10, 9},
		{"MovingWindow", edge, 6, 5},
		{"FixedWindow", steady, 15, 5},
		{"ElasticWindow", steady, 5, 5},
		{"Funnel", steady, 19, 9},
		{"ElasticWindow", hammer, 6, 5}, // the sixth after its rest
		{"MovingWindow", hammer, 11, 5},
		{"ElasticWindow", quiet, 5, 5}, // nothing after the burst
		{"FixedWindow", quiet, 8, 5},
		{"Funnel", quiet, 10, 7},
	} {
		for i := range contenders {
			if c := &contenders[i]; c.name == tt.limit {
				if s := tell(c, shown, &traffics[tt.traffic]); s.passed != tt.passed || s.most != tt.most {
					t.Errorf("%s under %s: %d pass, %d in a period; want %d, %d", c.name, traffics[tt.traffic].name, s.passed, s.most, tt.passed, tt.most)
				}
			}
		}
	}
}

func TestLevelIsTheQuotaInUse(t *testing.T) {
	for i := range contenders {
		for j := range traffics {
			s := tell(&contenders[i], shown, &traffics[j])
			for k, p := range s.level {
				if p.used < 0 || p.used > period || k > 0 && p.at < s.level[k-1].at {
					t.Errorf("%s under %s: %v follows %v", contenders[i].name, traffics[j].name, p, s.level[max(0, k-1)])
				}
			}
			if last := s.level[len(s.level)-1]; last.at != traffics[j].length {
				t.Errorf("%s under %s ends at %s", contenders[i].name, traffics[j].name, last.at)
			}
		}
	}
}

func TestMostWithinIsTheMostOfAnyInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length = 10
		at := []time.Duration{rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(0, 9).Draw(t, "first")) }).Draw(t, "at")}
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			at = append(at, at[len(at)-1]+time.Duration(rapid.IntRange(0, 12).Draw(t, "gap")))
		}
		best := 0
		for from := at[0]; from <= at[len(at)-1]; from++ {
			n := 0
			for _, a := range at {
				if from <= a && a < from+length {
					n++
				}
			}
			best = max(best, n)
		}
		if most, _ := mostWithin(at, length); most != best {
			t.Fatalf("%d, want %d of %v", most, best, at)
		}
	})
}

func TestComparePrintsAndDraws(t *testing.T) {
	s := settings{svg: filepath.Join(t.TempDir(), "figure.svg"), quotas: []int{5, 100}, each: time.Millisecond, keys: 1000, decisions: 20}
	t.Run("without a Redis", func(t *testing.T) {
		var out strings.Builder
		if err := compare(t.Context(), s, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{s.svg, "10 of  10 pass", "ns in process", "give -redis"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it does not print %q:\n%s", want, out.String())
			}
		}
		if drawn, err := os.ReadFile(s.svg); err != nil || string(drawn) != figure() {
			t.Errorf("it has not drawn the figure: %v", err)
		}
	})
	t.Run("a Redis that is not there", func(t *testing.T) {
		s.redis = "127.0.0.1:1"
		if err := compare(t.Context(), s, io.Discard); err == nil || !strings.Contains(err.Error(), s.redis) {
			t.Error(err)
		}
	})
	t.Run("with a Redis, which is left empty", func(t *testing.T) {
		server := redistest.Start(t)
		s.redis = server.Addr
		var out strings.Builder
		if err := compare(t.Context(), s, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "µs on Redis") || strings.Contains(out.String(), "| 0 |") {
			t.Errorf("it has not measured all:\n%s", out.String())
		}
		if reply := server.Do("DBSIZE"); reply != ":0" {
			t.Errorf("DBSIZE is %s", reply)
		}
	})
}
