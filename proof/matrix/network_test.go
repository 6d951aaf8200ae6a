package matrix

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

const here = "github.com/lockstile/locker/proof/matrix"

// Goal: each room uses the rooms before it, and none after it. And a program of somebody else's may
// require this module and another version of the root, whose internal packages may have changed.
func TestRoomsUseThoseBeforeThemAndNothingInternalOfTheRoot(t *testing.T) {
	rooms := []struct{ dir, path string }{
		{"internal/history", here + "/internal/history"}, // what happened
		{"internal/judge", here + "/internal/judge"},     // whether that is as declared
		{".", here},                  // servers, workers, scenarios
		{"report", here + "/report"}, // what people read
	}
	for i, room := range rooms {
		p, err := build.ImportDir(room.dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		used := 0
		for _, path := range p.Imports {
			before := slices.ContainsFunc(rooms[:i], func(r struct{ dir, path string }) bool { return r.path == path })
			if before {
				used++
			}
			ours := path == here || strings.HasPrefix(path, here+"/")
			if ours && !before || !ours && strings.Contains(path, "/internal/") {
				t.Errorf("%s imports %s", room.path, path)
			}
		}
		if (used == 0) != (i == 0) {
			t.Errorf("%s uses %d of the rooms before it", room.path, used)
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
