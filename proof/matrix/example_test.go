package matrix_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
)

// TestMain makes the workers: Run starts this program again for each of them.
func TestMain(m *testing.M) {
	matrix.BecomeWorker(func(_ context.Context, url string) (locker.Locker, error) { return newLocker(url), nil })
	os.Exit(m.Run())
}

func TestMyStoreKeepsWhatItDeclares(t *testing.T) {
	mystore := matrix.Subject{
		Name: "mystore", About: "one server that keeps nothing on disk", Guarantees: newLocker("localhost:1").Guarantees(),
		Start: func(lab *matrix.Lab) (*matrix.System, error) {
			srv := startYourServer(lab)
			return &matrix.System{
				Client: func() (url string, net conformance.Network, err error) { // for one more worker
					p, err := lab.Proxy(srv.Addr())
					return p.Addrs(), p, err
				},
				CrashEmpty: srv.RestartEmpty,
			}, nil
		},
	}
	some := []string{"pause before the write", "holder cut off", "server forgets", "herd"} // all of them take some minutes on most stores
	scenarios := slices.DeleteFunc(matrix.Scenarios(), func(s matrix.Scenario) bool { return !slices.Contains(some, s.Name) })
	if len(scenarios) != len(some) {
		t.Fatalf("not all of %q are scenarios: docs/GUARANTEES.md names them", some)
	}
	m := matrix.Run(t.Context(), matrix.Settings{}, []matrix.Subject{mystore}, scenarios)
	report.Text(t.Output(), m)
	if len(m.Skipped()) == len(m.Cells) {
		t.Skip("nothing was played, for the reasons above")
	}
	for _, c := range append(m.FalseClaims(), m.NotPlayed()...) {
		t.Errorf("%s: %s: %s", c.Scenario, c.Verdict, c.Why)
	}
}

// What follows stands for a store and a backend of one's own: a Redis, and a lock that is
// not on package driver.

func newLocker(url string) locker.Locker {
	addr, flaw, _ := strings.Cut(url, "#") // a test puts a flaw behind "#"; a real backend needs only the URL
	l, _ := specimen.New(addr, flaw)
	return l
}

type server struct {
	*testserver.RedisServer
	lab *matrix.Lab
}

func startYourServer(lab *matrix.Lab) server { return server{testserver.Redis(lab), lab} }

func (s server) RestartEmpty() error {
	return s.lab.Try(func() {
		s.Kill()
		s.Wipe()
		s.Start()
	})
}

func TestBackendsShowsThisExample(t *testing.T) {
	doc, err := os.ReadFile("../../docs/BACKENDS.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Play the matrix\n")
	_, section, _ = strings.Cut(section, "```go\n")
	shown, _, ok := strings.Cut(section, "```\n")
	if !ok || !strings.Contains(string(source), "\n"+shown+"\n") {
		t.Errorf("docs/BACKENDS.md shows what is not in this file:\n%s", shown)
	}
}
