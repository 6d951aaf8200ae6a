package otellock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramOfThePageBuilds(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n```go\n")
	program, _, found := strings.Cut(rest, "\n```\n")
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program+"\n"), 0o600); err != nil || !found {
		t.Fatalf("the page has no program, or: %v", err)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
