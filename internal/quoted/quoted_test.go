package quoted

import (
	"os"
	"path/filepath"
	"testing"
)

type failures struct {
	TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestABlockMustStandInTheSource(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source.go")
	if err := os.WriteFile(source, []byte("func f() {\n\tif a {\n\t\tb()\n\t}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for page, good := range map[string]bool{
		"text\n\n```go\nif a {\n\tb()\n}\n```\n":     true,
		"```go\nif a {\n\tc()\n}\n```\n":             false,
		"```go\nif a {\n```\n\n```go\nif b {\n```\n": false,
		"no block\n": false,
		"```go\nif a {\n```\n\n- a list\n  ```go\n  b()\n": false,
		"```sh\nmake\n```\n\n```go\nfunc f() {\n```\n":     true,
	} {
		file, found := filepath.Join(t.TempDir(), "page.md"), &failures{}
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		if Check(found, file, source); (found.n == 0) != good {
			t.Errorf("%q: %d failures", page, found.n)
		}
	}
}

func TestAFileThatIsMissingIsAFailure(t *testing.T) {
	found := &failures{}
	if Check(found, "none.md", "quoted.go"); found.n == 0 {
		t.Error("no failure without a page")
	}
}
