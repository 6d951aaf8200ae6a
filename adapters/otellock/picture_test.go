package otellock_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"strings"
	"testing"
)

// record is a run as Prometheus has answered the queries of the dashboard.
type record struct {
	Marks  []mark
	Charts []chart
}

// mark is what began to happen, so many seconds after the beginning.
type mark struct {
	At   float64
	Text string
}

type chart struct {
	Title, Unit string
	Lines       []line
}

type line struct {
	Legend string
	Points [][2]float64 // seconds after the beginning, and the value then
}

const (
	storedRun = "testdata/run.json"
	picture   = "../../docs/dashboard.svg"
)

// write stores the run, with figures that nobody can see left out.
func (r record) write(t *testing.T) {
	t.Helper()
	for _, c := range r.Charts {
		for _, l := range c.Lines {
			for i, p := range l.Points {
				l.Points[i][1] = rounded(p[1])
			}
		}
	}
	text, err := json.Marshal(r)
	err = errors.Join(err, os.MkdirAll("testdata", 0o777), os.WriteFile(storedRun, append(text, '\n'), 0o666))
	if err != nil {
		t.Fatal(err)
	}
}

// rounded has three digits.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	return math.Round(v/unit) * unit
}

// Goal: the picture in docs is that of a run, drawn as today, and has every panel of the
// dashboard as it is. With -write it is drawn: TestDashboard has stored a new run before.
func TestDashboardInDocsIsThatOfARun(t *testing.T) {
	text, err := os.ReadFile(storedRun)
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile(picture, []byte(r.draw()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if string(shown) != r.draw() {
		t.Error("docs/dashboard.svg is drawn otherwise. Draw it, or a new run, and look at it: go test -run TestDashboard -args -write")
	}
	d := readDashboard(t)
	if len(d.Panels) != len(r.Charts) {
		t.Fatalf("the picture has %d of %d panels", len(r.Charts), len(d.Panels))
	}
	for i, p := range d.Panels {
		if r.Charts[i].Title != p.Title || r.Charts[i].Unit != p.FieldConfig.Defaults.Unit {
			t.Errorf("the picture has %q instead of the panel %q", r.Charts[i].Title, p.Title)
		}
	}
}

const pictureStyle = `
text { font: 12px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #1f2328 } .title { font-weight: 600; font-size: 13px } .small { font-size: 11px; fill: #59636e } .end { text-anchor: end } .mid { text-anchor: middle }
.paper { fill: #fff } .grid { stroke: #d1d9e0; fill: none } .mark { stroke: #9aa4af; stroke-dasharray: 2 3; fill: none } .line { fill: none; stroke-width: 1.6; stroke-linejoin: round }
.c0 { stroke: #3569c4 } .c1 { stroke: #c2410c } .c2 { stroke: #17803d } .c3 { stroke: #8250df } .c4 { stroke: #b7791f } .c5 { stroke: #cf222e }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .small { fill: #9198a1 } .paper { fill: #0d1117 } .grid { stroke: #3d444d } .mark { stroke: #6e7681 }
.c0 { stroke: #4c8dff } .c1 { stroke: #ff9050 } .c2 { stroke: #3fb950 } .c3 { stroke: #b48cff } .c4 { stroke: #e3b341 } .c5 { stroke: #ff7b72 } }
`

// The measures of the picture, in pixels.
const (
	chartWidth, chartHeight = 460, 190 // with its words
	plotLeft, plotTop       = 52, 26
	plotWidth, plotHeight   = 390, 100
	charts                  = 2 // beside each other
)

// draw draws a chart for each panel. Numbers at the bottom of a chart are the marks.
func (r record) draw() string {
	var out strings.Builder
	top := 30 + 16*((len(r.Marks)+1)/2)
	height := top + chartHeight*((len(r.Charts)+charts-1)/charts)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"><style>%s</style><rect width="100%%" height="100%%" class="paper"/>`,
		charts*chartWidth, height, charts*chartWidth, height, pictureStyle)
	for i, m := range r.Marks {
		fmt.Fprintf(&out, `<text x="%d" y="%d" class="small">%d: %s</text>`, plotLeft+chartWidth*(i%2), 20+16*(i/2), i+1, html.EscapeString(m.Text))
	}
	for i, c := range r.Charts {
		fmt.Fprintf(&out, "\n<g transform=\"translate(%d %d)\">", chartWidth*(i%charts), top+chartHeight*(i/charts))
		r.chart(&out, c)
		out.WriteString("</g>")
	}
	out.WriteString("\n</svg>\n")
	return out.String()
}

func (r record) chart(out *strings.Builder, c chart) {
	most, end := 0.0, 1.0
	for _, l := range c.Lines {
		for _, p := range l.Points {
			most, end = max(most, p[1]), max(end, p[0])
		}
	}
	most = ceiling(most)
	x := func(at float64) float64 { return plotLeft + plotWidth*at/end }
	fmt.Fprintf(out, `<text x="%d" y="14" class="title">%s</text><path d="M%d %dv%dh%dM%d %dh%d" class="grid"/>`,
		plotLeft, html.EscapeString(c.Title), plotLeft, plotTop, plotHeight, plotWidth, plotLeft, plotTop, plotWidth)
	fmt.Fprintf(out, `<text x="%d" y="%d" class="small end">%s</text><text x="%d" y="%d" class="small end">0</text><text x="%d" y="14" class="small end">%.0f s</text>`,
		plotLeft-6, plotTop+4, value(most, c.Unit), plotLeft-6, plotTop+plotHeight+4, plotLeft+plotWidth, end)
	for i, m := range r.Marks {
		fmt.Fprintf(out, `<path d="M%.1f %dv%d" class="mark"/><text x="%.1f" y="%d" class="small mid">%d</text>`, x(m.At), plotTop, plotHeight, x(m.At), plotTop+plotHeight+15, i+1)
	}
	left, row, colour := plotLeft, plotTop+plotHeight+34, 0
	for _, l := range c.Lines {
		path, shows := l.path(x, func(v float64) float64 { return plotTop + plotHeight*(1-v/most) })
		if !shows {
			continue // always zero
		}
		width := 30 + 7*len(l.Legend)
		if left+width > chartWidth {
			left, row = plotLeft, row+15
		}
		fmt.Fprintf(out, `<path d="%s" class="line c%d"/><path d="M%d %dh14" class="line c%d"/><text x="%d" y="%d" class="small">%s</text>`,
			path, colour%6, left, row-4, colour%6, left+18, row, html.EscapeString(l.Legend))
		left, colour = left+width, colour+1
	}
}

// path is the line as SVG has it, with a gap where seconds are missing. It reports whether
// a value is over zero.
func (l line) path(x, y func(float64) float64) (path string, shows bool) {
	for i, p := range l.Points {
		letter := "L"
		if i == 0 || p[0] > l.Points[i-1][0]+1 {
			letter = "M"
		}
		path += fmt.Sprintf("%s%.1f %.1f", letter, x(p[0]), y(p[1]))
		shows = shows || p[1] > 0
	}
	return path, shows
}

// ceiling is the next number that has one digit of 1, 2 or 5.
func ceiling(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*unit {
			return step * unit
		}
	}
	return 10 * unit
}

func value(v float64, unit string) string {
	switch {
	case unit == "s" && v < 1:
		return fmt.Sprintf("%.4g ms", v*1000)
	case unit == "s":
		return fmt.Sprintf("%.4g s", v)
	case unit == "ops":
		return fmt.Sprintf("%.4g/s", v)
	}
	return fmt.Sprintf("%.4g", v)
}
