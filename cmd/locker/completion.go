package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/open"
)

// scripts ask locker itself what can come next, so no list of commands and flags is in
// them. Without an answer the shell completes paths. bash takes a word apart at its
// colons and wants only what follows the last one.
var scripts = map[string]string{
	"bash": `_locker() {
	local IFS=$' \t\n' words word
	read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
	[[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
	word=${words[${#words[@]}-1]}
	IFS=$'\n'
	COMPREPLY=($("$1" __complete "${words[@]:1}" 2>/dev/null | cut -f1))
	[[ $word == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
}
complete -o default -F _locker locker
`,
	"zsh": `_locker() {
	local -a lines shown
	lines=(${(f)"$("${words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
	shown=("${(@)lines/$'\t'/  -- }")
	if (( $#lines )); then
		compadd -l -d shown -- "${(@)lines%%$'\t'*}"
	else
		_default
	fi
}
compdef _locker locker
`,
	"fish": `function __locker_complete
	set -l words (commandline -opc) (commandline -ct)
	locker __complete $words[2..-1] 2>/dev/null
end
complete -c locker -n 'not contains -- -- (commandline -opc)' -f -a '(__locker_complete)'
complete -c locker -n 'contains -- -- (commandline -opc)' -F
`,
}

type completionCommand struct{ script string }

func (c *completionCommand) accept(args []string) error {
	words, err := atMost(1, args)
	if err != nil {
		return err
	}
	c.script = scripts[strings.Join(words, "")]
	if c.script == "" {
		return fmt.Errorf("name one of the shells %s", strings.Join(shells(), ", "))
	}
	return nil
}

func shells() []string { return slices.Sorted(maps.Keys(scripts)) }

func (c *completionCommand) do() (int, error) { return answer(c.script) }

// completionVerb is what the scripts ask with.
const completionVerb = "__complete"

// complete prints what can stand in place of the last word, one a line, some with a tab
// and what it means.
func complete(words []string) (int, error) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var text strings.Builder
	for _, line := range candidates(words[:len(words)-1], last) {
		if strings.HasPrefix(line, last) {
			text.WriteString(line + "\n")
		}
	}
	return answer(text.String())
}

// candidates are what can come after the words before, of which some may begin as the
// word last does. Package cli reads those words as it reads a whole line.
func candidates(before []string, last string) (lines []string) {
	p := newProgram()
	p.EnableShellCompletion, p.ShellCompletionCommandName = true, completionVerb
	offer := func(_ context.Context, cmd *cli.Command) { lines = p.offer(cmd, last) }
	p.ShellComplete = offer
	for _, c := range p.Commands {
		c.ShellComplete = offer
	}
	if !slices.Contains(before, "--") {
		_ = p.parse(append(before, "--generate-shell-completion")) // nobody can be told of an error
	}
	return lines
}

func (p *program) offer(cmd *cli.Command, last string) (lines []string) {
	words := cmd.Args().Slice()
	switch {
	case strings.HasPrefix(last, "-"):
		return flagLines(append(cmd.Flags, p.Flags...))
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
		return shells()
	case slices.Contains([]string{"run", "lock", "unlock", "list", "inspect"}, cmd.Name):
		lines = append(lines, heldNames(p.backend, last)...)
	}
	return lines
}

func flagLines(flags []cli.Flag) (lines []string) {
	for _, f := range flags {
		form, text, _ := strings.Cut(f.String(), "\t")
		form, _, _ = strings.Cut(form, " ")
		lines = append(lines, strings.TrimSuffix(form, ",")+"\t"+strings.Join(strings.Fields(text), " "))
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
	var held []locker.Info
	err := async.Do(ctx, func() error {
		_, err := b.ask(func(ctx context.Context, store open.Backend) (err error) {
			held, err = store.List(ctx, prefix)
			return err
		})
		return err
	})
	if err != nil {
		return nil
	}
	for _, info := range held {
		if strings.Trim(info.Name, unquoted) == "" && info.Name[0] != '-' {
			names = append(names, info.Name)
		}
	}
	return names
}
