package main

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// command is one of locker's commands. Its settings are its fields, which its flags set.
type command interface {
	// accept takes the other arguments, with any "--" among them. Its error
	// means wrong usage.
	accept(args []string) error
	// do carries the command out.
	do() (status int, err error)
}

// texts are what the help of a command says below its flags.
//
//go:embed help
var texts embed.FS

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
	run, lock, renew, unlock := newRun(b), newLock(b), newRenew(b), newUnlock(b)
	list, inspect, doctor, bench := newList(b), newInspect(b), newDoctor(b), newBench(b)
	backends, version := new(backendsCommand), new(versionCommand)
	p.Command = &cli.Command{
		Name:  "locker",
		Usage: "runs a command while it holds a lock, and looks at locks",
		Flags: []cli.Flag{b.flag()},
		Commands: []*cli.Command{
			p.entry("run", "NAME… -- COMMAND [ARG…]", "run COMMAND while holding the lock NAME, or several", run, run.flags()...),
			p.entry("lock", "NAME", "lock NAME, and print a handle with which it is unlocked", lock, lock.flags()...),
			p.entry("renew", "[HANDLE | -]", "have the lock of a handle last for another TTL", renew, renew.flags()...),
			p.entry("unlock", "[HANDLE | - | --force NAME]", "unlock the lock of a handle, or take a lock from its holder", unlock, unlock.flags()...),
			p.entry("list", "[PREFIX]", "show the locks that are held, and watch them change", list, list.flags()...),
			p.entry("inspect", "NAME", "show who holds a lock, the token, and how many wait", inspect, jsonFlag(&inspect.json)),
			p.entry("doctor", "", "look at a store for what can hurt its locks", doctor, jsonFlag(&doctor.json)),
			p.entry("backends", "", "list the forms of URLs, and what each backend promises", backends, jsonFlag(&backends.json)),
			p.entry("bench", "", "measure the locks of a store, and check that they exclude", bench, bench.flags()...),
			p.entry("completion", "bash|zsh|fish", "print a script that makes a shell's tab key complete", new(completionCommand)),
			p.entry("help", "[COMMAND]", "say how to use locker, or one of its commands", new(helpCommand)),
			p.entry("version", "", "print the version", version, jsonFlag(&version.json)),
		},
		Version:                       versionText(),
		Writer:                        &p.help,
		HideHelpCommand:               true, // "help" would be no NAME, in any command
		OnUsageError:                  p.wrong,
		ExitErrHandler:                func(context.Context, *cli.Command, error) {}, // dispatch says what is wrong
		CustomRootCommandHelpTemplate: rootHelp,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if !cmd.Args().Present() {
				return fmt.Errorf("no command given: use one of %s; \"locker help\" says more", p.names())
			}
			return p.unknown(cmd.Args().First())
		},
	}
	return p
}

// entry is a command of the program, with what the help says of its arguments and of it.
func (p *program) entry(name, form, about string, c command, flags ...cli.Flag) *cli.Command {
	more, _ := texts.ReadFile("help/" + name + ".txt") // there is none where there is nothing to say
	return &cli.Command{
		Name: name, ArgsUsage: form, Usage: about, Flags: flags, Description: strings.TrimSpace(string(more)),
		CustomHelpTemplate: commandHelp,
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
		text = fmt.Sprintf("there is no flag %s%s%s", dashes(name), name, meant(dashes(name)+name, cli.SuggestFlag(append(p.Flags, cmd.Flags...), name, true)))
	}
	if cmd == p.Command {
		return fmt.Errorf("%s; \"locker help\" says more", text)
	}
	return fmt.Errorf("%s: %s; \"locker help %s\" says more", cmd.Name, text, cmd.Name)
}

// unknown is the error for a command that is none.
func (p *program) unknown(name string) error {
	return fmt.Errorf("unknown command %q%s: use one of %s; \"locker help\" says more", name, meant(name, cli.SuggestCommand(p.Commands, name)), p.names())
}

// meant says what was probably meant. Package cli suggests something in any case.
func meant(name, suggestion string) string {
	name, bare := strings.TrimLeft(name, "-"), strings.TrimLeft(suggestion, "-")
	if bare == "" || name == "" || bare[0] != name[0] {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", suggestion)
}

func (p *program) names() string {
	var all []string
	for _, c := range p.Commands {
		all = append(all, c.Name)
	}
	return strings.Join(all, ", ")
}

func dashes(flag string) string {
	if len(flag) == 1 {
		return "-"
	}
	return "--"
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

const rootHelp = `locker {{.Usage}}.

Usage:
{{range .VisibleCommands}}  locker {{.Name}}{{if .Flags}} [FLAGS]{{end}}{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}
        {{.Usage}}
{{end}}
Flags of every command:
{{range .VisibleFlags}}  {{.}}
{{end}}
Exit status:
  64   wrong usage
  69   the lock store cannot be reached
  70   the lock was lost
  74   the output could not be written
  75   the lock is taken (run --taken-exit changes this one)
  77   the lock store refuses: a password, a right or its tables are missing, say
  126  the command could not be executed, 127 it was not found
  else the command's own, or 128 + n if signal n ended it
"locker help run" says how a script can tell a command's own status from these.
`

const commandHelp = `Usage: locker {{.Name}}{{if .VisibleFlags}} [FLAGS]{{end}}{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}

{{.Usage}}.

Flags:
{{range .VisibleFlags}}  {{.}}
{{end}}{{range .VisiblePersistentFlags}}  {{.}}
{{end}}{{if .Description}}
{{.Description}}
{{end}}`
