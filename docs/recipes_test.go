// Package docs_test runs what the pages of this folder show.
package docs_test

import (
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	// What only the page's programs import. The file go.mod must name it too.
	_ "github.com/go-co-op/gocron/v2"
	_ "github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/robfig/cron/v3"

	_ "github.com/lockstile/locker/adapters/cronlock"
	_ "github.com/lockstile/locker/adapters/gocronlock"
	_ "github.com/lockstile/locker/open"
)

// page returns the text of a page of this folder.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recipes is the page whose programs run here. It is their only source.
const recipes = "RECIPES.md"

// code is a block of code of a page, and the line where it begins.
type code struct {
	language, text string
	line           int
}

var codeBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// codeOf returns the blocks of code of a page.
func codeOf(page string) (all []code) {
	for _, at := range codeBlock.FindAllStringSubmatchIndex(page, -1) {
		all = append(all, code{page[at[2]:at[3]], page[at[4]:at[5]], 1 + strings.Count(page[:at[4]], "\n")})
	}
	return all
}

// only returns the one block in a language that is not Go, or the one that has these texts.
func only(t *testing.T, language string, with ...string) string {
	t.Helper()
	var found []string
	for _, b := range codeOf(page(t, recipes)) {
		lacks := func(text string) bool { return !strings.Contains(b.text, text) }
		if b.language == language && !slices.ContainsFunc(with, lacks) {
			found = append(found, b.text)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks of %s with %q, and this test wants one", recipes, len(found), language, with)
	}
	return found[0]
}

var command = regexp.MustCompile(`^// Command (\w+) `)

// programs returns the whole programs of the page, by name.
func programs() (map[string]string, error) {
	text, err := os.ReadFile(recipes)
	found := make(map[string]string)
	for _, b := range codeOf(string(text)) {
		if b.language != "go" || !strings.Contains(b.text, "\npackage main\n") {
			continue
		}
		name := command.FindStringSubmatch(b.text)
		if name == nil || found[name[1]] != "" {
			return nil, fmt.Errorf("a program must begin with // Command NAME, each with a name of its own:\n%.200s", b.text)
		}
		found[name[1]] = b.text
	}
	return found, err
}

// work has what is built. It goes when the tests are over.
var work string

func TestMain(m *testing.M) {
	becomeInit()
	var err error
	if work, err = os.MkdirTemp("", "recipes-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(work)
	os.Exit(status)
}

// bin returns a folder with all programs of the page and the command locker.
func bin(t *testing.T) string {
	t.Helper()
	folder, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

var built = sync.OnceValues(func() (string, error) {
	folder, source := filepath.Join(work, "bin"), filepath.Join(work, "source")
	all, err := programs()
	files := make(fstest.MapFS)
	for name, text := range all {
		files[name+"/main.go"] = &fstest.MapFile{Data: []byte(text)}
	}
	if err = errors.Join(err, os.Mkdir(folder, 0o755), lay(source, files)); err == nil {
		err = goRun(source, "vet", "./...")
	}
	if err == nil {
		err = goRun(source, "build", "-ldflags=-s -w", "-o", folder+"/", "./...") // without debugging symbols it takes half as long
	}
	if err == nil {
		err = goRun("..", "build", "-ldflags=-s -w", "-o", folder+"/", "./cmd/locker")
	}
	return folder, err
})

// lay makes a module of files, with what this one requires. It is a stranger's: nothing
// internal of ours can be imported there.
func lay(folder string, files fstest.MapFS) error {
	ours, err := filepath.Abs("..")
	module, noModule := os.ReadFile("go.mod")
	sums, noSums := os.ReadFile("go.sum")
	text := strings.NewReplacer("module github.com/lockstile/locker/docs", "module example.com/reader", "=> ../", "=> "+ours+"/").Replace(string(module))
	files["go.mod"], files["go.sum"] = &fstest.MapFile{Data: []byte(text)}, &fstest.MapFile{Data: sums}
	return errors.Join(err, noModule, noSums, os.CopyFS(folder, files))
}

// goRun runs the go command. It builds as the tests were built, so that libraries are not
// compiled twice.
func goRun(dir, verb string, args ...string) error {
	cmd := exec.Command("go", append([]string{verb, fmt.Sprintf("-race=%v", race), "-buildvcs=false"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

func TestProgramsAreFormatted(t *testing.T) {
	t.Parallel()
	all, err := programs()
	if err != nil || len(all) < 6 {
		t.Fatalf("%d programs, error %v", len(all), err)
	}
	for name, text := range all {
		if formatted, err := format.Source([]byte(text)); err != nil || string(formatted) != text {
			t.Errorf("gofmt wants %s to read otherwise, error %v:\n%s", name, err, formatted)
		}
	}
}

// The page says that tests show that locks of other libraries exclude ours.
func TestTestsThatThePageNamesAreThere(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\[(Test\w+)\]\(([\w./]+)\)`).FindAllStringSubmatch(page(t, recipes), -1)
	if len(named) < 7 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, test := range named {
		if source, err := os.ReadFile(test[2]); err != nil || !strings.Contains(string(source), "\nfunc "+test[1]+"(t *testing.T)") {
			t.Errorf("%s is not in %s, error %v", test[1], test[2], err)
		}
	}
}
