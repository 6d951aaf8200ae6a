package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	// What only the pages' fragments import. The file go.mod must name it too.
	_ "github.com/lockstile/locker/proof/matrix"
)

// importable are the packages that a fragment may use without an import. The name of one
// that has another name than its folder stands before it.
var importable = strings.Fields(`context errors fmt log/slog net/http os slices testing time
	redis=github.com/redis/go-redis/v9 clientv3=go.etcd.io/etcd/client/v3 github.com/go-zookeeper/zk
	pgx=github.com/jackc/pgx/v5 github.com/jackc/pgx/v5/pgxpool github.com/lockstile/locker
	cron=github.com/robfig/cron/v3 cronlock=github.com/lockstile/locker/adapters/cronlock
	gocron=github.com/go-co-op/gocron/v2 gocronlock=github.com/lockstile/locker/adapters/gocronlock
	./conformance ./proof/matrix ./proof/matrix/report ./driver ./election ./etcd ./local ./lockertest ./observe ./open ./postgres ./redlock ./singlenode ./zookeeper
	./fencing ./fencing/etcdfence ./fencing/httpfence ./fencing/pgfence ./fencing/redisfence ./fencing/zkfence`)

// given are the names that a fragment may use and that its page declares in words.
var given = map[string]string{
	"ctx": "context.Context", "locks": "locker.Locker", "lock": "*locker.Lock", "rdb": "*redis.Client", "pool": "*pgxpool.Pool", "tx": "pgx.Tx",
	"sendReport": "func(context.Context, *locker.Lock) error", "schedule": "*cron.Cron", "scheduler": "gocron.Scheduler", "shared": "*gocronlock.Locker",
	"newLocker": "func(addr string) locker.Locker", "startYourServer": "func(any) interface { Addr() string; RestartEmpty() error }",
}

// blocks returns the Go blocks of a page as files, whose errors name the lines of the page.
func blocks(name, page string) (files []string, err error) {
	for _, b := range codeOf(page) {
		if b.language == "go" {
			file, err := file(fmt.Sprintf("//line %s:%d\n%s", name, b.line, b.text))
			if err != nil {
				return nil, err
			}
			files = append(files, file)
		}
	}
	if strings.Count(page, "```go") != len(files) {
		return nil, fmt.Errorf("%s: only %d blocks that begin with ```go can be read: is one indented, or not closed?", name, len(files))
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
	head, vars, names := "package page\n", "", make(map[string]bool)
	for _, id := range tree.Unresolved {
		if kind := given[id.Name]; kind != "" && !names[id.Name] {
			vars += "var " + id.Name + " " + kind + "\n"
			for _, qualified := range regexp.MustCompile(`(\w+)\.`).FindAllStringSubmatch(kind, -1) {
				names[qualified[1]] = true
			}
		}
		names[id.Name] = true
	}
	for _, p := range importable {
		name, p, renamed := strings.Cut(p, "=")
		if !renamed {
			name, p = path.Base(name), strings.Replace(name, "./", "github.com/lockstile/locker/", 1)
		}
		if names[name] {
			head += fmt.Sprintf("import %s %q\n", name, p)
		}
	}
	return head + vars + block, nil
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
	module := make(fstest.MapFS)
	for i, file := range files {
		module[fmt.Sprintf("block%d/block.go", i)] = &fstest.MapFile{Data: []byte(file)}
	}
	dir := t.TempDir()
	if err := lay(dir, module); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "vet", "-printf", "./...") // says what the compiler says, and links nothing
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w:\n%s", err, out)
	}
	return nil
}

func TestEveryGoBlockOfThePagesBuilds(t *testing.T) {
	ours, _ := filepath.Glob("*.md")
	above, _ := filepath.Glob("../*.md")
	adapters := []string{"../adapters/cronlock/README.md", "../adapters/gocronlock/README.md"}
	for _, name := range slices.Concat(ours, above, adapters) {
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
	fenced := func(code string) string { return "\n```go\n" + code + "\n```\n" }
	for _, unreadable := range []string{fenced("type attempt struct{ … }"), "- text\n  ```go\n  code\n  ```\n"} {
		if _, err := blocks("page.md", unreadable); err == nil {
			t.Errorf("passed over: %s", unreadable)
		}
	}
	const twice = "locks, err := local.New(\"\")\n"
	files, _ := blocks("page.md", fenced("lock, err := locks.Lock(ctx)")+fenced(twice+twice)+fenced("package main\n\nfunc main() { nothing() }"))
	err := build(t, files)
	for _, complaint := range []string{"page.md:3:", "page.md:8:", "page.md:15:"} {
		if err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("no complaint at %s in: %v", complaint, err)
		}
	}
}
