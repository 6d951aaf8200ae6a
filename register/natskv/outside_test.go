package natskv_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/outside"
)

// A user's program has the client of NATS, no server, and nothing that this repository's tests need.
func TestAProgramWithTheBackendHasNoServerAndNoTests(t *testing.T) {
	t.Parallel()
	const module = "github.com/lockstile/locker"
	p := outside.Run(t, `package main

import (
	"context"
	"fmt"

	"github.com/lockstile/locker/register/natskv"
)

func main() {
	_, err := natskv.New(context.Background(), nil, "locks", natskv.Options{})
	fmt.Print(err)
}
`, "../..", ".")
	if want := `natskv: bucket "locks": the client is nil`; p.Said != want {
		t.Errorf("it says %q, want %q", p.Said, want)
	}
	want := []string{
		"example.com/program", "github.com/klauspost/compress", module, module + "/register/natskv", "github.com/nats-io/nats.go",
		"github.com/nats-io/nkeys", "github.com/nats-io/nuid", "golang.org/x/crypto", "golang.org/x/sys",
	}
	got := p.List("-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("it has packages of the modules %q, want %q", got, want)
	}
	for _, pkg := range p.List("-deps", ".") {
		if pkg == "testing" || strings.HasPrefix(pkg, module+"/conformance") {
			t.Errorf("it has %s", pkg)
		}
	}
}
