package locker

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// inFiles returns, in order, what the group of a pattern matches there: something, or the test fails.
func inFiles(t *testing.T, files, pattern string) (all []string) {
	t.Helper()
	paths, _ := filepath.Glob(files)
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)`+pattern).FindAllSubmatch(text, -1) {
			all = append(all, string(match[1]))
		}
	}
	if len(all) == 0 {
		t.Errorf("nothing in %s matches %s", files, pattern)
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// Goal: the page has each version that is required or built, and each package that is installed.
func TestCompatibilityNamesWhatIsTested(t *testing.T) {
	page := inFiles(t, "docs/COMPATIBILITY.md", `(?s)(.*)`)
	for _, from := range [][2]string{
		{"go.mod", `^go (1\.\d+)`},
		{"go.mod", `^\t(?:github.com/(?:redis|jackc|go-zookeeper)|go.etcd.io/etcd/client)/\S+ (v[\d.]+)$`},
		{"adapters/*/go.mod", `^(?:require )?\t?(?:github.com/(?:go-co-op|robfig|pressly|golang-migrate|caddyserver|redis)|go.opentelemetry.io/otel)(?:/\S+)? (v[\d.]+)$`},
		{"internal/testserver/*/go.mod", `etcd\S+ v([\d.]+)$`},
		{"internal/testserver/install.sh", `packages\+=\(((?:redis|postgres|pgbouncer|prometheus|lib|python)\S*)\)`},
		{".github/workflows/*.yml", `(?:go-version: "|image: )([\w:.]+)`},
	} {
		for _, what := range inFiles(t, from[0], from[1]) {
			if !regexp.MustCompile(`[^\w.]` + regexp.QuoteMeta(what) + `[^\w.]`).MatchString(page[0]) {
				t.Errorf("docs/COMPATIBILITY.md does not name %s of %s", what, from[0])
			}
		}
	}
}

func TestWorkflowsAndReleasesFitTheMakefile(t *testing.T) {
	for _, target := range inFiles(t, ".github/workflows/*.yml", `run: make (.*)$`) {
		inFiles(t, "Makefile", `^(`+target+`):`)
	}
	actions := inFiles(t, ".github/workflows/*.yml", `uses: ([^.].*)$`)
	if pinned := inFiles(t, ".github/workflows/*.yml", `uses: (.*@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`); !slices.Equal(actions, pinned) {
		t.Errorf("of %v only these are commits with a version: %v", actions, pinned)
	}
	vetted := append(inFiles(t, "Makefile", `[ =](\w+/(?:386|arm|arm64|amd64))\b`), "linux/amd64")
	built := inFiles(t, ".goreleaser.yaml", `^ +- (\w+_\w+)$`)
	if strings.Join(built, " ") != strings.ReplaceAll(strings.Join(slices.Sorted(slices.Values(vetted)), " "), "/", "_") {
		t.Errorf("built for %v, vetted for %v", built, vetted)
	}
}
