package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fences   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	unlinked = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns what can stand after the # of a link to a page, as GitHub makes it of the headings.
func anchors(page string) map[string]bool {
	all := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
		text := unlinked.ReplaceAllString(linked.ReplaceAllString(match[1], "$1"), "")
		anchor := strings.ReplaceAll(strings.ToLower(text), " ", "-")
		for n, first := 1, anchor; all[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", first, n)
		}
		all[anchor] = true
	}
	return all
}

// broken returns the links of a page, in a file of that name, that lead nowhere in the repository. Addresses of other
// places are not asked for.
func broken(name, page string) (all []string) {
	for _, match := range link.FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
		path, anchor, anchored := strings.Cut(match[1], "#")
		if strings.Contains(path, ":") {
			continue
		}
		target, text := name, page
		if path != "" {
			target = filepath.Join(filepath.Dir(name), path)
			there, err := os.ReadFile(target)
			if info, found := os.Stat(target); found != nil || err != nil && !info.IsDir() {
				all = append(all, match[1])
				continue
			}
			text = string(there)
		}
		if anchored && strings.HasSuffix(target, ".md") && !anchors(text)[anchor] {
			all = append(all, match[1])
		}
	}
	return all
}

// Goal: each link from a page of the repository to a file, a folder or a heading of it leads there. The
// names of pages are in capitals: others are parts of a page.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	links := 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if name := filepath.Base(path); err != nil || !strings.HasSuffix(name, ".md") || name != strings.ToUpper(name[:len(name)-3])+".md" {
			return err
		}
		text := page(t, path)
		links += len(link.FindAllString(text, -1))
		for _, wrong := range broken(path, text) {
			t.Errorf("%s: %s leads nowhere", path, wrong)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 300 {
		t.Errorf("only %d links were found", links)
	}
}

func TestLinkThatLeadsNowhereIsFound(t *testing.T) {
	const text = "# A `b`, and [c](x)\n\n# Twice\n\n# Twice\n\n```\n# not this\n[nor](this)\n```\n"
	for end, want := range map[string]bool{
		"(#a-b-and-c)": true, "(#twice-1)": true, "(links_test.go)": true, "(../proof)": true, "(https://example.com/x#y)": true,
		"(RECIPES.md#ours)": false, "(#twice-2)": false, "(#not-this)": false, "(none.md)": false, "(../none/)": false,
	} {
		found := broken("page.md", strings.Replace(text, "(x)", end, 1)+"\n")
		if (len(found) == 0) != want {
			t.Errorf("%s: found %v", end, found)
		}
	}
}

// Goal: each "make TARGET" that a page names is there.
func TestPagesNameTargetsOfTheMakefile(t *testing.T) {
	makefile, named := page(t, "../Makefile"), regexp.MustCompile("(?m)(?:`|^)make ([a-z]+)[^.\n]*?(?:`|$)")
	pages, _ := filepath.Glob("*.md")
	above, _ := filepath.Glob("../*.md")
	for _, name := range append(pages, above...) {
		for _, target := range named.FindAllStringSubmatch(page(t, name), -1) {
			if !strings.Contains(makefile, "\n"+target[1]+":") {
				t.Errorf("%s names %s, and there is no such target", name, target[0])
			}
		}
	}
}
