package cronlock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/outside"
)

// A user's program has an adapter, one backend, and nothing that this repository's tests need.
func TestAProgramWithTheAdapterHasNoTestsAndNoOtherBackend(t *testing.T) {
	t.Parallel()
	const module = "github.com/lockstile/locker"
	p := outside.Run(t, `package main

import (
	"fmt"

	"github.com/robfig/cron/v3"

	"github.com/lockstile/locker/adapters/cronlock"
	"github.com/lockstile/locker/singlenode"
)

func main() {
	_, err := singlenode.New(nil, singlenode.Options{})
	_, no := cronlock.NewWrapper(nil, "", cron.DiscardLogger)
	fmt.Print(err, "; ", no != nil)
}
`, "../..", ".")
	if want := "singlenode: the client is nil; true"; p.Said != want {
		t.Errorf("it says %q, want %q", p.Said, want)
	}
	want := []string{
		"example.com/program", "github.com/cespare/xxhash/v2", module, module + "/adapters/cronlock", "github.com/redis/go-redis/v9",
		"github.com/robfig/cron/v3", "go.uber.org/atomic", "golang.org/x/sys",
	}
	got := p.List("-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("it has packages of the modules %q, want %q", got, want)
	}
	for _, line := range p.List("-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, ".") {
		pkg, imports, _ := strings.Cut(line, " ")
		if pkg == "testing" || strings.HasPrefix(pkg, module+"/conformance") {
			t.Errorf("it has %s", pkg)
		}
		if strings.HasPrefix(pkg, module+"/adapters/") && strings.Contains(imports, module+"/internal/") {
			t.Errorf("%s imports %s", pkg, imports)
		}
	}
}
