package main

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// The figure's measures, in pixels at 800 wide.
const (
	width      = 800
	panelLeft  = 176
	panelWidth = 144
	panelGap   = 12
	panelsTop  = 112
	rowHeight  = 74
	groupGap   = 12
	margin     = 12

	// Within a row.
	busyTop    = 12 // the bracket over the busiest minute
	passedTop  = 18
	passedTall = 12
	refusedTop = 32
	refusedEnd = 37
	levelTop   = 42
	levelEnd   = 68
)

// style has both colour schemes. Blue and vermilion are Okabe and Ito's, which people with
// any kind of colour vision tell apart; they differ in height and place as well.
const style = `
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1b1f24 }
.page { fill: #ffffff }
.card { fill: #f3f5f8 }
.title { font-size: 17px; font-weight: 650 }
.head { font-weight: 650 }
.soft { fill: #57606a; font-size: 11px }
.axis { stroke: #d0d7de; stroke-width: 1 }
.passed { stroke: #0072b2; stroke-width: 2 }
.refused { stroke: #d55e00; stroke-width: 1.6 }
.level { fill: #9fb4c7; fill-opacity: .75; stroke: #5b7690; stroke-width: 1 }
.quota { stroke: #1b1f24; stroke-width: 1; stroke-dasharray: 2 2; stroke-opacity: .55 }
.busy { fill: none; stroke: #8c959f; stroke-width: 1 }
.count { fill: #57606a; font-size: 11px; text-anchor: middle }
.over { font-weight: 700; fill: #ffffff; font-size: 11px; text-anchor: middle }
.pill { fill: #1b1f24 }
.overbusy { fill: none; stroke: #1b1f24; stroke-width: 1.6 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.page { fill: #0d1117 }
.card { fill: #171d26 }
.soft, .count { fill: #9aa7b4 }
.axis { stroke: #30363d }
.passed { stroke: #56b4e9 }
.refused { stroke: #ff8c42 }
.level { fill: #4c6178; stroke: #8ba3ba }
.quota { stroke: #e6edf3 }
.busy { stroke: #7d8894 }
.over { fill: #0d1117 }
.pill { fill: #e6edf3 }
.overbusy { stroke: #e6edf3 }
}
`

// A drawing is SVG that is being written.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(class string, x, y float64, s string) {
	d.add(`<text class="%s" x="%s" y="%s">%s</text>`, class, px(x), px(y), html.EscapeString(s))
}

// px is a coordinate, in tenths of a pixel at most.
func px(x float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}

