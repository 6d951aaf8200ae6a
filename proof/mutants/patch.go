//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folder is where the patches are.
const folder = "proof/mutants"

// patch breaks one line.
type patch struct {
	name     string // its path below folder, without the suffix
	text     []byte
	sentence string
	rule     string
	noticed  []notice
	files    []string // that it touches, from the root
}

// notice is what must notice a patch: tests of one package.
type notice struct {
	dir  string // from the root
	race bool
	run  string // of go test, or ""
}

func (n notice) String() string {
	s := "./" + n.dir
	if n.race {
		s += " -race"
	}
	return strings.TrimSpace(s + " " + n.run)
}

// patches is all there are, and the rules that they may name.
type patches struct {
	all   []*patch
	rules []string
}

// load reads all patches below root. Its error says all that is wrong with them.
func load(root string) (*patches, error) {
	rules, err := readRules(root)
	if err != nil {
		return nil, err
	}
	ps := &patches{rules: rules}
	var wrong []error
	base := filepath.Join(root, folder)
	err = filepath.WalkDir(base, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".patch" {
			return err
		}
		name, err := filepath.Rel(base, strings.TrimSuffix(file, ".patch"))
		if err != nil {
			return err
		}
		p, err := parse(root, filepath.ToSlash(name), file)
		if err == nil && !slices.Contains(rules, p.rule) {
			err = fmt.Errorf("there is no rule %q; %s has the list", p.rule, rulesPage)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
			return nil
		}
		ps.all = append(ps.all, p)
		return nil
	})
	return ps, errors.Join(append(wrong, err)...)
}

// unused returns the rules that no patch names.
func (ps *patches) unused() []string {
	return slices.DeleteFunc(slices.Clone(ps.rules), func(rule string) bool {
		return slices.ContainsFunc(ps.all, func(p *patch) bool { return p.rule == rule })
	})
}

// rulesPage has the rules as a list below rulesHeading, each item's name in bold.
const (
	rulesPage    = "docs/BACKENDS.md"
	rulesHeading = "## The rules by name\n"
)

var ruleItem = regexp.MustCompile(`(?m)^- \*\*(.+?)\*\*`)

func readRules(root string) ([]string, error) {
	page, err := os.ReadFile(filepath.Join(root, rulesPage))
	if err != nil {
		return nil, err
	}
	_, list, _ := strings.Cut(string(page), rulesHeading)
	list, _, _ = strings.Cut(list, "\n## ")
	var rules []string
	for _, item := range ruleItem.FindAllStringSubmatch(list, -1) {
		rules = append(rules, item[1])
	}
	if rules == nil {
		return nil, fmt.Errorf("%s has no list of rules below %q", rulesPage, strings.TrimSpace(rulesHeading))
	}
	return rules, nil
}

var diffBegins = regexp.MustCompile(`(?m)^(diff --git |--- )`)

// parse reads a patch.
func parse(root, name, file string) (*patch, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	begin := diffBegins.FindIndex(text)
	if begin == nil {
		return nil, errors.New("it has no diff")
	}
	p := &patch{name: name, text: text}
	sentence, fields, _ := strings.Cut(string(text[:begin[0]]), "\n\n")
	p.sentence = strings.Join(strings.Fields(sentence), " ")
	for line := range strings.Lines(fields) {
		if err := p.field(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	switch {
	case !strings.HasSuffix(p.sentence, "."):
		return nil, errors.New("its first paragraph is no sentence on what breaks for a user")
	case p.rule == "" || p.noticed == nil:
		return nil, errors.New("it lacks a line \"Rule: …\" or \"Noticed by: …\" below its first paragraph")
	}
	p.files, err = touched(root, file)
	return p, err
}

// field reads one line of the header below the sentence.
func (p *patch) field(line string) error {
	key, value, _ := strings.Cut(line, ": ")
	switch {
	case line == "":
	case key == "Rule" && p.rule == "":
		p.rule = value
	case key == "Noticed by" && strings.HasPrefix(value, "./"):
		dir, rest, _ := strings.Cut(value, " ")
		rest, race := strings.CutPrefix(strings.TrimSpace(rest), "-race")
		p.noticed = append(p.noticed, notice{dir: path.Clean(dir), race: race, run: strings.TrimSpace(rest)})
	default:
		return fmt.Errorf("the line %q is neither the one \"Rule: …\" nor \"Noticed by: ./folder -run\"", line)
	}
	return nil
}

// touched asks git which files a patch touches.
func touched(root, file string) ([]string, error) {
	cmd := exec.Command("git", "apply", "--numstat", "-z", "-") //nolint:gosec // a file of ours
	cmd.Dir = root
	text, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	cmd.Stdin = text
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	var files []string
	for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		files = append(files, line[strings.LastIndex(line, "\t")+1:])
	}
	return files, nil
}

// choose returns the patches that the settings ask for.
func choose(ctx context.Context, s settings, ps *patches) ([]*patch, error) {
	chosen := slices.DeleteFunc(slices.Clone(ps.all), func(p *patch) bool {
		only := strings.TrimSuffix(path.Clean(s.only), "/")
		return s.only != "" && p.name != only && !strings.HasPrefix(p.name, only+"/")
	})
	if s.since != "" {
		files, err := changed(ctx, s.root, s.since)
		if err != nil {
			return nil, err
		}
		chosen = slices.DeleteFunc(chosen, func(p *patch) bool { return !p.concerns(s.root, files) })
	} else if len(chosen) == 0 {
		return nil, fmt.Errorf("there is no patch below %s", path.Join(folder, s.only))
	}
	return chosen, nil
}

// concerns reports whether one of files is touched by the patch, is the patch, or has one of
// the tests that are to notice it.
func (p *patch) concerns(root string, files []string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.Contains(p.files, file) || file == folder+"/"+p.name+".patch" ||
			slices.ContainsFunc(p.noticed, func(n notice) bool {
				return strings.HasSuffix(file, "_test.go") && path.Dir(file) == n.dir && n.inFile(filepath.Join(root, file))
			})
	})
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+|Example\w*|Fuzz\w+)\(`)

// inFile reports whether a test that n names is in file.
func (n notice) inFile(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && slices.ContainsFunc(testFunc.FindAllSubmatch(text, -1), func(f [][]byte) bool {
		return n.mayBe(string(f[1]))
	})
}

// changed returns the files that differ from the last commit that the working tree has in
// common with since, and new ones.
func changed(ctx context.Context, root, since string) ([]string, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		return output(cmd)
	}
	base, err := git("merge-base", since, "HEAD")
	if err != nil {
		return nil, err
	}
	committed, err := git("diff", "--name-only", "-z", "--relative", strings.TrimSpace(base))
	if err != nil {
		return nil, err
	}
	added, err := git("ls-files", "-z", "--others", "--exclude-standard")
	return strings.FieldsFunc(committed+added, func(c rune) bool { return c == 0 }), err
}

// output runs a command, and returns an error that has what it said.
func output(cmd *exec.Cmd) (string, error) {
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}
