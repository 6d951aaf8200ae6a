package otellock_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/process"
)

var write = flag.Bool("write", false, "have TestDashboard take its time, store its run in testdata/run.json, and draw it in docs/dashboard.svg")

// dashboard is what a test needs of dashboard.json.
type dashboard struct {
	Panels []struct {
		ID         int
		Title      string
		Datasource source
		GridPos    struct{ H, W, X, Y int }
		Targets    []struct {
			Expr, LegendFormat, RefID string
			Datasource                source
		}
		FieldConfig struct {
			Defaults struct{ Unit string }
		}
	}
	Templating struct {
		List []struct {
			Name, Type, Definition string
			Query                  json.RawMessage
		}
	}
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Goal: a Prometheus evaluates each query of the dashboard, on what our own locks do, and
// finds something in it that is not zero. With -write the run becomes the picture in docs.
func TestDashboard(t *testing.T) {
	r := newRun(t)
	r.interval = "1m"
	if *write {
		r.pace, r.interval = 6*time.Second, "5s"
	}
	r.play()
	d, seen := readDashboard(t), record{Marks: r.marks}
	for _, panel := range d.Panels {
		shown := chart{Title: panel.Title, Unit: panel.FieldConfig.Defaults.Unit}
		for _, target := range panel.Targets {
			shown.Lines = append(shown.Lines, r.evaluated(panel.Title, target.Expr, target.LegendFormat)...)
		}
		seen.Charts = append(seen.Charts, shown)
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			metric, label, found := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")"), ", ")
			if values := r.labels(label, metric); !found || len(values) < 3 {
				t.Errorf("the variable %s, %q, has the values %q", v.Name, v.Definition, values)
			}
		}
	}
	if *write && !t.Failed() {
		seen.write(t)
	}
}

// evaluated returns what a query finds, once one of its values is over zero.
func (r *run) evaluated(panel, expr, legend string) []line {
	r.t.Helper()
	asked := strings.NewReplacer("$__rate_interval", r.interval, "$name", ".*").Replace(expr)
	for deadline := time.Now().Add(process.Patience); ; time.Sleep(100 * time.Millisecond) {
		lines := r.query(asked, legend)
		for _, l := range lines {
			for _, p := range l.Points {
				if p[1] > 0 {
					return lines
				}
			}
		}
		if time.Now().After(deadline) {
			r.t.Errorf("the panel %q shows nothing over zero: %s\n%v", panel, asked, lines)
			return lines
		}
	}
}

// query asks for a value a second, from the beginning of the run until now. A query that
// Prometheus cannot evaluate fails the test.
func (r *run) query(expr, legend string) (lines []line) {
	r.t.Helper()
	var found struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
	r.ask("query_range", url.Values{"query": {expr}, "start": {seconds(r.began)}, "end": {seconds(time.Now())}, "step": {"1"}}, &found)
	for _, series := range found.Result {
		l := line{Legend: legend}
		for _, name := range []string{"lockstile_kind", "lockstile_how", "lockstile_operation", "error_type", "lockstile_reason"} {
			l.Legend = strings.TrimSpace(strings.ReplaceAll(l.Legend, "{{"+name+"}}", series.Metric[name]))
		}
		for _, v := range series.Values {
			y, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64)
			if at, ok := v[0].(float64); err != nil || !ok {
				r.t.Fatalf("%s has the value %v", expr, v)
			} else if !math.IsNaN(y) && !math.IsInf(y, 0) { // a rate of nothing by nothing
				l.Points = append(l.Points, [2]float64{math.Round(at - float64(r.began.UnixMilli())/1000), y})
			}
		}
		lines = append(lines, l)
	}
	return lines
}

// now returns what Prometheus knows of a metric of one process at this moment.
func (r *run) now(metric, page string) []any {
	var found struct{ Result []any }
	r.ask("query", url.Values{"query": {fmt.Sprintf("%s{instance=%q}", metric, page)}}, &found)
	return found.Result
}

// labels returns the values that a label of a metric has.
func (r *run) labels(label, metric string) (values []string) {
	r.ask("label/"+label+"/values", url.Values{"match[]": {metric}}, &values)
	return values
}

// ask asks Prometheus, and fails the test unless it answers with success.
func (r *run) ask(path string, what url.Values, data any) {
	r.t.Helper()
	answer, err := http.Get(r.prometheus.URL() + "/api/v1/" + path + "?" + what.Encode())
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	said := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err = errors.Join(err, answer.Body.Close(), json.Unmarshal(text, &said)); err != nil || said.Status != "success" {
		r.t.Fatalf("Prometheus on %v: %v %s %s", what, err, said.Error, text)
	}
}

func seconds(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000) }

// Goal: what Grafana needs so that the panels appear: panels of different numbers that do not
// overlap, each with a query, and the user's own source of data, and no variable besides.
func TestDashboardIsOneThatGrafanaCanImport(t *testing.T) {
	d, ids := readDashboard(t), make(map[int]bool)
	variables := []string{"$__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, "$"+v.Name)
	}
	own := source{"prometheus", "${datasource}"}
	for i, p := range d.Panels {
		if ids[p.ID] || len(p.Targets) == 0 || p.Datasource != own || p.GridPos.W == 0 || p.GridPos.H == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: %+v", p.Title, p)
		}
		ids[p.ID] = true
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q overlaps %q", p.Title, q.Title)
			}
		}
		for _, target := range p.Targets {
			rest := target.Expr
			for _, v := range variables {
				rest = strings.ReplaceAll(rest, v, "")
			}
			if target.Expr == "" || target.Datasource != own || strings.Contains(rest, "$") {
				t.Errorf("panel %q has the query %+v", p.Title, target)
			}
		}
	}
	if len(d.Panels) < 8 {
		t.Errorf("there are %d panels", len(d.Panels))
	}
}
