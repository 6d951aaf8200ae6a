package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// command is one of locker's commands. Its settings are its fields, which its flags set.
type command interface {
	flags() []cli.Flag
	// accept takes the other arguments, with any "--" among them. Its error
	// means wrong usage.
	accept(args []string) error
	// do carries the command out. statusOf its error is the exit status.
	do() error
}

// texts are what locker says and is no code: in help/NAME.txt what the help of a command says below
// its flags, the templates of all help, and the scripts of "completion".
//
//go:embed help completion
var texts embed.FS

// text is one of texts, or "" if there is none.
func text(file string) string {
	b, _ := texts.ReadFile(file) // there is none where there is nothing to say
	return string(b)
}

// program is the command line, which package cli reads, and what it asked for.
type program struct {
	*cli.Command
	backend *backend
	behind  []string     // the arguments from the first "--" on, which are no flags
	chosen  command      // nil if help is the answer
	help    bytes.Buffer // what package cli has printed
}

func newProgram() *program {
	b := new(backend)
	p := &program{backend: b}
	p.Command = &cli.Command{
		Name:  "locker",
		Usage: "runs a command while it holds a lock, hands locks on, and looks at them",
		Flags: []cli.Flag{b.flag()},
		Commands: []*cli.Command{
			p.entry("run", "NAME… -- COMMAND [ARG…]", "run COMMAND while holding the lock NAME, or several", &runCommand{wanted: wanted{backend: b}}),
			p.entry("lock", "NAME", "lock NAME, and print a handle with which it is unlocked", &lockCommand{wanted: wanted{backend: b, detached: true}}),
			p.entry("renew", "[HANDLE | -]", "have the lock of a handle last for another TTL", &renewCommand{byHandle: byHandle{backend: b}}),
			p.entry("unlock", "[HANDLE | - | --force NAME]", "unlock the lock of a handle, or take a lock from its holder", &unlockCommand{byHandle: byHandle{backend: b}}),
			p.entry("list", "[PREFIX]", "show the locks that are held, and watch them change", &listCommand{backend: b}),
			p.entry("inspect", "NAME", "show who holds a lock, the token, and how many wait", &inspectCommand{backend: b}),
			p.entry("doctor", "", "look at a store for what can hurt its locks", &doctorCommand{backend: b}),
			p.entry("backends", "", "list the forms of URLs, and what each backend promises", new(backendsCommand)),
			p.entry("bench", "", "measure the locks of a store, and check that they exclude", &benchCommand{backend: b}),
			p.entry("completion", "bash|zsh|fish", "print a script that makes a shell's tab key complete", new(completionCommand)),
			p.entry("help", "[COMMAND]", "say how to use locker, or one of its commands", new(helpCommand)),
			p.entry("version", "", "print the version", new(versionCommand)),
		},
		Version:                       versionText(),
		Writer:                        &p.help,
		HideHelpCommand:               true, // "help" would be no NAME, in any command
		OnUsageError:                  p.wrong,
		ExitErrHandler:                func(context.Context, *cli.Command, error) {}, // dispatch says what is wrong
		CustomRootCommandHelpTemplate: text("help/root.tmpl"),
		Action:                        func(_ context.Context, cmd *cli.Command) error { return p.noCommand(cmd.Args().Slice()) },
	}
	return p
}

// noCommand is the error for words that do not begin with a command.
func (p *program) noCommand(words []string) error {
	said := "no command given"
	if len(words) > 0 {
		said = fmt.Sprintf("unknown command %q%s", words[0], meant(words[0], cli.SuggestCommand(p.Commands, words[0])))
	}
	var names []string
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	return fmt.Errorf("%s: use one of %s; \"locker help\" says more", said, strings.Join(names, ", "))
}

