package locker_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the exported API into its file")

// exported is the file with all that users can name, on Linux.
const exported = "docs/API.txt"

// Goal: a change of the API is seen in the diff of a patch, and is made on purpose.
func TestExportedAPIIsInItsFile(t *testing.T) {
	var api bytes.Buffer
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch name := d.Name(); {
		case dir != "." && strings.HasPrefix(name, "."), name == "internal", name == "testdata", dir == "cmd", dir == "proof", dir == "docs":
			return filepath.SkipDir
		}
		return describe(&api, dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(exported, api.Bytes(), 0o644); err != nil { //nolint:gosec // everybody may read it
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(exported)
	if err != nil {
		t.Fatal(err)
	}
	if line := firstDifference(string(want), api.String()); line != "" {
		t.Errorf("the exported API is not that of %s: %s\nIf you mean that: go test -run %s . -update", exported, line, t.Name())
	}
}

// describe writes what the package in a directory exports, if there is one.
func describe(api *bytes.Buffer, dir string) error {
	p, err := (&build.Context{GOOS: "linux", GOARCH: "amd64", Compiler: "gc", GOROOT: build.Default.GOROOT}).ImportDir(dir, 0)
	if _, none := err.(*build.NoGoError); none { //nolint:errorlint // ImportDir returns it as it is
		return nil
	}
	if err != nil || p.Name == "main" {
		return err
	}
	fmt.Fprintf(api, "package %s // %s\n\n", p.Name, filepath.ToSlash(filepath.Join("github.com/lockstile/locker", dir)))
	fset, all := token.NewFileSet(), make(map[string]string) // by name
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			name, shown := declared(decl)
			if !shown {
				continue
			}
			var text strings.Builder
			if err := (&printer.Config{Mode: printer.UseSpaces, Tabwidth: 4}).Fprint(&text, fset, decl); err != nil {
				return err
			}
			all[name] = text.String() + "\n"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		api.WriteString(all[name])
	}
	api.WriteString("\n")
	return nil
}

// declared is what a declaration declares first, and whether users can name it. It takes away what
// may change: bodies, and the words of errors.
func declared(decl ast.Decl) (name string, shown bool) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		d.Body = nil
		if d.Recv == nil {
			return d.Name.Name, true
		}
		of := receiver(d.Recv.List[0].Type)
		return of + "." + d.Name.Name, ast.IsExported(of)
	case *ast.GenDecl:
		for _, spec := range slices.Backward(d.Specs) {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				name = spec.Name.Name
			case *ast.ValueSpec:
				if name = spec.Names[0].Name; d.Tok == token.VAR {
					spec.Values = nil
				}
			}
		}
	}
	return name, name != ""
}

// receiver is the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// firstDifference returns the first line that two texts do not share, or "".
func firstDifference(was, is string) string {
	before, after := strings.Split(was, "\n"), strings.Split(is, "\n")
	for i := range max(len(before), len(after)) {
		switch {
		case i >= len(before):
			return "new is " + after[i]
		case i >= len(after):
			return "gone is " + before[i]
		case before[i] != after[i]:
			return fmt.Sprintf("line %d was %q, and is %q", i+1, before[i], after[i])
		}
	}
	return ""
}
