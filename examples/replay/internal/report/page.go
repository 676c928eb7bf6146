package report

// The report as one page, without anything to load.

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": count, "group": group, "percent": percent, "instant": instant, "brief": Brief, "rate": rate,
	"name": Printable, "n": func(n int) int64 { return int64(n) }, "noGuess": func() string { return noGuess },
}).Parse(pageText))

// A page is what the template shows.
type page struct {
	*Report
	Notes   []string
	Loud    bool // the first of them is on what is lost
	Zone    string
	Actions []actionPart
}

type actionPart struct {
	*Action
	Limits             []limitPart
	Chart              chart
	Heat               heat
	Suggested, Touched string
}

type limitPart struct {
	Limit
	LongestWait string
	Heat        heat
	IDs         bool // some user id is behind the most refused
}

// Page writes the report as a page, which replaces what the file has.
func Page(file string, r *Report) error {
	p := page{Report: r, Notes: notes(r), Zone: zone(r)}
	_, share := r.Lost()
	p.Loud = share >= loud
	for i := range r.Actions {
		a := &r.Actions[i]
		part := actionPart{Action: a}
		if a.Requests > 0 {
			part.Chart, part.Heat = curves(a), heatOf(a.Hours, "request")
			part.Suggested, part.Touched = suggestion(a)
		}
		for _, l := range r.Limits {
			if l.Action == a.Name {
				part.Limits = append(part.Limits, limitPart{
					l, longestWait(&l), heatOf(l.Hours, "refusal"),
					slices.ContainsFunc(l.Most, func(u RefusedUser) bool { return u.IDs > 0 }),
				})
			}
		}
		p.Actions = append(p.Actions, part)
	}
	var b strings.Builder
	if err := pageTemplate.Execute(&b, p); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// heat is a week of hours, each with its share of the busiest one.
type heat []heatDay

type heatDay struct {
	Day   string
	Hours []heatHour
}

type heatHour struct {
	Share float64
	Title string
}

func heatOf(h Hours, what string) (week heat) {
	most := int64(1)
	for _, day := range h {
		for _, n := range day {
			most = max(most, n)
		}
	}
	for i := range h {
		weekday := time.Weekday((i + 1) % 7) // Monday first
		day := heatDay{Day: weekday.String()[:3]}
		for hour, n := range h[weekday] {
			share := 0.0
			if n > 0 { // the square root shows that a few are not none
				share = math.Round(100*math.Sqrt(float64(n)/float64(most))) / 100
			}
			day.Hours = append(day.Hours, heatHour{share, fmt.Sprintf("%s %02d:00: %s", day.Day, hour, count(n, what))})
		}
		week = append(week, day)
	}
	return week
}

// A chart is the share of users touched by max, both on logarithmic scales.
type chart struct {
	Width, Height, Left, Right, Top, Bottom float64
	X, Y                                    []tick
	Curves                                  []curve
}

type tick struct {
	At    float64
	Text  string
	Dense bool // too much for a narrow page
}

type curve struct {
	Name string
	Path string
	Dots []dot
}

type dot struct {
	X, Y  float64
	Title string
}

func curves(a *Action) chart {
	c := chart{Width: 640, Height: 280, Left: 64, Right: 628, Top: 14, Bottom: 236}
	most := 2.0
	for _, w := range a.Windows {
		most = max(most, float64(w.Max.Nobody))
	}
	x := func(m float64) float64 {
		return tenth(c.Left + (c.Right-c.Left)*math.Log(max(m, 1))/math.Log(most))
	}
	least := min(0.0003, 0.5/float64(a.Users)) // the lowest share, a line above none
	y := func(share float64) float64 {
		if share < least {
			return c.Bottom
		}
		return tenth(c.Top + (c.Bottom-c.Top)*math.Log(share)/math.Log(least))
	}
	for _, share := range []float64{1, 0.1, 0.01, 0.001, 0.0001, 0.00001} {
		if share > least {
			c.Y = append(c.Y, tick{At: y(share), Text: fmt.Sprintf("%g%%", share*100)})
		}
	}
	c.Y = append(c.Y, tick{At: c.Bottom, Text: "0"})
	step := 10.0
	if most > 1e7 { // long labels need room
		step = 1000
	}
	for m := 1.0; m <= most; m *= step {
		for _, n := range []float64{m, 2 * m, 5 * m} {
			if n <= most && (n == m || most < 2000) {
				c.X = append(c.X, tick{x(n), group(int64(n)), n != m})
			}
		}
	}
	for _, w := range a.Windows {
		line := curve{Name: Brief(w.Period)}
		path := fmt.Sprintf("M%g %g", x(1), y(1))
		for _, p := range w.Curve {
			path += fmt.Sprintf("H%gV%g", x(float64(p.Max)), y(p.Share))
			line.Dots = append(line.Dots, dot{x(float64(p.Max)), y(p.Share), fmt.Sprintf("SlidingWindow(%d, %s) touches %s of the users", p.Max, line.Name, percent(int64(math.Round(p.Share*float64(a.Users))), int64(a.Users)))})
		}
		line.Path = path
		c.Curves = append(c.Curves, line)
	}
	return c
}

func tenth(f float64) float64 { return math.Round(f*10) / 10 }