// entry is a command of the program, with what the help says of its arguments and of it.
func (p *program) entry(name, form, about string, c command) *cli.Command {
	return &cli.Command{
		Name: name, ArgsUsage: form, Usage: about, Flags: c.flags(), Description: strings.TrimSpace(text("help/" + name + ".txt")),
		CustomHelpTemplate: text("help/command.tmpl"),
		OnUsageError:       p.wrong,
		CommandNotFound: func(ctx context.Context, cmd *cli.Command, _ string) { // --help beside other arguments
			_ = cli.ShowCommandHelp(ctx, p.Command, cmd.Name) // to a buffer
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			words := cmd.Args().Slice()
			if i := slices.IndexFunc(words, isFlag); i >= 0 { // such as -5, which package cli takes for a number
				return p.wrong(ctx, cmd, fmt.Errorf("what begins with a dash is a flag, and there is no %s: a NAME that does goes behind --", words[i]), true)
			}
			if err := c.accept(append(words, p.behind...)); err != nil {
				return p.wrong(ctx, cmd, err, true)
			}
			p.chosen = c
			return nil
		},
	}
}

func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

// parse reads the command line. Behind the first "--" nothing is a flag, and package cli, which would drop it, does
// not see what is there.
func (p *program) parse(args []string) error {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	p.behind = args[end:]
	return p.Run(context.Background(), append([]string{"locker"}, args[:end]...))
}

// ofParsers is what package cli passes on of those that read numbers and times.
var ofParsers = regexp.MustCompile(`: (strconv\.\w+: parsing ".*"|time): `)

// wrong says what is wrong with a command line, and what was probably meant.
func (p *program) wrong(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	text := strings.TrimPrefix(ofParsers.ReplaceAllString(err.Error(), ": "), "locker: ")
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		text = fmt.Sprintf("there is no flag %s%s%s", strings.Repeat("-", min(len(name), 2)), name, meant(name, cli.SuggestFlag(append(p.Flags, cmd.Flags...), name, true)))
	}
	if cmd == p.Command {
		return fmt.Errorf("%s; \"locker help\" says more", text)
	}
	return fmt.Errorf("%s: %s; \"locker help %s\" says more", cmd.Name, text, cmd.Name)
}

// meant says what was probably meant by a name. Package cli suggests something in any case.
func meant(name, suggestion string) string {
	if name == "" || !strings.HasPrefix(strings.TrimLeft(suggestion, "-"), name[:1]) {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", suggestion)
}

// atMost returns args without the first "--", or an error if they are more than n.
func atMost(n int, args []string) ([]string, error) {
	if i := slices.Index(args, "--"); i >= 0 {
		args = slices.Delete(slices.Clone(args), i, i+1)
	}
	if len(args) > n {
		return nil, fmt.Errorf("%q is one argument too many", args[n])
	}
	return args, nil
}

// In the texts of flags, a line end with a tab stays in the column of the help.

func boolFlag(name, usage string, to *bool) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, Destination: to}
}

func jsonFlag(to *bool) cli.Flag { return boolFlag("json", "print JSON, one object a line", to) }

// inJSON is a command that has the flag --json and no other.
type inJSON struct{ json bool }

func (c *inJSON) flags() []cli.Flag { return []cli.Flag{jsonFlag(&c.json)} }

// durationFlag is a flag whose value, if it is given, is above zero. With a default of 0 there is none.
func durationFlag(name, usage string, to *time.Duration, byDefault time.Duration) *cli.DurationFlag {
	return &cli.DurationFlag{Name: name, Usage: usage, Destination: to, Value: byDefault, HideDefault: byDefault == 0, Validator: func(d time.Duration) error {
		if d <= 0 {
			return errors.New("not above zero")
		}
		return nil
	}}
}

// numberFlag takes a whole number from least to most. A default below least is none.
func numberFlag(name, usage string, to *int, least, most, byDefault int) cli.Flag {
	return &cli.IntFlag{Name: name, Usage: usage, Destination: to, Value: byDefault, HideDefault: byDefault < least, Validator: func(n int) error {
		if n < least || n > most {
			return fmt.Errorf("not a whole number from %d to %d", least, most)
		}
		return nil
	}}
}
