package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/open"
)

// shells are those for which there is a script. The scripts ask locker itself what can come next, so
// no list of commands and flags is in them. Without an answer the shell completes paths. bash takes a
// word apart at its colons and wants only what follows the last one.
var shells = []string{"bash", "fish", "zsh"}

type completionCommand struct{ script string }

func (*completionCommand) flags() []cli.Flag { return nil }

func (c *completionCommand) accept(args []string) error {
	words, err := atMost(1, args)
	if err != nil {
		return err
	}
	if c.script = text("completion/locker." + strings.Join(words, "")); c.script == "" {
		return fmt.Errorf("name one of the shells %s", strings.Join(shells, ", "))
	}
	return nil
}

func (c *completionCommand) do() error { return answer(c.script) }

// completionVerb is what the scripts ask with.
const completionVerb = "__complete"

// complete prints what can stand in place of the last word, one a line, some with a tab
// and what it means. Package cli reads the words before as it reads a whole line.
func complete(words []string) error {
	last := ""
	if n := len(words); n > 0 {
		words, last = words[:n-1], words[n-1]
	}
	var text strings.Builder
	p := newProgram()
	p.EnableShellCompletion, p.ShellCompletionCommandName = true, completionVerb
	p.ShellComplete = func(_ context.Context, cmd *cli.Command) {
		for _, line := range p.offer(cmd, last) {
			if strings.HasPrefix(line, last) {
				text.WriteString(line + "\n")
			}
		}
	}
	for _, c := range p.Commands {
		c.ShellComplete = p.ShellComplete
	}
	if !slices.Contains(words, "--") {
		_ = p.parse(append(words, "--generate-shell-completion")) // nobody can be told of an error
	}
	return answer(text.String())
}

// offer returns what can come after the words that cmd has read, of which some may begin as the last word does.
func (p *program) offer(cmd *cli.Command, last string) (lines []string) {
	words := cmd.Args().Slice()
	switch {
	case strings.HasPrefix(last, "-"):
		for _, f := range append(cmd.VisibleFlags(), cmd.VisiblePersistentFlags()...) {
			form, text, _ := strings.Cut(f.String(), "\t")
			form, _, _ = strings.Cut(form, " ")
			lines = append(lines, strings.TrimSuffix(form, ",")+"\t"+strings.Join(strings.Fields(text), " "))
		}
		return lines
	case slices.ContainsFunc(words, isFlag): // it wants a value, or there is none such
		return nil
	case len(words) > 0 && cmd.Name != "run":
		return nil
	case len(words) > 0:
		lines = []string{"--\tand then COMMAND"}
	}
	switch {
	case cmd == p.Command, cmd.Name == "help":
		for _, c := range p.VisibleCommands() {
			lines = append(lines, c.Name+"\t"+c.Usage)
		}
	case cmd.Name == "completion":
		return shells
	case slices.Contains([]string{"run", "lock", "unlock", "list", "inspect"}, cmd.Name):
		lines = append(lines, heldNames(p.backend, last)...)
	}
	return lines
}

// unquoted are the characters that no shell takes for itself.
const unquoted = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_-.,:@+=%"

// completionTime bounds how long the tab key waits for a store.
const completionTime = time.Second

// heldNames are the names of held locks that a shell needs no quotes for and we do not take
// for flags, or none where the store does not answer in time: nobody can be told of an error.
func heldNames(b *backend, prefix string) (names []string) {
	if b.quiet = true; b.check() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	held, _ := async.Start(func() (held []locker.Info, err error) {
		err = b.ask(func(ctx context.Context, store open.Backend) (err error) {
			held, err = store.List(ctx, prefix)
			return err
		})
		return held, err
	}).Wait(ctx)
	for _, info := range held {
		if strings.Trim(info.Name, unquoted) == "" && info.Name[0] != '-' {
			names = append(names, info.Name)
		}
	}
	return names
}
