package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"timeline": func(h *history.History) template.HTML {
		t := draw(h)
		// So that it can be read on a narrow screen.
		return template.HTML(fmt.Sprintf(`<div style="min-width:%dpx">%s</div>`, t.width*3/4, t.out.String())) //nolint:gosec // escapes what it is given
	},
	"style":  func() template.CSS { return template.CSS(timelineStyle) }, //nolint:gosec // it is our own
	"anchor": anchor,
	"broken": broken,
	"told":   told,
	"word":   Word,
	"kinds":  kinds,
	"legend": func() any { return legend },
	"class": func(v matrix.Verdict) string {
		return map[matrix.Verdict]string{matrix.Kept: "kept", matrix.Unavailable: "wait", matrix.Fenced: "fenced", matrix.Broken: "broken", matrix.FalseClaim: "false", matrix.Skipped: "skip", matrix.NotPlayed: "skip"}[v]
	},
	"id": func(c matrix.Cell) string { return anchor(c.Scenario) + "--" + anchor(c.Subject) },
}).Parse(pageText))

// HTML writes the matrix as one page that needs no network: the table, and
// for every cell a timeline of what happened.
func HTML(w io.Writer, m *matrix.Matrix) error {
	if err := page.Execute(w, m); err != nil {
		return fmt.Errorf("report: page: %w", err)
	}
	return nil
}
