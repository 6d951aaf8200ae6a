package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/dial"
	"github.com/lockstile/locker/internal/testserver"
)

func TestCodesAreThoseOfTheTable(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var checks string
	for _, file := range files {
		if file != "findings.go" && !strings.HasSuffix(file, "_test.go") {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			checks += string(text)
		}
	}
	for _, found := range regexp.MustCompile(`found\("([^"]+)"`).FindAllStringSubmatch(checks, -1) {
		if r := table[found[1]]; r.severity == "" || r.what == "" || r.means == "" || r.mend == "" {
			t.Errorf("%s has no whole row in the table", found[1])
		}
	}
	for code := range table {
		if !strings.Contains(checks, `"`+code+`"`) {
			t.Errorf("no check finds %s", code)
		}
	}
}

func TestVersionsAreComparedPartByPart(t *testing.T) {
	for version, old := range map[string]bool{
		"3.5.12": true, "3.5.13": false, "3.5.9": true, "3.6.0": false, "3.4.99": true, "4.0.0": false, "2.9.99": true,
		"3.5": false, "": false, "unknown": false, "3.5.13-rc.0": false,
	} {
		if before(version, 3, 5, 13) != old {
			t.Errorf("%q is before 3.5.13: %v", version, !old)
		}
	}
	if !before("6.2.14", 7, 0) || before("7.0.0", 7, 0) || before("7.2", 7, 0) {
		t.Error("6.2 comes before 7.0, 7.0 and 7.2 do not")
	}
}

func TestServerThatStopsAnsweringIsAnError(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	b, err := dial.URL(t.Context(), "redis://"+srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	srv.Kill()
	if err := new(Report).examine(t.Context(), b); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("of a server that is gone: %v", err)
	}
}
