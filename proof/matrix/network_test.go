package matrix

import (
	"go/build"
	"strings"
	"testing"
)

// Goal: a program of somebody else's may require this module and another version of the root,
// whose internal packages may have changed.
func TestNothingInternalIsNeededToPlay(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil || len(p.Imports) < 10 {
		t.Fatal(err, p.Imports)
	}
	for _, path := range p.Imports {
		if strings.Contains(path, "/internal/") {
			t.Errorf("the package imports %s", path)
		}
	}
}

func TestAWorkerHasAProxyInFrontOfEachServer(t *testing.T) {
	lab := new(Lab)
	defer lab.Close()
	ps, err := lab.Proxy("localhost:1", "localhost:2")
	if err != nil || len(ps) != 2 || ps.Addrs() != ps[0].Addr()+","+ps[1].Addr() {
		t.Errorf("%q, %v", ps.Addrs(), err)
	}
}
