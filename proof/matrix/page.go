package matrix

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"timeline": func(h *History) template.HTML {
		t := h.draw()
		// So that it can be read on a narrow screen.
		return template.HTML(fmt.Sprintf(`<div style="min-width:%dpx">%s</div>`, t.width*3/4, t.out.String())) //nolint:gosec // escapes what it is given
	},
	"style":  func() template.CSS { return template.CSS(timelineStyle) }, //nolint:gosec // it is our own
	"anchor": anchor,
	"broken": broken,
	"told":   Cell.told,
	"legend": func() any { return legend },
	"class": func(v Verdict) string {
		return map[Verdict]string{Kept: "kept", Unavailable: "wait", Fenced: "fenced", Broken: "broken", FalseClaim: "false", Skipped: "skip", NotPlayed: "skip"}[v]
	},
	"id": func(c Cell) string { return anchor(c.Scenario) + "--" + anchor(c.Subject) },
}).Parse(pageText))

// WriteHTML writes the matrix as one page that needs no network: the table, and
// for every cell a timeline of what happened.
func (m *Matrix) WriteHTML(w io.Writer) error {
	if err := page.Execute(w, m); err != nil {
		return fmt.Errorf("matrix: page: %w", err)
	}
	return nil
}
