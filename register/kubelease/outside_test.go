package kubelease_test

import (
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/outside"
)

// A user's program has the client of Kubernetes, no server, and nothing that this repository's tests need.
func TestAProgramWithTheBackendHasNoServerAndNoTests(t *testing.T) {
	t.Parallel()
	const module = "github.com/lockstile/locker"
	p := outside.Run(t, `package main

import (
	"fmt"

	"github.com/lockstile/locker/register/kubelease"
)

func main() {
	_, err := kubelease.New(nil, "locks")
	fmt.Print(err)
}
`, "../..", ".")
	if want := `kubelease: namespace "locks": it needs a client and the name of a namespace`; p.Said != want {
		t.Errorf("it says %q, want %q", p.Said, want)
	}
	for _, pkg := range p.List("-deps", ".") {
		if pkg == "testing" || strings.HasPrefix(pkg, module+"/conformance") || strings.HasPrefix(pkg, "k8s.io/kubernetes") || strings.HasPrefix(pkg, "k8s.io/apiserver") {
			t.Errorf("it has %s", pkg)
		}
	}
}
