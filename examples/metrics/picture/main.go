// Command picture draws the panels of dashboard.json from what a Prometheus has, as an SVG,
// for where there is no Grafana:
//
//	go run ./picture [-prometheus host:port] [-minutes n] > dashboard.svg
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"log"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	addr := flag.String("prometheus", "127.0.0.1:9090", "the `host:port` of Prometheus")
	minutes := flag.Int("minutes", 5, "how many to draw")
	flag.Parse()
	if err := run(os.Stdout, "dashboard.json", *addr, time.Duration(*minutes)*time.Minute); err != nil {
		log.Fatal("picture: ", err)
	}
}

// A dashboard is what is drawn of Grafana's JSON.
type dashboard struct{ Panels []panel }

type panel struct {
	Title       string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat string }
}

// A series is one line of a panel. Its values are NaN where there are none.
type series struct {
	name   string
	values []float64
}

const points = 120

func run(w io.Writer, file, addr string, span time.Duration) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var board dashboard
	if err := json.Unmarshal(raw, &board); err != nil {
		return err
	}
	end := time.Now()
	rows := 0
	for _, p := range board.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11">`+"\n", 24*column+gap, rows*row+gap)
	fmt.Fprintln(w, `<rect width="100%" height="100%" fill="#f4f5f7"/>`)
	for _, p := range board.Panels {
		var all []series
		for _, target := range p.Targets {
			found, err := query(addr, strings.ReplaceAll(target.Expr, "$__rate_interval", "20s"), target.LegendFormat, end.Add(-span), end)
			if err != nil {
				return fmt.Errorf("panel %q: %w", p.Title, err)
			}
			all = append(all, found...)
		}
		p.draw(w, all, end.Add(-span), end)
	}
	_, err = fmt.Fprintln(w, "</svg>")
	return err
}

func query(addr, expr, legend string, from, to time.Time) ([]series, error) {
	at := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	step := to.Sub(from).Seconds() / (points - 1)
	resp, err := http.Get("http://" + addr + "/api/v1/query_range?" + url.Values{
		"query": {expr}, "start": {at(from)}, "end": {at(to)}, "step": {strconv.FormatFloat(step, 'f', 3, 64)},
	}.Encode())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var body struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return nil, err
	}
	if body.Error != "" {
		return nil, fmt.Errorf("Prometheus says: %s", body.Error)
	}
	var all []series
	for _, r := range body.Data.Result {
		s := series{name: legend, values: make([]float64, points)}
		for label, value := range r.Metric {
			s.name = strings.ReplaceAll(s.name, "{{"+label+"}}", value)
		}
		for i := range s.values {
			s.values[i] = math.NaN()
		}
		for _, v := range r.Values {
			when, ok := v[0].(float64)
			value, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64)
			if i := int(math.Round((when - float64(from.UnixMilli())/1000) / step)); ok && err == nil && i >= 0 && i < points {
				s.values[i] = value
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b series) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// The measures of the picture, in pixels.
const (
	column, row, gap                    = 50, 33, 8
	marginLeft, marginTop, marginBottom = 58, 34, 56
	marginRight                         = 16
)

var colours = []string{"#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#b82e2e", "#66aa00"}

func (p *panel) draw(w io.Writer, all []series, from, to time.Time) {
	x, y := p.GridPos.X*column+gap, p.GridPos.Y*row+gap
	width, height := p.GridPos.W*column-gap, p.GridPos.H*row-gap
	left, top := float64(marginLeft), float64(marginTop)
	right, bottom := float64(width-marginRight), float64(height-marginBottom)
	fmt.Fprintf(w, `<g transform="translate(%d %d)"><rect width="%d" height="%d" rx="4" fill="#fff" stroke="#d8dbe0"/>`+"\n", x, y, width, height)
	fmt.Fprintf(w, `<text x="12" y="21" font-size="13" font-weight="bold" fill="#222">%s</text>`+"\n", html.EscapeString(p.Title))

	highest := 0.0
	for _, s := range all {
		for _, v := range s.values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				highest = max(highest, v)
			}
		}
	}
	step := tick(highest)
	most := step * max(1, math.Ceil(highest/step-1e-9))
	for v := 0.0; v <= most+step/2; v += step {
		at := bottom - (bottom-top)*v/most
		fmt.Fprintf(w, `<path d="M%.0f %.1fH%.0f" stroke="#e6e8eb"/><text x="%.0f" y="%.1f" text-anchor="end" fill="#666">%s</text>`+"\n", left, at, right, left-6, at+4, label(v, p.FieldConfig.Defaults.Unit))
	}
	for i := range 5 {
		when := from.Add(to.Sub(from) * time.Duration(i) / 4)
		fmt.Fprintf(w, `<text x="%.0f" y="%.0f" text-anchor="end" fill="#666">%s</text>`+"\n", max(left+(right-left)*float64(i)/4, left+44), bottom+15, when.Format("15:04:05"))
	}
	for i, s := range all {
		var path strings.Builder
		pen := "M"
		for j, v := range s.values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, left+(right-left)*float64(j)/(points-1), bottom-(bottom-top)*v/most)
			pen = "L"
		}
		fmt.Fprintf(w, `<path d="%s" fill="none" stroke="%s" stroke-width="1.8"/>`+"\n", path.String(), colours[i%len(colours)])
	}
	at, line := 14.0, bottom+34
	for i, s := range all {
		long := 24 + 6.6*float64(len(s.name))
		if at+long > float64(width) && at > 14 {
			at, line = 14, line+15
		}
		fmt.Fprintf(w, `<rect x="%.0f" y="%.0f" width="10" height="3" fill="%s"/><text x="%.0f" y="%.0f" fill="#333">%s</text>`+"\n", at, line-5, colours[i%len(colours)], at+14, line, html.EscapeString(s.name))
		at += long
	}
	if len(all) == 0 {
		fmt.Fprintf(w, `<text x="%.0f" y="%.0f" text-anchor="middle" fill="#888">no data</text>`+"\n", (left+right)/2, (top+bottom)/2)
	}
	fmt.Fprintln(w, "</g>")
}

// tick is a round distance of the lines of an axis up to a value.
func tick(highest float64) float64 {
	if highest <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(highest/4)))
	for _, m := range []float64{1, 2, 5} {
		if highest/(m*power) <= 5 {
			return m * power
		}
	}
	return 10 * power
}

func label(v float64, unit string) string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	switch {
	case unit == "percentunit":
		return number(v*100) + " %"
	case unit == "ops":
		return number(v) + "/s"
	case unit == "s" && v > 0:
		return number(v*1000) + " ms"
	}
	return number(v)
}
