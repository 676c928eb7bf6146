package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A table is one in Markdown.
type table struct {
	head []string
	rows [][]string
}

func (t *table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// judged is the quota by which a measured property is called yes or no.
const judged = 100

// judgements sets the articles' words beside what was measured, in bold where they differ.
func judgements() *table {
	t := &table{head: []string{"limit", "isolates: articles", "measured", "bounds bursts: articles", "measured", "smooths: articles", "measured"}}
	for i := range contenders {
		c := &contenders[i]
		b := behave(c, judged)
		row := []string{c.name}
		for _, p := range [][2]string{
			{c.judged.isolates, b.isolates()}, {c.judged.bounds, b.bounds()}, {c.judged.smooths, b.smooths()},
		} {
			switch said, measured := p[0], p[1]; said {
			case "":
				row = append(row, "–", measured)
			case measured:
				row = append(row, said, measured)
			default:
				row = append(row, said, "**"+measured+"**")
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func (b behaviour) isolates() string {
	if b.lost <= 0.05 {
		return "yes"
	}
	return "no"
}

func (b behaviour) bounds() string {
	switch {
	case b.bursts <= 1:
		return "yes"
	case b.atOnce <= 1.1: // the quota, and what a tenth of the period brings back
		return "at once"
	}
	return "no"
}

func (b behaviour) smooths() string {
	if b.longest > 0 && b.shortest == b.longest {
		return "yes"
	}
	return "no"
}

// behaviours are the figures behind the judgements. Contenders that behave alike share a
// row.
func behaviours(quotas []int) *table {
	t := &table{head: []string{
		"limit", "max", "most in any period ÷ max", "in any tenth of it", "a burst costs the next period", "gaps ÷ the even gap",
	}}
	measured := behaveAll(quotas)
	for group := range contenders[len(contenders)-1].group + 1 {
		for j, quota := range quotas {
			var last behaviour
			for i := range contenders {
				c := &contenders[i]
				if c.group != group || !c.takes(quota) {
					continue
				}
				b := measured[j][i]
				if b == last {
					t.rows[len(t.rows)-1][0] += ", " + c.name
					continue
				}
				last = b
				t.rows = append(t.rows, []string{
					c.name, grouped(quota), fmt.Sprintf("%.2f", b.bursts), fmt.Sprintf("%.2f", b.atOnce), fmt.Sprintf("%.0f%%", 100*b.lost), b.spread(),
				})
			}
		}
	}
	return t
}

// spread is the shortest and the longest gap.
func (b behaviour) spread() string {
	switch {
	case b.longest == 0:
		return "nothing passes any more"
	case b.shortest == b.longest:
		return "1, all even"
	}
	return fmt.Sprintf("%.2f to %s", b.shortest, significant(b.longest))
}

// costsTable is what the limits take. costs has one for each quota and contender.
func costsTable(quotas []int, costs [][]cost, redis bool) *table {
	t := &table{head: []string{"limit", "time, space", "max", "ns in process", "bytes in process"}}
	if redis {
		t.head = append(t.head, "µs on Redis", "bytes on Redis")
	}
	for i := range contenders {
		c := &contenders[i]
		said := "–"
		if c.judged.time != "" {
			said = c.judged.time + ", " + c.judged.space
		}
		for j, quota := range quotas {
			if !c.takes(quota) {
				continue
			}
			k := costs[j][i]
			row := []string{c.name, said, grouped(quota), significant(k.nanos), significant(k.bytes)}
			if redis {
				row = append(row, significant(k.micros), significant(k.redisBytes))
			}
			t.rows = append(t.rows, row)
		}
	}
	return t
}

// significant is a number with two significant digits, all of them above 99.
func significant(f float64) string {
	if f >= 99.5 {
		return grouped(int(f + 0.5))
	}
	return strconv.FormatFloat(f, 'g', 2, 64)
}

// grouped is a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// strips draws every story in letters, a column for each three seconds.
func strips(out io.Writer) {
	for i := range traffics {
		tr := &traffics[i]
		fmt.Fprintf(out, "\n%s: %s\n", tr.name, tr.asks)
		for j := range contenders {
			c := &contenders[j]
			s := tell(c, shown, tr)
			fmt.Fprintf(out, "  %-14s %s  %2d of %3d pass, at most %d in any minute\n", c.name, s.strip(tr), s.passed, len(s.attempts), s.most)
		}
	}
}

// strip is the story in letters: | where something passed, x where all was refused.
func (s *story) strip(tr *traffic) string {
	const columns = 60
	line := []byte(strings.Repeat(".", columns))
	for _, a := range s.attempts {
		switch at := int(int64(a.at) * columns / int64(tr.length)); {
		case a.passed:
			line[at] = '|'
		case line[at] == '.':
			line[at] = 'x'
		}
	}
	return string(line)
}
