package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	// What only the pages' fragments import. The file go.mod must name it too.
	_ "github.com/lockstile/locker/conformance/matrix"
)

// importable are the packages that a fragment may use without an import. The name of one
// that has another name than its folder stands before it.
var importable = strings.Fields(`context errors fmt net/http os slices testing time
	redis=github.com/redis/go-redis/v9 clientv3=go.etcd.io/etcd/client/v3 github.com/go-zookeeper/zk
	pgx=github.com/jackc/pgx/v5 github.com/jackc/pgx/v5/pgxpool github.com/lockstile/locker
	./conformance ./conformance/matrix ./doctor ./driver ./etcd ./local ./lockertest ./open ./postgres ./redlock ./singlenode ./zookeeper
	./fencing ./fencing/etcdfence ./fencing/httpfence ./fencing/pgfence ./fencing/redisfence ./fencing/zkfence`)

// given are the names that a fragment may use and that its page declares in words.
var given = map[string]string{
	"ctx": "context.Context", "locks": "locker.Locker", "lock": "*locker.Lock", "rdb": "*redis.Client", "pool": "*pgxpool.Pool", "tx": "pgx.Tx",
	"newLocker": "func(addr string) locker.Locker", "startYourServer": "func(any) interface { Addr() string; RestartEmpty() error }",
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// blocks returns the Go blocks of a page as files, whose errors name the lines of the page.
func blocks(name, page string) (files []string, err error) {
	found := goBlock.FindAllStringSubmatchIndex(page, -1)
	if n := strings.Count(page, "```go"); n != len(found) {
		return nil, fmt.Errorf("%s: %d blocks begin with ```go, %d can be read: is one indented, or not closed?", name, n, len(found))
	}
	for _, at := range found {
		file, err := file(fmt.Sprintf("//line %s:%d\n%s", name, 1+strings.Count(page[:at[2]], "\n"), page[at[2]:at[3]]))
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// file makes a file of a block: a whole file as it is, declarations below imports,
// statements in a function.
func file(block string) (string, error) {
	fset := token.NewFileSet()
	if _, err := parser.ParseFile(fset, "", block, parser.PackageClauseOnly); err == nil {
		return block, nil
	}
	tree, err := parser.ParseFile(fset, "", "package page\n"+block, 0)
	if err != nil {
		const begin = "func _() error {\n"
		if tree, err = parser.ParseFile(fset, "", "package page\n"+begin+block+"\n}", 0); err != nil {
			return "", err
		}
		block = begin + block + used(tree.Decls[0].(*ast.FuncDecl).Body.List) + "}\n"
	}
	vars, names := make(map[string]bool), make(map[string]bool)
	for _, id := range tree.Unresolved {
		names[id.Name] = true
		if kind := given[id.Name]; kind != "" {
			vars["var "+id.Name+" "+kind+"\n"] = true
			for _, qualified := range regexp.MustCompile(`(\w+)\.`).FindAllStringSubmatch(kind, -1) {
				names[qualified[1]] = true
			}
		}
	}
	head := "package page\n"
	for _, p := range importable {
		name, p, renamed := strings.Cut(p, "=")
		if !renamed {
			name, p = path.Base(name), strings.Replace(name, "./", "github.com/lockstile/locker/", 1)
		}
		if names[name] {
			head += fmt.Sprintf("import %s %q\n", name, p)
		}
	}
	for v := range vars {
		head += v
	}
	return head + block, nil
}

// used makes use of the names that statements declare, as a reader will.
func used(statements []ast.Stmt) (text string) {
	for _, s := range statements {
		if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			for _, left := range a.Lhs {
				if name := left.(*ast.Ident).Name; name != "_" {
					text += "_ = " + name + "\n"
				}
			}
		}
	}
	return text + "return nil\n"
}

// build has each file compiled, as a package of its own, in one call.
func build(t *testing.T, files []string) error {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string]string{"go.mod": strings.Replace(page(t, "go.mod"), "=> ../", "=> "+root, 1), "go.sum": page(t, "go.sum")}
	for i, file := range files {
		contents[fmt.Sprintf("block%d/block.go", i)] = file
	}
	for name, content := range contents {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "vet", "-printf", "./...") // reports what the compiler does, and links nothing
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w:\n%s", err, out)
	}
	return nil
}

func TestEveryGoBlockOfThePagesBuilds(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		files, err := blocks(filepath.Base(name), page(t, name))
		if err == nil && len(files) > 0 {
			err = build(t, files)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestBlockThatDoesNotBuildIsFound(t *testing.T) {
	const fence = "```"
	for broken, complaint := range map[string]string{
		"lock, err := locks.Lock(ctx)": "page.md:3",
		"locks, err := local.New(\"\", local.Options{})\nlocks, err := local.New(\"\", local.Options{})": "page.md:4",
		"type attempt struct{ … }":                  "illegal character",
		"package main\n\nfunc main() { nothing() }": "undefined: nothing",
	} {
		files, err := blocks("page.md", "text\n"+fence+"go\n"+broken+"\n"+fence+"\n")
		if err == nil {
			err = build(t, files)
		}
		if err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%s\nwas not found: %v", broken, err)
		}
	}
	if _, err := blocks("page.md", "- text\n  "+fence+"go\n  code\n  "+fence+"\n"); err == nil {
		t.Error("an indented block was passed over")
	}
}