// figure draws every limit under every traffic.
func figure() string {
	height := panelsTop + len(contenders)*rowHeight + contenders[len(contenders)-1].group*groupGap + 30
	d := &drawing{}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`, width, height, width, height)
	d.add(`<title id="title">Limits of %d a minute under the same requests</title>`, shown)
	d.add(`<desc id="desc">%s</desc>`, html.EscapeString(summary()))
	d.add("<style>%s</style>", style)
	d.add(`<rect class="page" width="%d" height="%d" rx="8"/>`, width, height)
	d.legend()
	for i := range traffics {
		x := panelX(i)
		d.text("head", x, panelsTop-24, traffics[i].name)
		d.text("soft", x, panelsTop-9, traffics[i].asks)
	}
	top := float64(panelsTop)
	for i := range contenders {
		c := &contenders[i]
		if i == 0 || contenders[i-1].group != c.group {
			n := 1
			for i+n < len(contenders) && contenders[i+n].group == c.group {
				n++
			}
			if i > 0 {
				top += groupGap
			}
			d.add(`<rect class="card" x="6" y="%s" width="%d" height="%d" rx="6"/>`, px(top-2), width-12, n*rowHeight+4)
		}
		d.text("head", margin+4, top+26, c.name)
		for j, line := range c.lines {
			d.text("soft", margin+4, top+41+float64(j)*13, line)
		}
		for j := range traffics {
			d.panel(c, &traffics[j], panelX(j), top)
		}
		top += rowHeight
	}
	for i := range traffics {
		d.axis(&traffics[i], panelX(i), top+16)
	}
	d.add("</svg>")
	return d.String()
}

func panelX(i int) float64 { return panelLeft + float64(i)*(panelWidth+panelGap) }

// legend is the title and what the marks mean.
func (d *drawing) legend() {
	d.text("title", margin+4, 28, fmt.Sprintf("Every limit has one quota, %d a minute, and gets the same requests.", shown))
	const y = 54
	x := float64(margin + 4)
	d.add(`<path class="passed" d="M%s %dv12m5-12v12m5-12v12"/>`, px(x+2), y-10)
	d.text("", x+20, y, "passed")
	x += 80
	d.add(`<path class="refused" d="M%s %dv5m4-5v5m4-5v5m4-5v5"/>`, px(x+2), y-6)
	d.text("", x+22, y, "refused")
	x += 88
	d.add(`<path class="level" d="M%s %dv-11h8l14 11z"/><path class="quota" d="M%s %dh24"/>`, px(x), y, px(x), y-11)
	d.text("", x+30, y, fmt.Sprintf("how much of the %d is used", shown))
	x += 212
	d.add(`<path class="busy" d="M%s %dv-4h40v4"/>`, px(x), y-1)
	d.text("", x+46, y, "passed in the busiest minute")
	x += 236
	d.add(`<rect class="pill" x="%s" y="%d" width="24" height="15" rx="7.5"/>`, px(x), y-12)
	d.text("over", x+12, y-0.5, fmt.Sprint(2*shown-1))
	d.text("", x+30, y, fmt.Sprintf("more than %d", shown))
}

// axis labels the minutes under a column.
func (d *drawing) axis(tr *traffic, x, y float64) {
	for m := time.Duration(0); m <= tr.length; m += period {
		label, anchor := fmt.Sprint(int(m/period)), "middle"
		switch m {
		case 0:
			anchor = "start"
		case tr.length:
			label, anchor = label+" min", "end"
		}
		d.add(`<text class="soft" text-anchor="%s" x="%s" y="%s">%s</text>`, anchor, px(x+tr.x(m)), px(y), label)
	}
}

// x is where an instant is in a panel.
func (tr *traffic) x(at time.Duration) float64 {
	return float64(at) / float64(tr.length) * panelWidth
}

// panel draws what one limit made of one traffic.
func (d *drawing) panel(c *contender, tr *traffic, left, top float64) {
	s := tell(c, shown, tr)
	d.add(`<g transform="translate(%s %s)"><title>%s</title>`, px(left), px(top), html.EscapeString(s.sentence(c, tr)))
	for m := time.Duration(0); m <= tr.length; m += period {
		d.add(`<path class="axis" d="M%s %dV%d"/>`, px(tr.x(m)), passedTop, levelEnd)
	}

	var area strings.Builder
	y := func(used time.Duration) string {
		return px(levelEnd - float64(used)/float64(period)*(levelEnd-levelTop))
	}
	for _, p := range s.level {
		fmt.Fprintf(&area, "L%s %s", px(tr.x(p.at)), y(p.used))
	}
	d.add(`<path class="level" d="M0 %d%sV%dz"/>`, levelEnd, area.String(), levelEnd)
	d.add(`<path class="quota" d="M0 %dH%d"/>`, levelTop, panelWidth)

	var passed, refused strings.Builder
	for _, a := range s.attempts {
		if a.passed {
			fmt.Fprintf(&passed, "M%s %dv%d", px(tr.x(a.at)+1), passedTop, passedTall)
		} else {
			fmt.Fprintf(&refused, "M%s %dV%d", px(tr.x(a.at)+1), refusedTop, refusedEnd)
		}
	}
	d.add(`<path class="passed" d="%s"/>`, passed.String())
	if refused.Len() > 0 {
		d.add(`<path class="refused" d="%s"/>`, refused.String())
	}

	from, to := tr.x(s.busiest), tr.x(s.busiest+period)
	if s.most > shown {
		d.add(`<path class="overbusy" d="M%s %dv-4H%sv4"/>`, px(from), busyTop+4, px(to))
		d.add(`<rect class="pill" x="%s" y="0" width="24" height="15" rx="7.5"/>`, px((from+to)/2-12))
		d.text("over", (from+to)/2, 11.5, fmt.Sprint(s.most))
	} else {
		d.add(`<path class="busy" d="M%s %dv-4h%sm16 0H%sv4"/>`, px(from), busyTop+4, px((to-from)/2-8), px(to))
		d.text("count", (from+to)/2, 12, fmt.Sprint(s.most))
	}
	d.add("</g>")
}

// sentence is the panel in words.
func (s *story) sentence(c *contender, tr *traffic) string {
	return fmt.Sprintf("%s. %s: %d of %d pass, at most %d in any minute.", c.name, tr.name, s.passed, len(s.attempts), s.most)
}

// summary is the figure in words.
func summary() string {
	var all []string
	for i := range contenders {
		for j := range traffics {
			s := tell(&contenders[i], shown, &traffics[j])
			all = append(all, s.sentence(&contenders[i], &traffics[j]))
		}
	}
	return strings.Join(all, " ")
}
